"""Transactions on a cluster under faults, from the first start to the last look: the phases of `transaction_plan`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from streamlog.client.consumer.async_consumer import AsyncConsumer
from streamlog.client.consumer.start_positions import EARLIEST
from streamlog.coordinator.transactions import TRANSACTIONS_TOPIC
from streamlog.groups.placement import partition_of
from streamlog.model import PartitionId, TopicPartition
from streamlog.node import Node
from streamlog.ports import Ports
from streamlog.sim import SimLoop
from streamlog.sim.faults import Fault

from ..checking.checks import (
    Evidence,
    Violation,
    no_duplicates,
    no_lost_write,
    one_value_an_offset,
    replicas_are_identical,
    send_order,
)
from ..plan import CLIENTS
from ..simulation import Simulation
from .transaction_crew import TransactionCrew, read_by_library, read_by_stream
from .transaction_eyes import looking
from .transaction_ledger import NOTHING, Ledger
from .transaction_plan import COORDINATOR, FAULTS_END_S, HEAL_S, WORK_S, Action, TransactionsPlan
from .transaction_writers import addresses

ENDED_S: Final = 6.0
"""Beyond the longest time-out: within so long after the last writer's death no partition is held. Coordinators are
loaded, decisions replicated and markers written meanwhile, on permanently slow disks."""
ONCE_MORE_S: Final = 10.0
READ_S: Final = 10.0
LOOK_S: Final = 0.05


class TransactionSimulation(Simulation):
    def __init__(self, plan: TransactionsPlan, loop: SimLoop, *, with_story: bool = False) -> None:
        super().__init__(plan.cluster, loop, with_story=with_story)
        self.transactions_plan = plan
        self.ledger = Ledger(self._wrong)
        self._partitions = [
            TopicPartition(topic.name, PartitionId(index))
            for topic in plan.cluster.topics
            for index in range(topic.partitions)
        ]
        self.writers = TransactionCrew(plan, self.world, self._partitions, self.ledger)

    def _wrong(self, invariant: str, what: str) -> None:
        self.note(f"WRONG {invariant}: {what}")
        self.watch.wrong(invariant, what)

    def _find(self, role: str) -> str | None:
        if role != COORDINATOR:
            return super()._find(role)
        image = self.image()
        topic = None if image is None else image.topic_named(TRANSACTIONS_TOPIC)
        if topic is None:
            return None
        name = self.transactions_plan.writers[0].name
        leader = topic.partitions[partition_of(name, len(topic.partitions))].leader
        return None if leader < 0 else f"n{leader}"

    async def run(self) -> None:
        with looking(self._wrong):
            await self._run()

    async def _run(self) -> None:
        self.nemesis.start_all()
        await self._create_topics()
        await self.crew.begin()
        self.writers.begin()
        readers = self._readers()
        await self._strike()
        await self._until(HEAL_S)
        self.note("all is healed")
        self.nemesis.heal()
        await self._until(HEAL_S + WORK_S)
        self.note("all writers are killed")
        self.writers.kill()
        await self._is_released()
        await self._once_more()
        await self.crew.end()
        await self._quiet()
        for reader in readers:
            reader.cancel()
        await asyncio.wait(readers)
        await self._look_at_transactions()
        self.world.stop()

    def _readers(self) -> list[asyncio.Task[None]]:
        topics = [topic.name for topic in self.plan.topics]
        first, second = (self.world.host(name) for name in CLIENTS[:2])
        return [
            first.spawn(read_by_library(first.ports, self._partitions, self.ledger)),
            second.spawn(read_by_stream(second.ports, topics, self.ledger)),
        ]

    async def _strike(self) -> None:
        events: list[Fault | Action] = [*self.plan.faults, *self.transactions_plan.actions]
        for event in sorted(events, key=lambda event: event.at):
            await self._until(event.at)
            self.note(f"{event!r}")
            if isinstance(event, Fault):
                self.quorum.check_now()
                self.nemesis.strike(event)
            else:
                self.writers.programs[event.host].strike(event)
                self.stats[f"writer {event.event.name.lower()}"] += 1
        await self._until(FAULTS_END_S)

    # What must come of it.

    def _is_quiet(self) -> bool:
        """The topics of transactions and groups, too: the last record of an end is written behind its response."""
        return super()._is_quiet() and all(
            len({offset for pair in found for offset in pair}) == 1 for found in self._replica_ends().values()
        )

    async def _is_released(self) -> None:
        """I19: what the dead have left open is ended by its time-out."""
        since = self.loop.now
        while held := list(self._held()):
            if self.loop.now > since + self.transactions_plan.timeout_max_s + ENDED_S:
                self._wrong("I19", f"{self.loop.now - since:.1f} s after all writers died are held: {held}")
                return
            await self._pause(LOOK_S)
        self.stats["ms until nothing is held"] += round((self.loop.now - since) * 1000)

    def _held(self) -> Iterator[str]:
        """Partitions whose last stable offset is not their high watermark; those of the groups too."""
        for host in self.living():
            node = host.node
            if isinstance(node, Node) and node._plane is not None:
                for replica in node._plane.replicas.leaders():
                    if replica.last_stable_offset < replica.high_watermark:
                        yield f"{replica.partition} at {host.name}: {replica.last_stable_offset}"

    async def _once_more(self) -> None:
        """I19: every id is good for another transaction."""
        try:
            async with asyncio.timeout(ONCE_MORE_S):
                await self.writers.write_once_more()
        except TimeoutError:
            self._wrong("I19", f"{ONCE_MORE_S} s after all was ended a writer cannot commit")
            self.writers.kill()

    async def _look_at_transactions(self) -> None:
        host = self.world.host(CLIENTS[0])
        final: list[bytes | None] = []
        places: dict[str, int] = {}
        try:
            async with asyncio.timeout(READ_S):
                await self.crew.on(host.name, self._read(host.ports, final))
                await self.crew.on(host.name, self._find_places(host.ports, places))
        except TimeoutError:
            self._wrong("I7", f"what is committed cannot be read within {READ_S} s")
        else:
            self.ledger.check(final, places)
        self.quorum.check_now()
        for stop in self.nemesis.bad_stops:
            self._wrong("stop", stop)
        evidence = Evidence(history=self.history, replicas=self._replicas())
        for invariant, check in (
            ("I1", no_lost_write),
            ("I3", one_value_an_offset),
            ("I4", no_duplicates),
            ("I5", send_order),
            ("I8", replicas_are_identical),
        ):
            self.watch.violations += [Violation(invariant, what) for what in check(evidence)]
        self.stats.update(self.ledger.counts())
        for program in self.writers.programs.values():
            self.stats["writers fenced"] += program.fenced
            self.stats.update({f"errors {code}": count for code, count in program.errors.items()})

    async def _read(self, ports: Ports, found: list[bytes | None]) -> None:
        """To the ends, as a reader of committed records."""
        servers = ",".join(addresses())
        async with (
            AsyncConsumer(bootstrap_servers=servers, isolation_level="read_committed", ports=ports) as consumer,
            AsyncConsumer(bootstrap_servers=servers, ports=ports) as other,
        ):
            ends = await other.end_offsets(self._partitions)
            await consumer.assign(self._partitions, start=EARLIEST)
            for partition in self._partitions:
                while await consumer.position(partition) < ends[partition]:
                    found += [record.value for record in await consumer.poll(timeout_s=0.1)]

    async def _find_places(self, ports: Ports, places: dict[str, int]) -> None:
        for writer in self.transactions_plan.writers:
            async with AsyncConsumer(
                bootstrap_servers=",".join(addresses()), group_id=writer.name, ports=ports
            ) as consumer:
                (place,) = (await consumer.committed([self._partitions[0]])).values()
                places[writer.name] = NOTHING if place is None else place.offset
