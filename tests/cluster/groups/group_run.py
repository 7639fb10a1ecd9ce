"""One seed of groups on a cluster, from beginning to end.

`python -m tests.cluster.groups.group_run` runs one, or many.
"""

from __future__ import annotations

import sys

from tests.cluster.campaigns.command import Simulated, main

from ..run import Report, run_one
from .group_mutants import MUTANTS
from .group_plan import GroupsPlan, make_groups_plan
from .group_simulation import GroupSimulation


def simulate_groups(seed: int, plan: GroupsPlan | None = None, *, with_story: bool = False) -> Report:
    chosen = plan or make_groups_plan(seed)
    return run_one(seed, chosen.cluster.order, lambda loop: GroupSimulation(chosen, loop, with_story=with_story))


def _run_with_story(seed: int) -> tuple[list[str], Report]:
    plan = make_groups_plan(seed)
    lines = [f"settings: {plan.cluster.settings}", f"consumer: {plan.consumer}", *map(str, plan.groups)]
    return lines, simulate_groups(seed, plan, with_story=True)


GROUPS = Simulated(
    module="tests.cluster.groups.group_run",
    title="Groups in simulation.",
    mutants=MUTANTS,
    run=simulate_groups,
    run_with_story=_run_with_story,
)

if __name__ == "__main__":
    sys.exit(main(GROUPS))
