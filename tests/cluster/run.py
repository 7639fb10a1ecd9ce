"""One seed from beginning to end, and what came of it.

A run is a function of its plan: the loop, each host's disk, node and workers, the network, and every client draw from
streams of their own. Problems are reported, not raised; what ends the simulation itself (a deadlock, a task that was
left behind) is a problem too.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from streamlog.sim import SimLoop, run
from streamlog.sim.ban import traps
from streamlog.sim.faults import Fault
from streamlog.sim.history import OperationHistory, Outcome
from streamlog.sim.loop import Order
from streamlog.sim.world import TIMER_JITTER_S

from .checking.checks import PRODUCE, Violation
from .checking.eyes import looking
from .plan import END_S, Plan, make_plan
from .simulation import Simulation

OVERTIME_S: Final = 60.0
"""After END_S: whatever is not done then never will be."""


class Report(Struct):
    seed: int
    violations: list[Violation] = field(default_factory=list)
    stats: Counter[str] = field(default_factory=Counter)
    fingerprint: int = 0  # equal in every process: what makes a seed a reproduction
    virtual_s: float = 0.0
    story: list[str] = field(default_factory=list)  # only where it was asked for
    history: OperationHistory | None = None
    deaths: list[tuple[float, str]] = field(default_factory=list)  # when which node was killed or lost power

    @property
    def ok(self) -> bool:
        return not self.violations

    @property
    def broken(self) -> set[str]:
        """The invariants."""
        return {violation.invariant for violation in self.violations}


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """Nodes under faults have much to say, and it is not read here."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def simulate(seed: int, plan: Plan | None = None, *, with_story: bool = False) -> Report:
    """Run one seed."""
    chosen = plan or make_plan(seed)
    return run_one(seed, chosen.order, lambda loop: Simulation(chosen, loop, with_story=with_story))


def run_one(seed: int, order: Order, make: Callable[[SimLoop], Simulation]) -> Report:
    report = Report(seed)
    box: list[Simulation] = []

    async def main(loop: SimLoop) -> None:
        simulation = make(loop)
        box.append(simulation)
        with looking(simulation.watch), simulation.quorum.looking():
            await simulation.run()

    ended: str = ""
    try:
        with traps(), _quiet_logs():
            run(main, seed=f"cluster/{seed}", order=order, until_s=END_S + OVERTIME_S, jitter_s=TIMER_JITTER_S)
    except Exception as error:  # noqa: BLE001  a bug in nodes or clients: the report has it
        ended = f"the simulation ended with {error!r}"
    simulation = box[0]
    report.violations = list(simulation.watch.violations)
    if ended:
        report.violations.append(Violation("end", ended[:2000]))
    _count(report, simulation)
    report.story, report.history, report.deaths = simulation.story, simulation.history, simulation.deaths
    return report


def _count(report: Report, simulation: Simulation) -> None:
    report.fingerprint = simulation.fingerprint()
    report.virtual_s = simulation.loop.now
    stats = report.stats = simulation.stats
    for kind, count in simulation.nemesis.struck.items():
        stats[f"fault {kind.name.lower()}"] += count
    for row in simulation.history.select(PRODUCE):
        stats[f"sends {row.outcome.value}"] += 1
    stats["polled"] = sum(1 for _ in simulation.history.select("poll", Outcome.OK))
    if simulation.crew.voter_changer is not None:
        stats["voters changed"] = simulation.crew.voter_changer.changes
    if simulation.plan.upgrade is not None:
        stats["upgrades"] += 1
    if simulation.crew.deleter is not None:
        stats["deletions"] = sum(deletion.completed is not None for deletion in simulation.crew.deleter.deletions)
    stats["stopped by their disk"] = len(simulation.nemesis.stops)
    stats["callbacks"] = simulation.loop.steps
    stats["frames"] = simulation.world.fabric.frames
    stats["virtual s"] = round(simulation.loop.now)


def with_faults(plan: Plan, faults: Sequence[Fault]) -> Plan:
    return replace(plan, faults=tuple(faults))
