"""One seed of transactions on a cluster, from beginning to end.

`python -m tests.cluster.transactions.transaction_run` runs one, or many.
"""

from __future__ import annotations

import sys

from tests.cluster.campaigns.command import Simulated, main

from ..run import Report, run_one
from .transaction_mutants import MUTANTS
from .transaction_plan import TransactionsPlan, make_transactions_plan
from .transaction_simulation import TransactionSimulation


def simulate_transactions(seed: int, plan: TransactionsPlan | None = None, *, with_story: bool = False) -> Report:
    chosen = plan or make_transactions_plan(seed)
    return run_one(seed, chosen.cluster.order, lambda loop: TransactionSimulation(chosen, loop, with_story=with_story))


def _run_with_story(seed: int) -> tuple[list[str], Report]:
    plan = make_transactions_plan(seed)
    lines = [f"settings: {plan.cluster.settings}", *map(str, plan.writers)]
    return lines, simulate_transactions(seed, plan, with_story=True)


TRANSACTIONS = Simulated(
    module="tests.cluster.transactions.transaction_run",
    title="Transactions in simulation.",
    mutants=MUTANTS,
    run=simulate_transactions,
    run_with_story=_run_with_story,
)

if __name__ == "__main__":
    sys.exit(main(TRANSACTIONS))
