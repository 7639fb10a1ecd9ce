"""A seed of the cluster with publishers beside its other clients: the same plan, faults, phases, and checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final
from unittest import mock

from streamlog.services.records.gathering import lane
from streamlog.services.records.gathering.lane import WaitingWrite
from streamlog.sim.history import OperationHistory
from streamlog.sim.world import World

from .. import nodes
from ..checking.watch import Watch
from ..clients.crew import Crew
from ..plan import CLIENTS, Plan, make_plan
from ..run import Report, run_one
from ..simulation import Simulation
from .publishers import Publisher

PUBLISHERS: Final = (False, False, True)
"""Whether each has a token."""


class PublishCrew(Crew):
    def __init__(self, plan: Plan, world: World, history: OperationHistory, watch: Watch) -> None:
        super().__init__(plan, world, history, watch)
        self._publishers: list[tuple[str, Publisher]] = []

    async def begin(self) -> None:
        await super().begin()
        addresses = [nodes.address(name) for name in self._plan.nodes]
        for number, with_token in enumerate(PUBLISHERS):
            host = CLIENTS[number % len(CLIENTS)]
            publisher = Publisher(
                f"u{number}",
                self._world.host(host).ports,
                addresses,
                self._history,
                self._watch,
                self._world.stream(f"publisher/{number}"),
                value_bytes_max=self._plan.load.value_bytes_max,
                with_token=with_token,
            )
            self._publishers.append((host, publisher))
            self._working.append(self._world.host(host).spawn(publisher.run(self.targets)))

    async def end(self) -> None:
        for _, publisher in self._publishers:
            publisher.stopping = True
        await super().end()
        for host, publisher in self._publishers:
            await self.on(host, publisher.close())


class PublishSimulation(Simulation):
    def crew_of(self, plan: Plan) -> Crew:
        return PublishCrew(plan, self.world, self.history, self.watch)

    async def run(self) -> None:
        with counted_groups(self.stats):
            await super().run()


@contextmanager
def counted_groups(stats: Counter[str]) -> Iterator[None]:
    """Groups of more than one call."""

    class CountedGroup(lane.WriteGroup):
        __slots__ = ()

        def __init__(self, writes: Sequence[WaitingWrite], sent_at: float) -> None:
            super().__init__(writes, sent_at)
            stats["groups"] += len(writes) > 1
            stats["gathered"] += len(writes)

    with mock.patch.object(lane, "WriteGroup", CountedGroup):
        yield


def simulate_publishing(seed: int) -> Report:
    plan = make_plan(seed)
    return run_one(seed, plan.order, lambda loop: PublishSimulation(plan, loop))
