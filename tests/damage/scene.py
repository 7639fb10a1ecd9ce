"""A cluster with something in it: made once, stopped, and its disks taken; then looked at after damage.

What is in it: a topic of several segments and two leader epochs, one with transactions, committed and aborted. Its
records are known, so any difference is found when they are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from msgspec.structs import replace

from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.consumer.async_consumer import AsyncConsumer
from streamlog.client.consumer.start_positions import EARLIEST
from streamlog.client.producer.async_producer import AsyncProducer
from streamlog.errors import DamagedFileError, StreamlogError
from streamlog.metadata.image.image import MetadataImage
from streamlog.node import Node
from streamlog.ports import Ports
from streamlog.records import iter_batch, scan_headers
from streamlog.sim import SimLoop
from streamlog.sim.faults import Hardware
from streamlog.sim.world import Host, World
from streamlog.storage.log.log import Log
from tests.cluster.nodes import NOT_YET, bootstrap, load, make_admin, make_node
from tests.cluster.plan import base_plan
from tests.damage.disks import Files, files_of

NODES: Final = ("n1", "n2", "n3")
TOPICS: Final = ("plain", "tx")
SETTINGS: Final = {
    "log.roll.ms": "400",
    "log.index.size.max.bytes": "4096",
    "log.index.interval.bytes": "600",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
PLAN: Final = replace(
    base_plan(1), nodes=NODES, voters=3, hardware=Hardware.healthy(NODES), settings=SETTINGS, tunes=False, moves=False
)
RECORDS: Final = 60
READY_S: Final = 40.0
READ_S: Final = 60.0
SILENT_POLLS_MAX: Final = 8
UNFINISHED: Final = f"not read to the end within {READ_S:.0f} s"
"""The harness's own error: it gives no reason, so what the nodes say must."""


class Stage:
    """Three machines and a client's, in one simulation."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.world = World(loop, "damage")
        self.events: list[tuple[str, str, str]] = []  # node, event, fields
        self.crashes: list[str] = []
        self.world.listeners.append(self._on_event)
        self.world.on_crash = lambda host, error: self.crashes.append(f"{host.name}: {error!r}")
        self.ports = self.world.host("c0").boot()

    def _on_event(self, host: Host, event: str, fields: dict[str, object]) -> None:
        self.events.append((host.name, event, " ".join(f"{k}={v}" for k, v in sorted(fields.items()))))

    def host(self, name: str) -> Host:
        return self.world.host(name)

    def start(self, *names: str) -> None:
        for name in names:
            self.host(name).start(partial(make_node, load(PLAN, name)))

    def node(self, name: str) -> Node | None:
        host = self.host(name)
        return host.node if host.alive and isinstance(host.node, Node) else None

    def ended(self, name: str) -> BaseException | None:
        """What the node has ended by; None: it runs."""
        task = self.host(name).task
        return task.exception() if task is not None and task.done() and not task.cancelled() else None

    def image(self) -> MetadataImage | None:
        images = [node.view.image for name in NODES if (node := self.node(name)) is not None and not self.ended(name)]
        return max(images, key=lambda image: image.index, default=None)

    async def on_client(self, work: Awaitable[object]) -> None:
        async def doing() -> None:
            await work

        await self.host("c0").spawn(doing())

    async def until(self, condition: Callable[[], bool], within_s: float) -> bool:
        deadline = self.loop.now + within_s
        while not condition():
            if self.loop.now > deadline:
                return False
            await asyncio.sleep(0.05)
        return True

    def settled(self, *, among: int) -> bool:
        """All partitions are led, with so many in sync."""
        image = self.image()
        if image is None:
            return False
        topics = [image.topic_named(name) for name in TOPICS]
        return all(
            topic is not None and all(p.leader >= 0 and len(p.isr) >= among for p in topic.partitions)
            for topic in topics
        )

    def logs(self, name: str) -> list[Log]:
        node = self.node(name)
        if node is None or node._plane is None or self.ended(name) is not None:
            return []
        return [log for d in node._plane.replicas._directories for log in d.logs.values()]


async def fill(stage: Stage) -> None:
    admin = await make_admin(PLAN, stage.ports)
    for topic in TOPICS:
        await _made(admin, topic)
    await admin.close()
    for half in range(2):
        await _send(stage.ports, half)
        if not half:  # another leader epoch
            image = stage.image()
            assert image is not None
            leader = f"n{image.require_topic('plain').partitions[0].leader}"
            stage.host(leader).crash()
            await stage.until(lambda: stage.settled(among=2), READY_S)
            stage.start(leader)
            await stage.until(lambda: stage.settled(among=3), READY_S)


async def _made(admin: AsyncAdmin, topic: str) -> None:
    while True:
        try:
            await admin.create_topic(topic, 1, 3, configs={"min.insync.replicas": "2"})
        except NOT_YET:
            await asyncio.sleep(0.1)
        else:
            return


async def _send(ports: Ports, half: int) -> None:
    producer = AsyncProducer({"bootstrap.servers": bootstrap(PLAN), "linger.ms": "0"}, ports=ports)
    await producer.start()
    for i in range(RECORDS):
        await producer.send("plain", b"plain %d %d " % (half, i) + bytes(200), partition=0)
        await asyncio.sleep(0.02)  # segments are rolled by time
    await producer.close()
    transactional = AsyncProducer(
        {"bootstrap.servers": bootstrap(PLAN), "transactional.id": f"t{half}", "linger.ms": "0"}, ports=ports
    )
    await transactional.start()
    await transactional.init_transactions()
    for number in range(6):
        await asyncio.sleep(0.1)
        await transactional.begin_transaction()
        for i in range(4):
            await transactional.send("tx", b"tx %d %d %d " % (half, number, i) + bytes(200), partition=0)
        if number % 2:
            await transactional.abort_transaction()
        else:
            await transactional.commit_transaction()
    await transactional.close()


async def read(stage: Stage, topic: str) -> tuple[dict[int, bytes], list[str]]:
    """All that a reader of committed records gets of partition 0, and the errors on the way: it steps over damage."""
    found: dict[int, bytes] = {}
    errors: list[str] = []
    settings = {"bootstrap.servers": bootstrap(PLAN), "isolation.level": "read_committed"}

    async def reading() -> None:
        consumer = await AsyncConsumer(settings, ports=stage.ports).start()
        try:
            await consumer.assign([(topic, 0)], start=EARLIEST)
            end = next(iter((await consumer.end_offsets([(topic, 0)])).values()))
            at = silent = 0
            while at < end and silent < SILENT_POLLS_MAX:
                try:
                    records = await consumer.poll(timeout_s=1.0)
                except DamagedFileError as error:
                    errors.append(str(error))
                    at = int(str(error).rsplit("continues at offset ", 1)[1])
                    consumer.seek((topic, 0), at)
                    continue
                silent = 0 if records else silent + 1
                found.update({record.offset: record.value or b"" for record in records})
                at = records[-1].offset + 1 if records else max(at, await consumer.position((topic, 0)))
        finally:
            await consumer.close()

    async def bounded() -> None:
        try:
            async with asyncio.timeout(READ_S):
                await reading()
        except StreamlogError as error:
            errors.append(f"{type(error).__name__}: {error}")
        except TimeoutError:
            errors.append(UNFINISHED)

    await stage.on_client(bounded())
    return found, errors


def stored(log: Log) -> dict[int, tuple[int, bytes]]:
    """What stands in a replica, by its files: offset -> epoch, value. CorruptMessageError."""
    found: dict[int, tuple[int, bytes]] = {}
    for segment in log.segments:
        data = segment.file.pread(segment.size_bytes, 0)
        for position, header in scan_headers(data, 0, len(data)):
            found.update({r.offset: (header.leader_epoch, r.value or b"") for r in iter_batch(data, position)})
    return found


def disks(stage: Stage) -> dict[str, Files]:
    return {name: files_of(stage.host(name).disk) for name in NODES}
