"""The cluster's simulation from the command line (`make sim`).

python -m tests.cluster --seed 7            one run, with its story
python -m tests.cluster --seeds 300 --from 0 --jobs 2
... --log seeds.log                         in pieces: seeds that are in the log are not run again
python -m tests.cluster --shrink 7          the shortest plan that still breaks what seed 7 breaks, as a test
... --mutant ack_before_sync_on_leader      with a defect planted
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final

from streamlog.sim.faults import Fault
from streamlog.sim.shrink import shrink
from tests.cluster.campaigns.campaign import run_campaign, summary
from tests.support.pieces import in_processes

from . import mutants, story
from .plan import Plan, make_plan
from .run import Report, simulate, with_faults
from .special import special_mutants

MUTANTS: Final = {**mutants.MUTANTS, **special_mutants.MUTANTS}
"""With `--mutant`, the seeds are those of the mutant's plan."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description="The cluster in simulation.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seed", type=int, metavar="N", help="run one seed and print its story")
    what.add_argument("--seeds", type=int, metavar="N", help="run so many, and print those that fail")
    what.add_argument("--shrink", type=int, metavar="N", help="make the plan of a failing seed short")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="M", help="the first of --seeds")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes for --seeds")
    parser.add_argument("--log", type=Path, metavar="FILE", help="of --seeds: skip those in it, add what is run")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="plant this defect")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _run_with_story(options.seed, options.mutant)
    if options.shrink is not None:
        return _shrink(options.shrink, options.mutant)
    if options.log is not None:
        seeds = range(options.first, options.first + options.seeds)
        results = list(run_campaign(seeds, options.jobs, options.log).values())
        print("\n".join(summary(results)))
        return 1 if any(result.broken for result in results) else 0
    return _run_many(range(options.first, options.first + options.seeds), options.jobs, options.mutant)


def planted(mutant: str | None) -> AbstractContextManager[object]:
    return nullcontext() if mutant is None else MUTANTS[mutant].plant()


def plan_of(seed: int, mutant: str | None) -> Plan:
    return make_plan(seed) if mutant is None else MUTANTS[mutant].plan(seed)


def _run_with_story(seed: int, mutant: str | None) -> int:
    with planted(mutant):
        report = simulate(seed, plan_of(seed, mutant), with_story=True)
    for line in story.lines(plan_of(seed, mutant), report):
        print(line)
    return 0 if report.ok else 1


def _one(work: tuple[int, str | None]) -> tuple[int, list[str], Counter[str], float, float]:
    seed, mutant = work
    begin = time.process_time()
    with planted(mutant):
        report = simulate(seed, plan_of(seed, mutant))
    cpu_s = time.process_time() - begin
    return seed, [str(violation) for violation in report.violations], report.stats, report.virtual_s, cpu_s


def _run_many(seeds: Sequence[int], jobs: int, mutant: str | None) -> int:
    stats: Counter[str] = Counter()
    failed, virtual_s, cpu_s = 0, 0.0, 0.0
    for seed, problems, counted, virtual, cpu in in_processes(_one, [(seed, mutant) for seed in seeds], jobs):
        stats.update(counted)
        virtual_s += virtual
        cpu_s += cpu
        if problems:
            failed += 1
            print(f"seed {seed}: {'; '.join(problems[:3])[:1500]}", flush=True)
    print(
        f"{len(seeds)} seeds, {failed} failed; {cpu_s / len(seeds):.2f} s of CPU a seed, {virtual_s / cpu_s:.0f} times"
    )
    print(", ".join(f"{name} {number}" for name, number in sorted(stats.items())))
    return 1 if failed else 0


def _shrink(seed: int, mutant: str | None) -> int:
    plan = plan_of(seed, mutant)
    with planted(mutant):
        broken = simulate(seed, plan).broken
        if not broken:
            print(f"seed {seed} breaks nothing")
            return 1

        def fails(faults: Sequence[Fault]) -> bool:
            report: Report = simulate(seed, with_faults(plan, faults))
            print(f"  {len(faults)} faults: {'fails' if broken & report.broken else 'passes'}", file=sys.stderr)
            return bool(broken & report.broken)

        shrunk = shrink(plan.faults, fails)
        last = simulate(seed, with_faults(plan, shrunk.plan))
    print(story.as_test(seed, plan, shrunk, last))
    return 0


if __name__ == "__main__":
    sys.exit(main())
