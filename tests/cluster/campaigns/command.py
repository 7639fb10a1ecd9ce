"""The command line that the simulations of groups and of transactions have in common.

python -m tests.cluster.groups.group_run --seed 7           one run, with its story
python -m tests.cluster.groups.group_run --seeds 300 --from 0
... --mutant hint_lost                               with a defect planted
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from msgspec import Struct

from tests.cluster.mutants import Mutant
from tests.cluster.run import Report
from tests.cluster.story import ending

SHOWN_MAX = 1_500
"""Characters of what is broken in one seed."""


class Simulated(Struct, frozen=True, kw_only=True):
    """One kind of simulation."""

    module: str
    title: str
    mutants: Mapping[str, Mutant]
    run: Callable[[int], Report]
    run_with_story: Callable[[int], tuple[list[str], Report]]  # the plan in lines; a run that keeps its story

    def planted(self, mutant: str | None) -> AbstractContextManager[object]:
        return nullcontext() if mutant is None else self.mutants[mutant].plant()


def main(simulated: Simulated, arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {simulated.module}", description=simulated.title)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seed", type=int, metavar="N", help="run one seed and print its story")
    what.add_argument("--seeds", type=int, metavar="N", help="run so many, and print those that fail")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="M", help="the first of --seeds")
    parser.add_argument("--mutant", choices=sorted(simulated.mutants), help="plant this defect")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _run_with_story(simulated, options.seed, options.mutant)
    return _run_many(simulated, range(options.first, options.first + options.seeds), options.mutant)


def _run_with_story(simulated: Simulated, seed: int, mutant: str | None) -> int:
    with simulated.planted(mutant):
        plan, report = simulated.run_with_story(seed)
    print("\n".join([*plan, *ending(report)]))
    return 0 if report.ok else 1


def _run_many(simulated: Simulated, seeds: Sequence[int], mutant: str | None) -> int:
    stats: Counter[str] = Counter()
    failed, begin = 0, time.process_time()
    for seed in seeds:
        with simulated.planted(mutant):
            report = simulated.run(seed)
        stats.update(report.stats)
        if not report.ok:
            failed += 1
            text = "; ".join(str(violation) for violation in report.violations[:3])
            print(f"seed {seed}: {text[:SHOWN_MAX]}", flush=True)
        if (seed + 1) % 500 == 0:
            print(f"... {seed + 1}, {failed} failed", flush=True)
    cpu_s = (time.process_time() - begin) / len(seeds)
    print(f"{len(seeds)} seeds, {failed} failed; {cpu_s:.2f} s of CPU a seed")
    print(", ".join(f"{name} {number}" for name, number in sorted(stats.items())))
    return 1 if failed else 0
