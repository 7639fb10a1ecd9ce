"""One node's data plane on a simulated machine. The quorum is a list of records, the other nodes are the test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar, cast

from msgspec import Struct, field

from streamlog.broker.append.admission import QueuedBytes
from streamlog.broker.following.follower_replica import FollowerReplica
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.broker.table.replicas import Replicas
from streamlog.errors import StreamlogError
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.metadata.convert import encode_batch
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.image.roles import PartitionKey
from streamlog.metadata.records import (
    EPOCH_FROM_INDEX,
    Broker,
    BrokerChangeRecord,
    BrokerRecord,
    ConfigRecord,
    ConfigTarget,
    ConfigTargetType,
    MetadataRecord,
    MetadataVersion,
    MetadataVersionRecord,
    Partition,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from streamlog.metadata.view import MetadataView
from streamlog.model import (
    Acks,
    Appended,
    BrokerEpoch,
    BrokerId,
    IsolationLevel,
    LeaderEpoch,
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    RaftIndex,
    TopicId,
    TopicPartition,
)
from streamlog.ports import Network, Ports
from streamlog.records import decode_batch
from streamlog.replication.isr import ProposedIsr
from streamlog.sim.machine import Machine
from streamlog.storage.directories.directories import LogDirectories
from tests.storage.batches import batch

ME, OTHER, THIRD = BrokerId(1), BrokerId(2), BrokerId(3)
P0 = PartitionId(0)
UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED
T = TypeVar("T")


class FakeLinks(Struct):
    following: list[FollowerReplica] = field(default_factory=list)

    def follow(self, replica: FollowerReplica) -> None:
        self.following.append(replica)

    def unfollow(self, replica: FollowerReplica) -> None:
        self.following.remove(replica)


class FakeIsrChanges(Struct):
    proposals: list[ProposedIsr] = field(default_factory=list)

    def proposed(self, replica: LeaderReplica, proposal: ProposedIsr) -> None:
        self.proposals.append(proposal)


class FakeController(Struct):
    reported: list[PartitionKey] = field(default_factory=list)
    resigned: list[tuple[PartitionKey, LeaderEpoch]] = field(default_factory=list)
    on_resigned: Callable[[], None] = lambda: None  # commits the new leader epoch

    async def report_offline_replicas(self, partitions: Sequence[PartitionKey]) -> None:
        self.reported += partitions

    async def resign_leadership(self, key: PartitionKey, leader_epoch: LeaderEpoch) -> None:
        self.resigned.append((key, leader_epoch))
        self.on_resigned()


class Recorder(Struct):
    """A watcher that records its notifications."""

    replica: LeaderReplica
    events: list[str] = field(default_factory=list)
    appended: bytes = b""
    error: StreamlogError | None = None

    __hash__ = object.__hash__

    def on_appended(self, appended: Appended) -> None:
        self.events.append(f"appended {appended.first_offset}..{appended.next_offset}")
        self.appended += b"".join(bytes(buffer) for buffer in appended.buffers)

    def on_readable(self) -> None:
        self.events.append(f"readable {self.replica.log_start_offset}..{self.replica.high_watermark}")

    def on_ended(self, error: StreamlogError) -> None:
        self.events.append("ended")
        self.error = error


QUEUED = QueuedBytes(1 << 30)


class Opening(Struct):
    """The coordinator of a transaction, as `AppendPipeline` calls it."""

    answer: Callable[[], Awaitable[None]]
    wait_s: float = 5.0

    async def confirm(self, producer_id: ProducerId, producer_epoch: ProducerEpoch, partition: TopicPartition) -> None:
        await self.answer()


def append_to(leader: LeaderReplica, data: bytes, acks: Acks = Acks.LEADER) -> Appended:
    """An append that must not suspend."""
    call = leader.appends.append(data, acks, QUEUED)
    try:
        call.send(None)
    except StopIteration as done:
        appended: Appended = done.value
        return appended
    call.close()
    raise SuspendedError


class SuspendedError(Exception):
    """The call has to wait."""


def topic_id(number: int) -> TopicId:
    return TopicId(bytes(15) + bytes([number]))


class Rig:
    def __init__(self, seed: int | str = 1, *, directories: int = 1) -> None:
        self.machine = Machine(seed)
        self.paths = [f"/data{i}" for i in range(directories)]
        self.commands: list[bytes] = []  # the metadata log
        self.events: list[tuple[str, dict[str, object]]] = []
        self.static: dict[str, str] = {"node.id": str(ME)}
        self.epochs: dict[BrokerId, BrokerEpoch] = {}
        self.commit(MetadataVersionRecord(level=MetadataVersion(1)))
        for broker in (ME, OTHER, THIRD):
            self.commit(BrokerRecord(broker=_broker(broker)))
            self.epochs[broker] = BrokerEpoch(self.index)
            self.fence(broker, fenced=False)

    # -- life

    def start(self) -> None:
        self.machine.run(self._start())

    async def _start(self) -> None:
        machine = self.machine
        self.view = MetadataView()
        self.links, self.isr, self.controller = FakeLinks(), FakeIsrChanges(), FakeController()
        ports = Ports(
            fs=machine.fs,
            network=cast(Network, None),  # no other nodes here
            clock=machine.clock,
            random=machine.random,
            workers=machine.workers,
            probe=self._probe,
        )
        self.directories = await LogDirectories.open(
            machine.fs,
            self.paths,
            clock=machine.clock,
            random=machine.random,
            probe=self._probe,
            node_id=ME,
            cluster_id="cluster",
        )
        self.configs = NodeConfigs(self.static, ME, self.view)
        self.replicas = Replicas(
            ME, self.directories, self.view, self.configs, self.links, self.isr, self.controller, ports
        )
        await self.replicas.open()
        for index, command in enumerate(self.commands, 1):
            self.view.machine.apply(RaftIndex(index), command)  # as in a node: the logs may be open before
        self.task = asyncio.get_running_loop().create_task(self.replicas.run())
        await asyncio.sleep(0)

    def _probe(self, event: str, /, **fields: object) -> None:
        self.events.append((event, fields))

    def stop(self, *, clean: bool = True) -> None:
        self.machine.run(self._stop(clean))

    async def _stop(self, clean: bool) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        assert self.task.cancelled(), self.task.exception()
        await self.replicas.close(BrokerEpoch(7) if clean else None)

    def restart(self) -> None:
        """Orderly."""
        self.stop()
        self.start()

    def crash(self) -> None:
        self.machine.crash()
        self.start()

    def power_cut(self) -> None:
        self.machine.power_cut()
        self.start()

    def rest(self, seconds: float = 0.5) -> None:
        """Let all that is under way come to its end."""
        self.machine.sleep(seconds)

    def do(self, call: Callable[[], T]) -> T:
        """A plain call inside the node's process."""

        async def calling() -> T:
            return call()

        return self.machine.run(calling())

    # -- the metadata

    @property
    def index(self) -> int:
        return len(self.commands)

    def commit(self, *records: MetadataRecord) -> None:
        """One command of the quorum; a node that runs applies it at once."""
        command = encode_batch(records)
        self.commands.append(command)
        if hasattr(self, "view"):
            self.do(lambda: self.view.machine.apply(RaftIndex(self.index), command))

    def create(
        self,
        name: str = "t",
        number: int = 1,
        *,
        leader: BrokerId = ME,
        replicas: tuple[BrokerId, ...] = (ME,),
        isr: tuple[BrokerId, ...] | None = None,
        configs: dict[str, str] | None = None,
    ) -> None:
        partition = Partition(replicas=replicas, isr=replicas if isr is None else isr, leader=leader)
        settings = [
            ConfigRecord(resource=ConfigTarget(ConfigTargetType.TOPIC, name), name=key, value=value)
            for key, value in (configs or {}).items()
        ]
        self.commit(
            TopicRecord(topic_id=topic_id(number), name=name),
            PartitionRecord(topic_id=topic_id(number), partition_id=P0, partition=partition),
            *settings,
        )

    def delete(self, number: int = 1) -> None:
        self.commit(RemoveTopicRecord(topic_id=topic_id(number)))

    def change(self, number: int = 1, **changes: object) -> None:
        self.commit(
            PartitionChangeRecord(topic_id=topic_id(number), partition_id=P0, **changes)  # type: ignore[arg-type]  # test shorthand
        )

    def fence(self, broker: BrokerId, *, fenced: bool = True) -> None:
        self.commit(BrokerChangeRecord(broker_id=broker, broker_epoch=self.epochs[broker], fenced=fenced))

    def configure(self, name: str, value: str, topic: str = "t") -> None:
        self.commit(ConfigRecord(resource=ConfigTarget(ConfigTargetType.TOPIC, topic), name=name, value=value))

    # -- the replicas

    def leader(self, name: str = "t", number: int | None = None) -> LeaderReplica:
        return self.replicas.leader(name, None if number is None else topic_id(number), P0)

    @property
    def follower(self) -> FollowerReplica:
        (found,) = self.links.following
        return found

    def append(self, *values: bytes, acks: Acks = Acks.LEADER, name: str = "t") -> Appended:
        return self.do(lambda: append_to(self.leader(name), batch(values), acks))

    def produce(self, *values: bytes, name: str = "t") -> Appended:
        """acks=all, to its acknowledgement."""

        async def producing() -> Appended:
            leader = self.leader(name)
            appended = append_to(leader, batch(values), Acks.ALL)
            await leader.wait_for(appended)
            return appended

        return self.machine.run(producing())

    def read(self, offset: int = 0, name: str = "t") -> bytes:
        return self.machine.run(self.leader(name).read(Offset(offset), 1 << 20, UNCOMMITTED))

    def names(self, directory: int = 0) -> list[str]:
        """Of the partitions' directories, without the unique part of those that are scheduled for deletion."""
        found = self.machine.fs.list(self.paths[directory])
        return sorted(
            name.partition(".")[0] + ("-" + name.rpartition("-")[2] if "." in name else "")
            for name in found
            if self.machine.fs.is_dir(f"{self.paths[directory]}/{name}")
        )

    def probed(self, event: str) -> list[dict[str, object]]:
        return [fields for name, fields in self.events if name == event]


def _broker(broker: BrokerId) -> Broker:
    return Broker(
        broker_id=broker,
        epoch=EPOCH_FROM_INDEX,
        incarnation_id=bytes(16),
        host=f"node{broker}",
        port=9092,
        metadata_version_min=MetadataVersion(1),
        metadata_version_max=METADATA_VERSION_MAX,
    )


def values_in(batch: bytes) -> list[bytes | None]:
    return [record.value for record in decode_batch(batch)]
