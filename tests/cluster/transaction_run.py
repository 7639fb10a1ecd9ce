"""One seed of transactions on a cluster, from beginning to end; `python -m tests.cluster.transaction_run` runs many.

python -m tests.cluster.transaction_run --seed 7           one run, told from beginning to end
python -m tests.cluster.transaction_run --seeds 300 --from 0
... --mutant epoch_not_bumped                               with a defect planted
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from streamlog.sim.faults import Fault

from .run import Report, run_one, with_faults
from .transaction_mutants import MUTANTS
from .transaction_plan import Action, TransactionsPlan, make_transactions_plan
from .transaction_simulation import TransactionSimulation


def simulate_transactions(seed: int, plan: TransactionsPlan | None = None, *, tells: bool = False) -> Report:
    chosen = plan or make_transactions_plan(seed)
    return run_one(seed, chosen.cluster.order, lambda loop: TransactionSimulation(chosen, loop, tells=tells))


def with_events(plan: TransactionsPlan, faults: Sequence[Fault], actions: Sequence[Action]) -> TransactionsPlan:
    return replace(plan, cluster=with_faults(plan.cluster, faults), actions=tuple(actions))


def planted(mutant: str | None) -> AbstractContextManager[object]:
    return nullcontext() if mutant is None else MUTANTS[mutant].plant()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster.transaction_run", description="Transactions in simulation."
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seed", type=int, metavar="N", help="run one seed and tell what happens")
    what.add_argument("--seeds", type=int, metavar="N", help="run so many, and tell which fail")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="M", help="the first of --seeds")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="plant this defect")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _tell(options.seed, options.mutant)
    return _run_many(range(options.first, options.first + options.seeds), options.mutant)


def _tell(seed: int, mutant: str | None) -> int:
    plan = make_transactions_plan(seed)
    with planted(mutant):
        report = simulate_transactions(seed, plan, tells=True)
    print(f"settings: {plan.cluster.settings}")
    for writer in plan.writers:
        print(writer)
    print("\n".join(report.story))
    print(report.stats)
    for violation in report.violations:
        print(f"BROKEN {violation}")
    return 0 if report.ok else 1


def _run_many(seeds: Sequence[int], mutant: str | None) -> int:
    stats: Counter[str] = Counter()
    failed, begin = 0, time.process_time()
    for seed in seeds:
        with planted(mutant):
            report = simulate_transactions(seed)
        stats.update(report.stats)
        if not report.ok:
            failed += 1
            told = "; ".join(str(violation) for violation in report.violations[:3])
            print(f"seed {seed}: {told[:1500]}", flush=True)
        if (seed + 1) % 500 == 0:
            print(f"... {seed + 1}, {failed} failed", flush=True)
    cpu_s = (time.process_time() - begin) / len(seeds)
    print(f"{len(seeds)} seeds, {failed} failed; {cpu_s:.2f} s of CPU a seed")
    print(", ".join(f"{name} {number}" for name, number in sorted(stats.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
