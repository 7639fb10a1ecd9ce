"""Who works with the simulated cluster, and on which host: made as the plan says, set to work, ended in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final, TypeVar

from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import Election, ElectionType, PartitionRepairs
from streamlog.errors import StreamlogError
from streamlog.model import BrokerId, PartitionId, TopicPartition
from streamlog.sim.history import OperationHistory
from streamlog.sim.world import World

from .. import nodes
from ..checking.watch import Watch
from ..plan import BEGIN_S, CLIENTS, PLAIN, Plan
from .deleter import Deleter
from .operators import DirectoryMover, Mover, Tuner, Upgrader, VoterChanger
from .workload import Consumer, Producer, Target

T = TypeVar("T")

OPERATORS: Final = CLIENTS[0]
"""The host that operators work on."""


class Crew:
    """Clients live on hosts that never die, but may be cut off."""

    def __init__(self, plan: Plan, world: World, history: OperationHistory, watch: Watch) -> None:
        self._plan = plan
        self._world = world
        self._history = history
        self._watch = watch
        self._producers: dict[str, list[Producer]] = {host: [] for host in CLIENTS}
        self._consumers: dict[str, list[Consumer]] = {host: [] for host in CLIENTS}
        self._working: list[asyncio.Task[None]] = []
        self._admins: list[AsyncAdmin] = []
        self.tuner: Tuner | None = None
        self.mover: Mover | None = None
        self.directory_mover: DirectoryMover | None = None
        self.voter_changer: VoterChanger | None = None
        self.deleter: Deleter | None = None
        self.upgrader: Upgrader | None = None
        for host in CLIENTS:
            world.host(host).boot()

    @property
    def targets(self) -> list[Target]:
        return [
            Target(
                partition=TopicPartition(topic.name, PartitionId(partition)),
                keyed=topic.compacted,
                min_insync_replicas=topic.min_insync_replicas,
            )
            for topic in self._plan.topics
            for partition in range(topic.partitions)
        ]

    async def on(self, host: str, work: Awaitable[T]) -> T:
        """Do it as the process of that client host."""

        async def do() -> T:
            return await work

        return await self._world.host(host).spawn(do())

    async def create_topics(self) -> None:
        await self.on(OPERATORS, nodes.create_topics(self._plan, self._world.host(OPERATORS).ports))

    async def producer(self, name: str, host: str, *, patient: bool = False) -> Producer:
        sender = await self.on(host, nodes.make_sender(self._plan, self._world.host(host).ports, patient=patient))
        return Producer(name, sender, self._history, self._watch, self._world.stream(f"producer/{name}"))

    async def consumer(self, name: str, host: str, partitions: Sequence[TopicPartition]) -> Consumer:
        reader = await self.on(host, nodes.make_reader(self._plan, self._world.host(host).ports, partitions))
        return Consumer(name, reader, self._history, self._watch)

    def plain_consumer(self, name: str, host: str, partitions: Sequence[TopicPartition]) -> Consumer:
        """That shares nothing with the client library's consumer."""
        reader = nodes.make_plain_reader(self._plan, self._world.host(host).ports, partitions)
        return Consumer(name, reader, self._history, self._watch)

    async def begin(self) -> None:
        """Make all of the plan, and set them to work."""
        load = self._plan.load
        for number in range(load.producers):
            host = CLIENTS[number % len(CLIENTS)]
            producer = await self.producer(f"p{number}", host)
            self._producers[host].append(producer)
            self._working.append(self._world.host(host).spawn(producer.run(self.targets, load)))
        for number in range(load.consumers):
            host = CLIENTS[-1 - number % len(CLIENTS)]
            consumer = await self.consumer(f"r{number}", host, [target.partition for target in self.targets])
            self._consumers[host].append(consumer)
            self._working.append(self._world.host(host).spawn(consumer.run()))
        await self._begin_operating()

    async def _begin_operating(self) -> None:
        host = self._world.host(OPERATORS)
        if self._plan.tunes:
            admin = await self.admin()
            self.tuner = Tuner(admin, PLAIN, self._world.stream("tuner"), lambda: self._world.loop.now)
            self._working.append(host.spawn(self.tuner.run()))
        if self._plan.moves:
            admin = await self.admin()
            self.mover = Mover(admin, self._plan.topics, _ids(self._plan.nodes), self._world.stream("mover"))
            self._working.append(host.spawn(self.mover.run()))
        if len(self._plan.log_dirs) > 1:
            moved = (self._plan.topics, _ids(self._plan.nodes), self._plan.log_dirs)
            self.directory_mover = DirectoryMover(await self.admin(), *moved, self._world.stream("directory mover"))
            self._working.append(host.spawn(self.directory_mover.run()))
        if self._plan.votes:
            admin = await self.admin()
            self.voter_changer = VoterChanger(
                admin, _ids(self._plan.may_vote), self._world.stream("voters"), loses_disk=self._plan.loses_disk
            )
            self._working.append(host.spawn(self.voter_changer.run()))
        if self._plan.deletes:
            partitions = [target.partition for target in self.targets if not target.keyed]
            rng = self._world.stream("deleter")
            self.deleter = Deleter(await self.admin(), partitions, self._watch, rng, lambda: self._world.loop.now)
            self._working.append(host.spawn(self.deleter.run()))
        if self._plan.upgrade is not None:
            rng, begin_s = self._world.stream("upgrader"), min(self._world.loop.now, BEGIN_S)  # what is late, all is
            wait_s = self._plan.upgrade.raised_from_s - begin_s
            self.upgrader = Upgrader(await self.admin(), rng, wait_s=wait_s)
            self._working.append(host.spawn(self.upgrader.run()))

    async def admin(self) -> AsyncAdmin:
        """Closed at the end."""
        admin = await self.on(OPERATORS, nodes.make_admin(self._plan, self._world.host(OPERATORS).ports))
        self._admins.append(admin)
        return admin

    async def repair(self, partition: TopicPartition) -> PartitionRepairs:
        """As `streamlogctl partition repair` does. StreamlogError."""

        async def repairing() -> PartitionRepairs:
            admin = await nodes.make_admin(self._plan, self._world.host(OPERATORS).ports)
            try:
                return await admin.repair_replicas(partition.topic, partition.partition)
            finally:
                await admin.close()

        return await self.on(OPERATORS, repairing())

    async def preview(self, partitions: Sequence[TopicPartition]) -> Sequence[Election]:
        """What an unclean election would choose; nothing if that cannot be found now."""

        async def previewing() -> Sequence[Election]:
            admin = await nodes.make_admin(self._plan, self._world.host(OPERATORS).ports)
            try:
                return await admin.preview_unclean_election(partitions)
            except StreamlogError:
                return ()
            finally:
                await admin.close()

        return await self.on(OPERATORS, previewing()) if partitions else ()

    async def elect(self, partition: TopicPartition) -> None:
        """As `streamlogctl partition elect --election-type unclean` does."""

        async def electing() -> None:
            admin = await nodes.make_admin(self._plan, self._world.host(OPERATORS).ports)
            try:
                await admin.elect_leaders([partition], kind=ElectionType.UNCLEAN)
            except StreamlogError:
                pass  # it waits on, and is looked at again
            finally:
                await admin.close()

        await self.on(OPERATORS, electing())

    def stop_operating(self) -> None:
        """So that all can settle. An upgrade goes on."""
        for operator in (self.tuner, self.mover, self.directory_mover, self.voter_changer, self.deleter):
            if operator is not None:
                operator.stopping = True

    async def end(self) -> None:
        """Stop, wait for what is unanswered, close."""
        if self.upgrader is not None:
            self.upgrader.stopping = True
        for host in CLIENTS:
            for client in self._clients(host):
                client.stopping = True
        if self._working:
            await asyncio.wait(self._working)
        for task in self._working:
            task.result()
        for host in CLIENTS:
            for client in self._clients(host):
                await self.on(host, client.close())

        for admin in self._admins:
            await self.on(OPERATORS, admin.close())

    def _clients(self, host: str) -> list[Producer | Consumer]:
        return [*self._producers[host], *self._consumers[host]]


def _ids(names: Sequence[str]) -> list[BrokerId]:
    return [BrokerId(int(name.removeprefix("n"))) for name in names]
