"""Membership and offsets of groups, both ways."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Final, Literal, Protocol

from streamlog.api.convert.fields import (
    amount,
    at_least,
    distinct,
    each,
    inside,
    leader_epoch,
    partition_id,
    text,
    together,
    topic_id,
    topic_name,
    without_controls,
)
from streamlog.api.errors import to_message
from streamlog.api.pb import common_pb2
from streamlog.api.pb import groups_pb2 as pb
from streamlog.errors import InvalidGroupIdError, InvalidRequestError, StreamlogError
from streamlog.groups.assignors.problem import GroupPartition
from streamlog.groups.committing import CommitOffsets, Committer, OffsetToCommit
from streamlog.groups.membership import HeartbeatAnswer, MemberHeartbeat, MemberSubscription
from streamlog.groups.records import AWAY, OffsetValue
from streamlog.model import INT32_MAX, NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP, Offset, TopicId, TopicPartition

GROUP_LENGTH_MAX: Final = 249
MEMBER_ID_LENGTH_MAX: Final = 100
INSTANCE_ID_LENGTH_MAX: Final = 249
PATTERN_LENGTH_MAX: Final = 1_000
CLIENT_ID_LENGTH_MAX: Final = 200
RACK_LENGTH_MAX: Final = 253
ASSIGNOR_LENGTH_MAX: Final = 64
TOPICS_MAX: Final = 10_000
PARTITIONS_MAX: Final = 10_000
OWNED_MAX: Final = 100_000
"""Partitions of one member: it may read PARTITIONS_MAX from each of many nodes."""
REBALANCE_TIMEOUT_MS: Final = 300_000  # Kafka's max.poll.interval.ms


def group_id(name: str, field: str = "group") -> str:
    """InvalidGroupIdError."""
    if not 0 < len(name) <= GROUP_LENGTH_MAX:
        raise InvalidGroupIdError(
            f"the group's name has {len(name)} characters, but must have 1 to {GROUP_LENGTH_MAX}",
            field=field,
            limit=GROUP_LENGTH_MAX,
        )
    return without_controls(name, field, InvalidGroupIdError)


# -- membership


def heartbeat(message: pb.GroupHeartbeatRequest, host: str) -> MemberHeartbeat:
    """`host`: of the caller. InvalidRequestError, InvalidGroupIdError, InvalidTopicError."""
    subscription = None
    if message.HasField("subscription"):
        with inside("subscription"):
            subscription = _subscription(message.subscription)
    owned = None
    if message.HasField("owned"):
        with inside("owned"):
            owned = _owned(message.owned)
    return MemberHeartbeat(
        group=group_id(message.group),
        member_id=member_id(message.member_id),
        epoch=at_least(message.member_epoch, AWAY, "member_epoch"),
        instance_id=text(message.instance_id, "instance_id", length_max=INSTANCE_ID_LENGTH_MAX),
        subscription=subscription,
        owned=owned,
        client_id=text(message.client_id, "client_id", length_max=CLIENT_ID_LENGTH_MAX),
        client_host=host,
        serving_epoch=at_least(message.serving_epoch, 0, "serving_epoch"),
    )


def member_id(value: str, field: str = "member_id") -> str:
    if not value:
        raise InvalidRequestError(f"{field} is required: each member chooses a unique one, such as a UUID", field=field)
    return text(value, field, length_max=MEMBER_ID_LENGTH_MAX)


def _subscription(message: pb.GroupSubscription) -> MemberSubscription:
    topics = each(message.topics, "topics", lambda name: topic_name(name, ""), count_max=TOPICS_MAX)
    if not topics and not message.pattern:
        raise InvalidRequestError("a subscription needs topics, a pattern, or both", field="topics")
    return MemberSubscription(
        topics=tuple(sorted(set(topics))),
        pattern=text(message.pattern, "pattern", length_max=PATTERN_LENGTH_MAX),
        assignor=text(message.assignor, "assignor", length_max=ASSIGNOR_LENGTH_MAX),
        rack=text(message.rack, "rack", length_max=RACK_LENGTH_MAX),
        rebalance_timeout_ms=amount(
            message.rebalance_timeout_ms, "rebalance_timeout_ms", default=REBALANCE_TIMEOUT_MS, high=INT32_MAX
        ),
        session_timeout_ms=at_least(message.session_timeout_ms, 0, "session_timeout_ms"),
    )


def _owned(message: pb.MemberPartitions) -> frozenset[GroupPartition]:
    together((part.partitions for part in message.topics), "topics", count_max=OWNED_MAX)

    def topic(part: pb.TopicPartitions) -> tuple[GroupPartition, ...]:
        known = topic_id(part.topic_id)
        indexes = each(part.partitions, "partitions", lambda index: partition_id(index, ""), count_max=PARTITIONS_MAX)
        return tuple(GroupPartition(known, index) for index in indexes)

    return frozenset(p for part in each(message.topics, "topics", topic, count_max=TOPICS_MAX) for p in part)


def heartbeat_response(answer: HeartbeatAnswer, names: Mapping[TopicId, str]) -> pb.GroupHeartbeatResponse:
    response = pb.GroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
    )
    if answer.assignment is not None:
        response.assignment.CopyFrom(member_partitions(answer.assignment, names))
    return response


def member_partitions(partitions: Iterable[GroupPartition], names: Mapping[TopicId, str]) -> pb.MemberPartitions:
    message = pb.MemberPartitions()
    for known, some in groupby(sorted(partitions), lambda p: p.topic_id):
        message.topics.add(topic_id=known, topic=names.get(known, ""), partitions=[p.partition for p in some])
    return message


def topic_ids(partitions: Iterable[GroupPartition] | None) -> set[TopicId]:
    return {partition.topic_id for partition in partitions or ()}


# -- offsets


def commit_request(message: pb.CommitOffsetsRequest) -> CommitOffsets:
    """InvalidRequestError, InvalidGroupIdError, InvalidTopicError."""
    offsets = each(message.offsets, "offsets", to_commit, count_min=1, count_max=PARTITIONS_MAX)
    distinct([offset.partition for offset in offsets], "offsets")
    return CommitOffsets(group=group_id(message.group), member=committer(message), offsets=offsets)


class _OfMember(Protocol):
    """A request that may have a member."""

    @property
    def member(self) -> pb.GroupMember: ...
    def HasField(self, field_name: Literal["member"], /) -> bool: ...


def committer(message: _OfMember) -> Committer | None:
    if not message.HasField("member"):
        return None
    with inside("member"):
        return Committer(member_id=member_id(message.member.member_id), epoch=message.member.member_epoch)


def to_commit(message: pb.OffsetToCommit) -> OffsetToCommit:
    known = NO_LEADER_EPOCH
    if message.HasField("leader_epoch"):
        known = leader_epoch(message.leader_epoch)
    return OffsetToCommit(
        partition=TopicPartition(topic_name(message.topic), partition_id(message.partition)),
        offset=Offset(at_least(message.offset, 0, "offset")),
        leader_epoch=known,
        metadata=message.metadata,
    )


def committed(command: CommitOffsets, errors: Iterable[StreamlogError | None]) -> pb.CommitOffsetsResponse:
    response = pb.CommitOffsetsResponse()
    for offset, error in zip(command.offsets, errors, strict=True):
        result = response.results.add(topic=offset.partition.topic, partition=offset.partition.partition)
        if error is not None:
            result.error.CopyFrom(to_message(error))
    return response


def fetch_request(
    message: pb.FetchOffsetsRequest,
) -> tuple[str, Committer | None, tuple[TopicPartition, ...] | None]:
    """Group, member, partitions; None: all of them."""
    partitions = each(message.partitions, "partitions", topic_partition, count_max=PARTITIONS_MAX)
    distinct(partitions, "partitions")
    return group_id(message.group), committer(message), partitions or None


def topic_partition(message: common_pb2.TopicPartition) -> TopicPartition:
    return TopicPartition(topic_name(message.topic), partition_id(message.partition))


def fetched(
    offsets: Mapping[TopicPartition, OffsetValue | StreamlogError | None],
) -> pb.FetchOffsetsResponse:
    response = pb.FetchOffsetsResponse()
    for partition, found in offsets.items():
        value = found if isinstance(found, OffsetValue) else None
        row = response.offsets.add(
            topic=partition.topic,
            partition=partition.partition,
            offset=NO_OFFSET if value is None else value.offset,
            metadata="" if value is None else value.metadata,
            commit_timestamp_ms=NO_TIMESTAMP if value is None else value.commit_timestamp_ms,
        )
        if value is not None and value.leader_epoch != NO_LEADER_EPOCH:
            row.leader_epoch = value.leader_epoch
        if isinstance(found, StreamlogError):
            row.error.CopyFrom(to_message(found))
    return response
