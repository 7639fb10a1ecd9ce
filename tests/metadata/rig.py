"""The active controller's shell, without a quorum: commands are decided, their records go through their bytes and are
applied, timers are kept. What a node's wiring does, and every image that comes of it is checked.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamlog.config import Operation, Scope, changed_value
from streamlog.errors import InvalidConfigError
from streamlog.metadata.brokers.liveness import BrokerHeartbeat, FenceBroker, HeartbeatResponse
from streamlog.metadata.brokers.registration import RegisterBroker
from streamlog.metadata.cluster import Bootstrap
from streamlog.metadata.controller import Command, command_for, decide
from streamlog.metadata.convert import encode_batch
from streamlog.metadata.decision import ControllerContext, MetadataDecision, Then, Timer
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.image.image import MetadataImage, Topic
from streamlog.metadata.image.state_machine import MetadataStateMachine
from streamlog.metadata.partitions.isr import AlterPartition, IsrMember, IsrProposal, IsrResult
from streamlog.metadata.partitions.recovery import PartitionAnswers, RecoverPartitions, to_query
from streamlog.metadata.partitions.replica_states import ReplicaState
from streamlog.metadata.partitions.settle import Settle
from streamlog.metadata.records import (
    EPOCH_FROM_INDEX,
    Broker,
    MetadataRecord,
    MetadataVersion,
    Partition,
)
from streamlog.metadata.settings import ControllerSettings
from streamlog.metadata.topics.creation import CreatableTopic, CreateTopics, TopicResult
from streamlog.model import BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionId, RaftIndex, TopicId
from tests.metadata.invariants import check_image, check_step

CLUSTER = "cluster-of-tests"


class TestConfigs:
    """A few configs, enough to be right and wrong about."""

    __test__ = False

    def changed_value(self, scope: Scope, name: str, operation: Operation, given: str, old: str | None) -> str | None:
        if operation is not Operation.SET:
            return changed_value(scope, name, operation, given, old)
        if name == "min.insync.replicas":
            if not given.isdecimal() or int(given) < 1:
                raise InvalidConfigError(f"{name}={given!r}: a number from 1 on", field=name, limit=1)
        elif name == "unclean.leader.election.enable":
            if given not in ("true", "false"):
                raise InvalidConfigError(f"{name}={given!r}: true or false", field=name)
        elif name == "unclean.recovery.strategy":
            if given not in ("none", "balanced", "aggressive"):
                raise InvalidConfigError(f"{name}={given!r}: none, balanced or aggressive", field=name)
        elif name not in ("cleanup.policy", "compression.type", "retention.ms", "segment.bytes"):
            raise InvalidConfigError(f"unknown config {name!r}", field=name)
        return given

    def check_together(self, scope: Scope, values: Mapping[str, str]) -> None:
        if values.get("retention.ms") == "1" and values.get("segment.bytes") == "1":
            raise InvalidConfigError("not both", field="retention.ms")


@dataclass
class Rig:
    settings: ControllerSettings = field(default_factory=ControllerSettings)
    seed: int = 0
    machine: MetadataStateMachine = field(default_factory=MetadataStateMachine)
    log: list[tuple[RaftIndex, bytes]] = field(default_factory=list)  # every command of the quorum
    timers: dict[Timer, int] = field(default_factory=dict)  # timer -> after_ms
    index: int = 0
    starts: int = 0  # makes incarnation ids
    watch: Callable[[MetadataImage, MetadataImage], None] | None = None  # called for every command: before, after

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.do(Bootstrap(cluster_id=CLUSTER))

    @property
    def image(self) -> MetadataImage:
        return self.machine.image

    @property
    def context(self) -> ControllerContext:
        sessions = frozenset(timer.broker_id for timer in self.timers if hasattr(timer, "broker_id"))
        return ControllerContext(settings=self.settings, configs=TestConfigs(), random=self.random, sessions=sessions)

    def decide(self, command: Command) -> MetadataDecision[Any]:
        return decide(command, self.image, self.context)

    def do(self, command: Command) -> Any:
        """Decide, commit, answer, as the shell does."""
        for _ in range(10_000):
            decision = self.decide(command)
            self.commit(decision.records)
            for change in decision.timers:
                if change.after_ms is None:
                    self.timers.pop(change.timer, None)
                else:
                    self.timers[change.timer] = change.after_ms
            if decision.then is Then.NOTHING:
                check_image(self.image, self.settings)
                return decision.response
            if decision.then is Then.SETTLE:
                self.do(Settle())
                return decision.response
        raise AssertionError(f"{command} is never decided")

    def commit(self, records: Sequence[MetadataRecord]) -> None:
        if not records:
            return
        command = encode_batch(records)
        self.index += 3  # the quorum has entries of its own in between
        self.log.append((RaftIndex(self.index), command))
        before = self.image
        self.machine.apply(RaftIndex(self.index), command)
        check_step(before, self.image)
        if self.watch is not None:
            self.watch(before, self.image)

    def fire(self, timer: Timer) -> Any:
        del self.timers[timer]
        return self.do(command_for(timer))

    # --- nodes

    def register(
        self, broker_id: int, *, rack: str = "", clean: bool = True, directories: Sequence[bytes] = ()
    ) -> Broker:
        """A new start of the node's process; `clean`: after a clean shutdown, if it was there before."""
        known = self.image.brokers.get(BrokerId(broker_id))
        self.starts += 1
        self.do(
            RegisterBroker(
                cluster_id=CLUSTER,
                broker_id=BrokerId(broker_id),
                incarnation_id=self.starts.to_bytes(16, "big"),
                host=f"node{broker_id}",
                port=9092,
                rack=rack,
                metadata_version_min=MetadataVersion(1),
                metadata_version_max=METADATA_VERSION_MAX,
                directory_ids=tuple(directories),
                previous_broker_epoch=known.epoch if known is not None and clean else EPOCH_FROM_INDEX,
            )
        )
        return self.broker(broker_id)

    def start(self, broker_id: int, **how: Any) -> Broker:
        """Register, catch up, serve."""
        self.register(broker_id, **how)
        self.heartbeat(broker_id)
        return self.broker(broker_id)

    def start_all(self, *broker_ids: int, racks: Mapping[int, str] | None = None) -> None:
        for broker_id in broker_ids:
            self.start(broker_id, rack=(racks or {}).get(broker_id, ""))

    def heartbeat(self, broker_id: int, **what: Any) -> HeartbeatResponse:
        response: HeartbeatResponse = self.do(
            BrokerHeartbeat(
                broker_id=BrokerId(broker_id),
                broker_epoch=self.epoch(broker_id),
                applied_index=what.pop("applied_index", self.image.index),
                **what,
            )
        )
        return response

    def fence(self, broker_id: int) -> None:
        self.do(FenceBroker(broker_id=BrokerId(broker_id), broker_epoch=self.epoch(broker_id)))

    def broker(self, broker_id: int) -> Broker:
        return self.image.brokers[BrokerId(broker_id)]

    def epoch(self, broker_id: int) -> BrokerEpoch:
        return self.broker(broker_id).epoch

    # --- topics and partitions

    def create(self, name: str = "t", partitions: int = 1, replication_factor: int | None = None, **how: Any) -> Topic:
        assignments = how.pop("assignments", ())
        numbers: dict[str, Any] = (
            {} if assignments else {"partitions": partitions, "replication_factor": replication_factor}
        )
        [result] = self.do(CreateTopics(topics=(CreatableTopic(name=name, assignments=assignments, **numbers, **how),)))
        assert isinstance(result, TopicResult)
        if result.error is not None:
            raise result.error
        return self.topic(name)

    def topic(self, name: str = "t") -> Topic:
        return self.image.require_topic(name)

    def partition(self, name: str = "t", partition_id: int = 0) -> Partition:
        return self.topic(name).partitions[partition_id]

    def key(self, name: str = "t", partition_id: int = 0) -> tuple[TopicId, PartitionId]:
        return self.topic(name).topic_id, PartitionId(partition_id)

    def proposal(self, isr: Sequence[int], name: str = "t", partition_id: int = 0, **what: Any) -> IsrProposal:
        partition = self.partition(name, partition_id)
        return IsrProposal(
            topic_id=self.topic(name).topic_id,
            partition_id=PartitionId(partition_id),
            leader_epoch=what.get("leader_epoch", partition.leader_epoch),
            partition_epoch=what.get("partition_epoch", partition.partition_epoch),
            isr=tuple(
                IsrMember(broker_id=BrokerId(b), broker_epoch=what.get("epochs", {}).get(b) or self.epoch(b))
                for b in isr
            ),
        )

    def alter_isr(self, isr: Sequence[int], name: str = "t", partition_id: int = 0, **what: Any) -> IsrResult:
        """The partition's leader proposes this ISR."""
        leader = what.pop("leader", self.partition(name, partition_id).leader)
        command = AlterPartition(
            broker_id=leader,
            broker_epoch=self.epoch(leader),
            proposals=(self.proposal(isr, name, partition_id, **what),),
        )
        [result] = self.do(command)
        assert isinstance(result, IsrResult)
        return result

    # --- recovery

    def answers(
        self, logs: Mapping[int, tuple[int, int]], name: str = "t", partition_id: int = 0, **what: Any
    ) -> PartitionAnswers:
        """What these nodes say: last epoch and log end of each."""
        key = self.key(name, partition_id)
        states = tuple(
            replica_state(node, epoch, end, broker_epoch=self.epoch(node), **what)
            for node, (epoch, end) in logs.items()
        )
        leader_epoch = self.partition(name, partition_id).leader_epoch
        return PartitionAnswers(key=key, leader_epoch=leader_epoch, states=states)

    def equal_answers(self) -> tuple[PartitionAnswers, ...]:
        """All running replicas of leaderless partitions have equal length."""
        return tuple(
            PartitionAnswers(
                key=key,
                leader_epoch=self.image.partition(key).leader_epoch,
                states=tuple(replica_state(node, 0, 10, broker_epoch=self.epoch(node)) for node in nodes),
            )
            for key, nodes in to_query(self.image)
        )

    def recover(self, logs: Mapping[int, tuple[int, int]], name: str = "t", partition_id: int = 0, **what: Any) -> None:
        self.do(RecoverPartitions(answers=(self.answers(logs, name, partition_id, **what),)))


def replica_state(
    node: int,
    epoch: int,
    end: int,
    *,
    start: int = 0,
    broker_epoch: int = 1,
    durable: bool = True,
    damaged: bool = False,
    incomplete: bool = False,
) -> ReplicaState:
    return ReplicaState(
        broker_id=BrokerId(node),
        broker_epoch=BrokerEpoch(broker_epoch),
        log_start=Offset(start),
        log_end=Offset(end),
        last_epoch=LeaderEpoch(epoch),
        durable=durable and not incomplete,
        damaged=damaged,
        incomplete=incomplete,
    )


def broker(broker_id: int, rack: str = "") -> Broker:
    """A live node, where only its place matters."""
    return Broker(
        broker_id=BrokerId(broker_id),
        epoch=BrokerEpoch(1),
        incarnation_id=bytes(16),
        host="host",
        port=1,
        rack=rack,
        metadata_version_min=MetadataVersion(1),
        metadata_version_max=METADATA_VERSION_MAX,
        fenced=False,
    )
