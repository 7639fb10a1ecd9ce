"""What nodes ask of the active controller: streamlog/internal/v1/controller.proto to the controller's commands and
back. Both ends are nodes, so both directions of each message are here.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamlog.api.convert import view
from streamlog.api.convert.fields import at_least, each, partition_id, topic_id, without_controls
from streamlog.api.errors import from_message, to_message
from streamlog.api.pb import common_pb2
from streamlog.api.pb import controller_pb2 as pb
from streamlog.errors import InvalidRequestError
from streamlog.metadata.brokers.liveness import BrokerHeartbeat, ClockAnswer, ClockReport, HeartbeatResponse
from streamlog.metadata.brokers.registration import DIRECTORIES_MAX, LISTENERS_MAX, RegisterBroker
from streamlog.metadata.cluster import ProducerIdBlock
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.image.roles import PartitionKey
from streamlog.metadata.partitions.isr import (
    PARTITIONS_PER_REQUEST_MAX,
    AlterPartition,
    IsrMember,
    IsrProposal,
    IsrResult,
    ReportOfflineReplicas,
)
from streamlog.metadata.partitions.leaders import ResignLeadership
from streamlog.metadata.records import BrokerListener, MetadataVersion, Partition
from streamlog.model import (
    INT64_MAX,
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    ProducerId,
    RaftIndex,
)

CLOCK_MS_MAX = 2**53
"""Of a time, or of the difference of two: larger values are not from a clock."""
MEMBERS_MAX = 1_000
"""Of one proposed ISR; more than a partition may have replicas."""


def to_register(command: RegisterBroker) -> pb.RegisterRequest:
    return pb.RegisterRequest(
        cluster_id=command.cluster_id,
        node_id=command.broker_id,
        incarnation_id=command.incarnation_id,
        host=command.host,
        port=command.port,
        rack=command.rack,
        metadata_version_min=command.metadata_version_min,
        metadata_version_max=command.metadata_version_max,
        directory_ids=command.directory_ids,
        previous_broker_epoch=command.previous_broker_epoch,
        listeners=[pb.RegisteredListener(name=one.name, host=one.host, port=one.port) for one in command.listeners],
    )


def register(message: pb.RegisterRequest) -> RegisterBroker:
    """The controller checks the values. InvalidRequestError."""
    return RegisterBroker(
        cluster_id=message.cluster_id,
        broker_id=BrokerId(message.node_id),
        incarnation_id=message.incarnation_id,
        host=without_controls(message.host, "host"),
        port=message.port,
        rack=without_controls(message.rack, "rack"),
        metadata_version_min=MetadataVersion(message.metadata_version_min),
        metadata_version_max=MetadataVersion(message.metadata_version_max),
        directory_ids=each(message.directory_ids, "directory_ids", bytes, count_max=DIRECTORIES_MAX),
        previous_broker_epoch=BrokerEpoch(message.previous_broker_epoch),
        listeners=each(message.listeners, "listeners", _listener, count_max=LISTENERS_MAX),
    )


def _listener(message: pb.RegisteredListener) -> BrokerListener:
    return BrokerListener(
        name=without_controls(message.name, "listeners.name"),
        host=without_controls(message.host, "listeners.host"),
        port=message.port,
    )


def to_heartbeat(command: BrokerHeartbeat) -> pb.HeartbeatRequest:
    clock = command.clock
    return pb.HeartbeatRequest(
        node_id=command.broker_id,
        broker_epoch=command.broker_epoch,
        applied_index=command.applied_index,
        want_fence=command.want_fence,
        want_shut_down=command.want_shut_down,
        clock_offset_ms=None if clock is None else clock.offset_ms,
        clock_base=0 if clock is None else clock.base,
    )


def heartbeat(message: pb.HeartbeatRequest) -> BrokerHeartbeat:
    return BrokerHeartbeat(
        broker_id=BrokerId(message.node_id),
        broker_epoch=BrokerEpoch(message.broker_epoch),
        applied_index=RaftIndex(message.applied_index),
        want_fence=message.want_fence,
        want_shut_down=message.want_shut_down,
        clock=_clock_report(message),
    )


def _clock_report(message: pb.HeartbeatRequest) -> ClockReport | None:
    """None for an invalid value: a node must not lose its session because of its clock."""
    if not message.HasField("clock_offset_ms") or abs(message.clock_offset_ms) > CLOCK_MS_MAX:
        return None
    return ClockReport(base=message.clock_base, offset_ms=message.clock_offset_ms)


def to_heartbeat_response(response: HeartbeatResponse) -> pb.HeartbeatResponse:
    message = pb.HeartbeatResponse(
        caught_up=response.caught_up,
        fenced=response.fenced,
        should_shut_down=response.should_shut_down,
        metadata_index=response.metadata_index,
    )
    clock = response.clock
    if clock is not None:
        message.clock_base, message.clock_time_ms = clock.base, clock.time_ms
        if clock.reference_ms is not None:
            message.clock_reference_ms = clock.reference_ms
        for node_id, skew_ms in clock.skews:
            message.clock_skews.add(node_id=node_id, skew_ms=skew_ms)
    return message


def heartbeat_response(message: pb.HeartbeatResponse) -> HeartbeatResponse:
    return HeartbeatResponse(
        caught_up=message.caught_up,
        fenced=message.fenced,
        should_shut_down=message.should_shut_down,
        clock=_clock_answer(message),
        metadata_index=RaftIndex(message.metadata_index),
    )


def _clock_answer(message: pb.HeartbeatResponse) -> ClockAnswer | None:
    times = (message.clock_time_ms, message.clock_reference_ms, *(one.skew_ms for one in message.clock_skews))
    if not message.clock_base or any(abs(time) > CLOCK_MS_MAX for time in times):
        return None
    return ClockAnswer(
        base=message.clock_base,
        time_ms=message.clock_time_ms,
        reference_ms=message.clock_reference_ms if message.HasField("clock_reference_ms") else None,
        skews=tuple((BrokerId(one.node_id), one.skew_ms) for one in message.clock_skews),
    )


def to_alter_partition(command: AlterPartition) -> pb.AlterPartitionRequest:
    return pb.AlterPartitionRequest(
        node_id=command.broker_id,
        broker_epoch=command.broker_epoch,
        proposals=[
            pb.IsrProposal(
                partition=_to_key((proposal.topic_id, proposal.partition_id)),
                leader_epoch=proposal.leader_epoch,
                partition_epoch=proposal.partition_epoch,
                isr=[pb.IsrMember(node_id=m.broker_id, broker_epoch=m.broker_epoch) for m in proposal.isr],
            )
            for proposal in command.proposals
        ],
    )


def alter_partition(message: pb.AlterPartitionRequest) -> AlterPartition:
    """InvalidRequestError."""
    return AlterPartition(
        broker_id=BrokerId(message.node_id),
        broker_epoch=BrokerEpoch(message.broker_epoch),
        proposals=each(message.proposals, "proposals", _proposal, count_max=PARTITIONS_PER_REQUEST_MAX),
    )


def to_isr_results(results: Sequence[IsrResult], image: MetadataImage) -> pb.AlterPartitionResponse:
    return pb.AlterPartitionResponse(results=[_to_result(result, image) for result in results])


def isr_results(message: pb.AlterPartitionResponse) -> tuple[IsrResult, ...]:
    """The partitions as clients see them: replicas on fenced nodes are offline, and the last leader is missing."""
    return each(message.results, "results", _result, count_max=PARTITIONS_PER_REQUEST_MAX)


def to_resign_leadership(command: ResignLeadership) -> pb.ResignLeadershipRequest:
    return pb.ResignLeadershipRequest(
        node_id=command.broker_id,
        broker_epoch=command.broker_epoch,
        partition=_to_key(command.key),
        leader_epoch=command.leader_epoch,
    )


def resign_leadership(message: pb.ResignLeadershipRequest) -> ResignLeadership:
    """InvalidRequestError."""
    return ResignLeadership(
        broker_id=BrokerId(message.node_id),
        broker_epoch=BrokerEpoch(message.broker_epoch),
        key=_key(message.partition),
        leader_epoch=LeaderEpoch(message.leader_epoch),
    )


def to_offline_replicas(command: ReportOfflineReplicas) -> pb.ReportOfflineReplicasRequest:
    return pb.ReportOfflineReplicasRequest(
        node_id=command.broker_id,
        broker_epoch=command.broker_epoch,
        partitions=[_to_key(key) for key in command.partitions],
    )


def offline_replicas(message: pb.ReportOfflineReplicasRequest) -> ReportOfflineReplicas:
    """InvalidRequestError."""
    return ReportOfflineReplicas(
        broker_id=BrokerId(message.node_id),
        broker_epoch=BrokerEpoch(message.broker_epoch),
        partitions=each(message.partitions, "partitions", _key, count_max=PARTITIONS_PER_REQUEST_MAX),
    )


def to_producer_ids(ids: ProducerIdBlock) -> pb.AllocateProducerIdsResponse:
    return pb.AllocateProducerIdsResponse(first_producer_id=ids.first, count=ids.count)


def producer_ids(message: pb.AllocateProducerIdsResponse) -> ProducerIdBlock:
    """InvalidRequestError where there are none, or ids beyond those that a batch can have."""
    count = at_least(message.count, 1, "count")
    if message.first_producer_id > INT64_MAX - count:
        raise InvalidRequestError(
            f"first_producer_id is {message.first_producer_id}, but must be at most {INT64_MAX - count}",
            field="first_producer_id",
            limit=INT64_MAX - count,
        )
    return ProducerIdBlock(first=ProducerId(message.first_producer_id), count=count)


def _to_key(key: PartitionKey) -> pb.PartitionKey:
    return pb.PartitionKey(topic_id=key[0], partition=key[1])


def _key(message: pb.PartitionKey) -> PartitionKey:
    return topic_id(message.topic_id), partition_id(message.partition)


def _proposal(message: pb.IsrProposal) -> IsrProposal:
    wanted_topic, wanted_partition = _key(message.partition)
    return IsrProposal(
        topic_id=wanted_topic,
        partition_id=wanted_partition,
        leader_epoch=LeaderEpoch(message.leader_epoch),
        partition_epoch=PartitionEpoch(message.partition_epoch),
        isr=each(message.isr, "isr", _member, count_max=MEMBERS_MAX),
    )


def _member(message: pb.IsrMember) -> IsrMember:
    return IsrMember(broker_id=BrokerId(message.node_id), broker_epoch=BrokerEpoch(message.broker_epoch))


def _to_result(result: IsrResult, image: MetadataImage) -> pb.IsrResult:
    message = pb.IsrResult(partition=_to_key((result.topic_id, result.partition_id)))
    if result.partition is not None:
        message.state.CopyFrom(view.partition(result.partition_id, result.partition, image))
    if result.error is not None:
        message.error.CopyFrom(to_message(result.error))
    return message


def _result(message: pb.IsrResult) -> IsrResult:
    wanted_topic, wanted_partition = _key(message.partition)
    return IsrResult(
        topic_id=wanted_topic,
        partition_id=wanted_partition,
        partition=_partition(message.state) if message.HasField("state") else None,
        error=from_message(message.error) if message.HasField("error") else None,
    )


def _partition(message: common_pb2.Partition) -> Partition:
    return Partition(
        replicas=_ids(message.replicas),
        isr=_ids(message.isr),
        elr=_ids(message.elr),
        adding=_ids(message.adding),
        removing=_ids(message.removing),
        offline=_ids(message.offline),
        leader=BrokerId(message.leader) if message.HasField("leader") else NO_BROKER,
        leader_epoch=LeaderEpoch(message.leader_epoch),
        partition_epoch=PartitionEpoch(message.partition_epoch),
    )


def _ids(numbers: Sequence[int]) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)
