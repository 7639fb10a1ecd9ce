"""Where the stories of groups play: whole nodes and the consumers of a group, each on a host, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from streamlog.client import AsyncAdmin, AsyncConsumer, AsyncProducer
from streamlog.errors import ClientClosedError
from streamlog.groups.placement import partition_of
from streamlog.model import BrokerId, TopicPartition
from streamlog.ports import Ports
from tests.node.calls import leader_of
from tests.node.kit import Nodes, run_story

OFFSETS = "__consumer_offsets"


class Reader:
    """A program that reads as a member of a group, and what it saw. `crash` is kill -9."""

    def __init__(self, stage: GroupStage, name: str, **settings: Any) -> None:
        self.stage = stage
        self.name = name
        self.settings = settings
        self.got: list[tuple[TopicPartition, int]] = []
        self.owned: set[TopicPartition] = set()
        self.calls: list[tuple[str, list[TopicPartition]]] = []
        self.error: BaseException | None = None
        self.consumer: AsyncConsumer
        self.host = stage.nodes.world.host(name)
        self.handling_s = 0.0  # each record's
        self.too_slow = False  # it is removed from the group, and learns that at its next poll

    def start(self, topics: Iterable[str] = ("t",), *, pattern: str | None = None) -> Reader:
        self.ports = self.host.boot()
        self.task = self.host.spawn(self._run(list(topics), pattern))
        return self

    async def _run(self, topics: list[str], pattern: str | None) -> None:
        self.consumer = self.stage.consumer(self.ports, **self.settings)
        with suppress(ClientClosedError):  # by `close`
            await self._read(topics, pattern)

    async def _read(self, topics: list[str], pattern: str | None) -> None:
        async with self.consumer:
            self.consumer.subscribe(
                topics, pattern=pattern, on_assigned=self._assigned, on_revoked=self._revoked, on_lost=self._lost
            )
            async for record in self.consumer:
                self.got.append((TopicPartition(record.topic, record.partition), int(record.offset)))  # type: ignore[arg-type]  # an index is an index
                if self.handling_s:
                    await asyncio.sleep(self.handling_s)

    def _assigned(self, partitions: Any) -> None:
        self.calls.append(("assigned", partitions))
        self.stage.claim(self, partitions)
        self.owned.update(partitions)

    async def _revoked(self, partitions: Any) -> None:
        await asyncio.sleep(0)  # a coroutine function is as good as a plain one
        self.calls.append(("revoked", partitions))
        self.owned.difference_update(partitions)

    def _lost(self, partitions: Any) -> None:
        self.calls.append(("lost", partitions))
        self.owned.difference_update(partitions)

    async def close(self) -> None:
        """As a program that ends in good order."""
        await self.host.spawn(self.consumer.close())

    def crash(self) -> None:
        self.host.crash()
        self.owned.clear()


class GroupStage:
    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.readers: list[Reader] = []
        self.client = nodes.world.host("client")
        self.ports = self.client.boot()
        self.written = 0
        self.lenient = False  # faults remove members, which learn it later: only their commits are refused

    @property
    def bootstrap(self) -> str:
        return ",".join(f"n{number}:9092" for number in range(1, self.nodes.voters + 1))

    def consumer(self, ports: Ports, **settings: Any) -> AsyncConsumer:
        values = {"group_id": "g", "auto_offset_reset": "earliest", "retry_backoff_max_ms": 300, **settings}
        return AsyncConsumer(ports=ports, bootstrap_servers=self.bootstrap, **values)

    def reader(self, name: str, **settings: Any) -> Reader:
        self.readers.append(Reader(self, name, **settings))
        return self.readers[-1]

    def claim(self, claimer: Reader, partitions: Iterable[TopicPartition]) -> None:
        """I15, as the programs see it: a partition that is assigned has no other owner."""
        group = claimer.settings.get("group_id")
        for other in self.readers:
            rival = other is not claimer and other.settings.get("group_id") == group
            if rival and not other.too_slow and not self.lenient:
                assert not other.owned & set(partitions), (claimer.name, other.name, other.owned, partitions)

    async def create(self, topic: str, partitions: int) -> None:
        async def work() -> None:
            async with AsyncAdmin(ports=self.ports, bootstrap_servers=self.bootstrap) as admin:
                await admin.create_topic(topic, partitions)

        await self.client.spawn(work())

    async def delete(self, topic: str) -> None:
        async def work() -> None:
            async with AsyncAdmin(ports=self.ports, bootstrap_servers=self.bootstrap) as admin:
                await admin.delete_topic(topic)

        await self.client.spawn(work())

    async def write(self, count: int, partitions: int = 2, topic: str = "t") -> None:
        """So many to each partition, acknowledged."""

        async def work() -> None:
            async with AsyncProducer(ports=self.ports, bootstrap_servers=self.bootstrap) as producer:
                sent = [
                    producer.send(topic, b"%d" % number, partition=partition)
                    for number in range(count)
                    for partition in range(partitions)
                ]
                for one in sent:
                    await one

        await self.client.spawn(work())
        self.written += count

    async def committed(self, partitions: int = 2, group: str = "g", topic: str = "t") -> list[int | None]:
        async def work() -> list[int | None]:
            async with self.consumer(self.ports, group_id=group) as consumer:
                found = await consumer.committed([(topic, number) for number in range(partitions)])
                return [None if at is None else at.offset for at in found.values()]

        return await self.client.spawn(work())

    async def shared(self, *readers: Reader, partitions: int = 2, within_s: float = 30.0) -> float:
        """Until these own all partitions; the seconds that it took."""
        begin = self.nodes.world.loop.now
        await self.nodes.until(
            lambda: sum(len(one.owned) for one in readers) == partitions and _fair(readers, partitions), within_s
        )
        return self.nodes.world.loop.now - begin

    async def read(self, *readers: Reader, partitions: int = 2, within_s: float = 30.0) -> None:
        """Until all that was written has been read by one of these or another."""
        wanted = partitions * self.written
        await self.nodes.until(lambda: len({at for one in readers for at in one.got}) == wanted, within_s)

    def coordinator(self, group: str = "g") -> BrokerId:
        return leader_of(self.nodes.alive()[0].view, OFFSETS, partition_of(group, 50))


def _fair(readers: Iterable[Reader], partitions: int) -> bool:
    sizes = [len(one.owned) for one in readers]
    return max(sizes) - min(sizes) <= 1


def perform(
    story: Callable[[GroupStage], Awaitable[None]],
    *,
    nodes: int = 1,
    partitions: int = 2,
    seeds: int = 1,
    first_seed: int = 0,
) -> None:
    """With topic `t`."""

    async def prepared(kit: Nodes) -> None:
        kit.start()
        await kit.ready()
        stage = GroupStage(kit)
        await stage.create("t", partitions)
        await story(stage)
        for reader in stage.readers:
            reader.host.crash()

    for seed in range(first_seed, first_seed + seeds):
        run_story(prepared, voters=nodes, seed=seed)
