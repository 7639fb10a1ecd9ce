"""Placement of leaders and replicas: elections, reassignments, drains. streamlog/v1/admin.proto to the controller's
commands, and its results back.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from streamlog.api.convert.admin.topics import replicas
from streamlog.api.convert.fields import at_least, distinct, each, enum_value, inside, partition_id, topic_name
from streamlog.api.errors import to_message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.pb import common_pb2
from streamlog.errors import InvalidRequestError
from streamlog.metadata.brokers.registration import UnregisterBroker
from streamlog.metadata.decision import BATCH_RECORDS
from streamlog.metadata.partitions.drain_moves import DrainStatus
from streamlog.metadata.partitions.leaders import ElectionResult, ElectLeaders, RequestedElection
from streamlog.metadata.partitions.reassignment import (
    AlterReassignments,
    PartitionReassignment,
    PartitionReassignmentResult,
)
from streamlog.metadata.partitions.recovery import Candidate
from streamlog.model import NO_BROKER, BrokerId, TopicPartition

_ELECTION_TYPES: Final[Mapping[int, RequestedElection]] = {
    pb.ELECTION_TYPE_PREFERRED: RequestedElection.PREFERRED,
    pb.ELECTION_TYPE_UNCLEAN: RequestedElection.UNCLEAN,
}


class DrainAction(enum.Enum):
    START = 1
    CANCEL = 2
    SHOW = 3  # the progress; not a command


_DRAIN_ACTIONS: Final[Mapping[int, DrainAction]] = {
    pb.DRAIN_ACTION_START: DrainAction.START,
    pb.DRAIN_ACTION_CANCEL: DrainAction.CANCEL,
    pb.DRAIN_ACTION_SHOW: DrainAction.SHOW,
}


def elect_leaders(message: pb.ElectLeadersRequest) -> ElectLeaders:
    """InvalidRequestError, InvalidTopicError."""
    partitions = topic_partitions(message.partitions, "partitions")
    kind = enum_value(message.type, _ELECTION_TYPES, pb.ElectionType, "type", RequestedElection.PREFERRED)
    if message.dry_run and kind is not RequestedElection.UNCLEAN:
        raise InvalidRequestError("dry_run requires ELECTION_TYPE_UNCLEAN", field="dry_run")
    named = tuple((at.topic, at.partition) for at in partitions) or None
    return ElectLeaders(type=kind, partitions=named, dry_run=message.dry_run)


def elected(results: Iterable[ElectionResult]) -> pb.ElectLeadersResponse:
    response = pb.ElectLeadersResponse()
    for result in results:
        row = response.results.add(topic=result.topic, partition=result.partition_id)
        if result.leader != NO_BROKER:
            row.leader = result.leader
        if result.error is not None:
            row.error.CopyFrom(to_message(result.error))
        for candidate in result.candidates:
            row.candidates.append(_candidate(candidate))
    return response


def _candidate(candidate: Candidate) -> pb.ElectionCandidate:
    row = pb.ElectionCandidate(
        node_id=candidate.broker_id,
        state=candidate.condition,
        known=candidate.known,
        lost_records=candidate.lost_records,
        would_lead=candidate.would_lead,
    )
    if candidate.state is not None:
        row.log_end = candidate.state.log_end
        if candidate.state.last_epoch >= 0:
            row.last_epoch = candidate.state.last_epoch
    return row


def alter_reassignments(message: pb.AlterPartitionReassignmentsRequest) -> AlterReassignments:
    """InvalidRequestError, InvalidTopicError."""
    asked = each(message.reassignments, "reassignments", _reassignment, count_min=1, count_max=BATCH_RECORDS)
    distinct([TopicPartition(one.topic, one.partition_id) for one in asked], "reassignments")
    return AlterReassignments(reassignments=asked)


def _reassignment(message: pb.Reassignment) -> PartitionReassignment:
    target = None
    if message.HasField("target"):
        with inside("target"):
            target = replicas(message.target)
    return PartitionReassignment(
        topic=topic_name(message.topic), partition_id=partition_id(message.partition), replicas=target
    )


def reassigned(results: Iterable[PartitionReassignmentResult]) -> pb.AlterPartitionReassignmentsResponse:
    response = pb.AlterPartitionReassignmentsResponse()
    for result in results:
        row = response.results.add(topic=result.topic, partition=result.partition_id)
        if result.error is not None:
            row.error.CopyFrom(to_message(result.error))
    return response


def drain(message: pb.DrainNodeRequest) -> tuple[BrokerId, DrainAction]:
    """InvalidRequestError."""
    action = enum_value(message.action, _DRAIN_ACTIONS, pb.DrainAction, "action")
    return node_id(message.node_id), action


def drained(progress: DrainStatus, *, draining: bool) -> pb.DrainNodeResponse:
    return pb.DrainNodeResponse(draining=draining, remaining_count=progress.replicas, moving_count=progress.moving)


def unregister(message: pb.UnregisterNodeRequest) -> UnregisterBroker:
    """InvalidRequestError."""
    return UnregisterBroker(broker_id=node_id(message.node_id))


def node_id(number: int, field: str = "node_id") -> BrokerId:
    return BrokerId(at_least(number, 0, field))


def topic_partitions(messages: Sequence[common_pb2.TopicPartition], field: str) -> tuple[TopicPartition, ...]:
    """Distinct ones. InvalidRequestError, InvalidTopicError."""
    found = each(messages, field, _topic_partition, count_max=BATCH_RECORDS)
    distinct(found, field)
    return found


def _topic_partition(message: common_pb2.TopicPartition) -> TopicPartition:
    return TopicPartition(topic_name(message.topic), partition_id(message.partition))
