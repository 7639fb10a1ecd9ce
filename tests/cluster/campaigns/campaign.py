"""Many seeds in pieces: over processes, with a log that the next piece continues.

The log has a line a seed, appended when the seed is done: JSON with the seed, the kinds of its special faults, its CPU
seconds and what it broke. A piece runs the seeds of its range that are not in the log, so it may be stopped at any
time, and started again with the same or a wider range. A line that a stop has cut off is ignored, and its seed runs
again. The log belongs to one state of the code: a seed means another run after a change.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from streamlog.sim.faults import OF_THE_PROGRAM, ONCE
from tests.cluster.plan import Plan, make_plan
from tests.cluster.run import simulate

PLAIN = "plain"
"""The kind of a seed without special faults."""


class SeedResult(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    kinds: tuple[str, ...]
    cpu_s: float
    broken: tuple[str, ...]


def kinds_of(plan: Plan) -> tuple[str, ...]:
    found = {fault.kind.name.lower() for fault in plan.faults if fault.kind in ONCE | OF_THE_PROGRAM}
    return tuple(sorted(found | ({"voters"} if plan.votes else set()))) or (PLAIN,)


def run_seed(seed: int) -> SeedResult:
    begin = time.process_time()
    report = simulate(seed)
    return SeedResult(
        seed=seed,
        kinds=kinds_of(make_plan(seed)),
        cpu_s=round(time.process_time() - begin, 3),
        broken=tuple(str(violation)[:600] for violation in report.violations[:3]),
    )


def read_log(path: Path) -> dict[int, SeedResult]:
    """By seed. Lines that are incomplete are left out."""
    found: dict[int, SeedResult] = {}
    if path.exists():
        for line in path.read_bytes().splitlines():
            try:
                result = msgspec.json.decode(line, type=SeedResult)
            except msgspec.DecodeError:
                continue
            found[result.seed] = result
    return found


def run_campaign(seeds: Sequence[int], jobs: int, path: Path) -> dict[int, SeedResult]:
    """Run those that are not in the log; the results of all `seeds`."""
    done = read_log(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as log:
        log.write(b"\n" if path.stat().st_size else b"")  # after a line that was cut off
        for result in _results([seed for seed in seeds if seed not in done], jobs):
            log.write(msgspec.json.encode(result) + b"\n")
            log.flush()
            done[result.seed] = result
    return {seed: done[seed] for seed in seeds}


def _results(seeds: Sequence[int], jobs: int) -> Iterator[SeedResult]:
    if jobs == 1:
        yield from map(run_seed, seeds)
        return
    with multiprocessing.Pool(jobs) as pool:
        yield from pool.imap_unordered(run_seed, seeds)


def summary(results: Sequence[SeedResult]) -> Iterator[str]:
    """The failures, then seeds, failures and CPU seconds a seed by kind; a seed of several kinds counts for each."""
    for result in results:
        if result.broken:
            yield f"seed {result.seed} ({', '.join(result.kinds)}): {'; '.join(result.broken)}"
    for kind in ["all", *sorted({kind for result in results for kind in result.kinds})]:
        those = [result for result in results if kind in ("all", *result.kinds)]
        failed, cpu_s = sum(bool(result.broken) for result in those), sum(result.cpu_s for result in those)
        yield f"{kind}: {len(those)} seeds, {failed} failed, {cpu_s / max(1, len(those)):.2f} s of CPU a seed"
