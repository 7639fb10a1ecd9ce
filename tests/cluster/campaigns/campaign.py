"""Many seeds in pieces (`support/pieces.py`): what each broke, the kinds of its special faults, its CPU seconds.

The log belongs to one state of the code: a seed means another run after a change.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path

import msgspec

from streamlog.sim.faults import OF_THE_PROGRAM, ONCE
from tests.cluster.plan import Plan, make_plan
from tests.cluster.run import simulate
from tests.support.pieces import run_in_pieces

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


def run_campaign(seeds: Sequence[int], jobs: int, path: Path) -> dict[int, SeedResult]:
    """Run those that are not in the log; the results of all `seeds`."""
    results = run_in_pieces(
        run_seed,
        seeds,
        kind=SeedResult,
        name_of=int,
        name_of_result=attrgetter("seed"),
        jobs=jobs,
        path=path,
    )
    done = {result.seed: result for result in results}
    return {seed: done[seed] for seed in seeds}


def summary(results: Sequence[SeedResult]) -> Iterator[str]:
    """The failures, then seeds, failures and CPU seconds a seed by kind; a seed of several kinds counts for each."""
    for result in results:
        if result.broken:
            yield f"seed {result.seed} ({', '.join(result.kinds)}): {'; '.join(result.broken)}"
    for kind in ["all", *sorted({kind for result in results for kind in result.kinds})]:
        those = [result for result in results if kind in ("all", *result.kinds)]
        failed, cpu_s = sum(bool(result.broken) for result in those), sum(result.cpu_s for result in those)
        yield f"{kind}: {len(those)} seeds, {failed} failed, {cpu_s / max(1, len(those)):.2f} s of CPU a seed"
