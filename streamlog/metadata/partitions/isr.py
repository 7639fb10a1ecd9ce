"""ISR changes proposed by partition leaders (AlterPartition, KIP-497 and KIP-903), and replicas whose disk failed.

The leader knows which replicas keep up; the controller knows which nodes are active and their registrations. So the
leader proposes the complete new ISR, with each member's broker epoch as seen in its fetches, and the controller refuses
a proposal of a former leader, for an older state of the partition, or with a member that may not be in sync. SEMANTICS
3 names the errors.

Each partition of a request has its own result; a refused one does not affect the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from streamlog.errors import (
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    NewLeaderElectedError,
    NotControllerError,
    StreamlogError,
)
from streamlog.metadata.configs.rules import Rulebook
from streamlog.metadata.decision import BATCH_RECORDS, ControllerContext, MetadataDecision, Then
from streamlog.metadata.image.delta import changed
from streamlog.metadata.image.image import MetadataImage, require_partition
from streamlog.metadata.image.roles import PartitionKey
from streamlog.metadata.partitions.election import Occasion, difference, revise, revised
from streamlog.metadata.records import Partition, PartitionChangeRecord
from streamlog.model import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, PartitionId, TopicId

# One request makes one command.
PARTITIONS_PER_REQUEST_MAX: Final = BATCH_RECORDS


class IsrMember(Struct, frozen=True, kw_only=True):
    broker_id: BrokerId
    broker_epoch: BrokerEpoch  # as seen by the leader in its fetches


class IsrProposal(Struct, frozen=True, kw_only=True):
    topic_id: TopicId
    partition_id: PartitionId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: tuple[IsrMember, ...]


class AlterPartition(Struct, frozen=True, kw_only=True):
    """From the leader of all these partitions."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    proposals: tuple[IsrProposal, ...]


class IsrResult(Struct, frozen=True, kw_only=True):
    topic_id: TopicId
    partition_id: PartitionId
    partition: Partition | None = None  # its state once the records are committed; None: see `error`
    error: StreamlogError | None = None


class ReportOfflineReplicas(Struct, frozen=True, kw_only=True):
    """A log directory of the node has failed, and these replicas with it."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    partitions: tuple[PartitionKey, ...]


def alter_partition(
    command: AlterPartition, image: MetadataImage, context: ControllerContext
) -> MetadataDecision[tuple[IsrResult, ...]]:
    """StaleBrokerEpochError, BrokerIdNotRegisteredError, InvalidRequestError for the whole request."""
    image.require_broker(command.broker_id, command.broker_epoch)
    _check_distinct([(proposal.topic_id, proposal.partition_id) for proposal in command.proposals])
    rulebook = Rulebook(image, context.settings)
    records: list[PartitionChangeRecord] = []
    results = []
    for proposal in command.proposals:
        try:
            result, record = _alter(command.broker_id, proposal, image, rulebook)
        except StreamlogError as error:
            result, record = _refused(proposal, error), None
        results.append(result)
        records += [record] if record is not None else []
    # The end of a reassignment may let another replica of a drained node, or of a growing topic, move.
    completed = any(record.adding == () or record.removing == () for record in records)
    return MetadataDecision(
        response=tuple(results), records=tuple(records), then=Then.SETTLE if completed else Then.NOTHING
    )


def report_offline_replicas(
    command: ReportOfflineReplicas, image: MetadataImage, context: ControllerContext
) -> MetadataDecision[None]:
    """The replicas leave ISR and ELR, and lead nothing, until the node registers again. Deleted partitions, and those
    without a replica on the node, are ignored. StaleBrokerEpochError, InvalidRequestError.
    """
    image.require_broker(command.broker_id, command.broker_epoch)
    _check_distinct(command.partitions)
    rulebook = Rulebook(image, context.settings)
    records = []
    for topic_id, partition_id in command.partitions:
        topic = image.topics.get(topic_id)
        partition = topic.partitions.get(partition_id) if topic is not None else None
        if topic is None or partition is None or command.broker_id not in partition.replicas:
            continue
        offline = tuple(b for b in partition.replicas if b in partition.offline or b == command.broker_id)
        wanted = replace(partition, offline=offline)
        record = difference((topic_id, partition_id), partition, revised(partition, wanted, rulebook.of_topic(topic)))
        records += [record] if record is not None else []
    # A reassignment that waited for these replicas may be completed.
    return MetadataDecision(response=None, records=tuple(records), then=Then.SETTLE if records else Then.NOTHING)


def _alter(
    broker_id: BrokerId, proposal: IsrProposal, image: MetadataImage, rulebook: Rulebook
) -> tuple[IsrResult, PartitionChangeRecord | None]:
    topic = image.require_topic_id(proposal.topic_id)
    partition = require_partition(topic, proposal.partition_id)
    _check_epochs(broker_id, proposal, partition)
    _check_members(proposal, partition, image)
    isr = tuple(member.broker_id for member in proposal.isr)
    key = (proposal.topic_id, proposal.partition_id)
    record = revise(key, partition, rulebook.of_topic(topic), Occasion(isr=isr))
    after = partition if record is None else changed(partition, record)
    result = IsrResult(topic_id=proposal.topic_id, partition_id=proposal.partition_id, partition=after)
    if after.leader != broker_id:
        error = NewLeaderElectedError(
            "the ISR change completed a reassignment that gave the partition another leader",
            leader=after.leader,
            leader_epoch=after.leader_epoch,
        )
        result = replace(result, error=error)
    return result, record


def _check_epochs(broker_id: BrokerId, proposal: IsrProposal, partition: Partition) -> None:
    if proposal.leader_epoch > partition.leader_epoch or proposal.partition_epoch > partition.partition_epoch:
        # The leader has seen a newer state than this image, so this controller lags behind.
        raise NotControllerError("this controller is behind: the leader has a newer state of the partition")
    if proposal.leader_epoch < partition.leader_epoch:
        raise FencedLeaderEpochError(
            f"stale leader epoch {proposal.leader_epoch}; current is {partition.leader_epoch}",
            field="leader_epoch",
            limit=partition.leader_epoch,
        )
    if broker_id != partition.leader:
        raise InvalidRequestError(f"node {broker_id} does not lead the partition", field="broker_id")
    if proposal.partition_epoch < partition.partition_epoch:
        raise InvalidUpdateVersionError(
            f"stale partition epoch {proposal.partition_epoch}; current is {partition.partition_epoch}",
            field="partition_epoch",
            limit=partition.partition_epoch,
        )


def _check_members(proposal: IsrProposal, partition: Partition, image: MetadataImage) -> None:
    members = [member.broker_id for member in proposal.isr]
    if len(frozenset(members)) != len(members) or any(b not in partition.replicas for b in members):
        raise InvalidRequestError(f"ISR {members} is not a subset of the replicas {partition.replicas}", field="isr")
    if partition.leader not in members:
        raise InvalidRequestError(f"ISR {members} lacks the leader {partition.leader}", field="isr")
    for member in proposal.isr:
        broker = image.brokers.get(member.broker_id)
        if broker is None or not broker.active or member.broker_id in partition.offline:
            raise IneligibleReplicaError(
                f"replica {member.broker_id} cannot be in sync: it is fenced, stopping, or its disk failed", field="isr"
            )
        if member.broker_epoch != broker.epoch:
            raise IneligibleReplicaError(
                f"replica {member.broker_id} has registered again since the leader saw broker epoch "
                f"{member.broker_epoch}",
                field="isr",
                limit=broker.epoch,
            )


def _check_distinct(partitions: Sequence[PartitionKey]) -> None:
    if len(partitions) > PARTITIONS_PER_REQUEST_MAX:
        raise InvalidRequestError(
            f"{len(partitions)} partitions in one request; the limit is {PARTITIONS_PER_REQUEST_MAX}",
            field="partitions",
            limit=PARTITIONS_PER_REQUEST_MAX,
        )
    if len(frozenset(partitions)) != len(partitions):
        raise InvalidRequestError("a partition is named twice in one request", field="partitions")


def _refused(proposal: IsrProposal, error: StreamlogError) -> IsrResult:
    return IsrResult(topic_id=proposal.topic_id, partition_id=proposal.partition_id, error=error)
