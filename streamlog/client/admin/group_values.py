"""The admin client's values about groups, and their conversion from messages. Pure.

A node may be newer than this client: a state that it does not know becomes UNKNOWN.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from streamlog.api.errors import from_message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.pb import groups_pb2
from streamlog.client.connection.addresses import address_of
from streamlog.client.groups.group_offsets import OffsetAndMetadata
from streamlog.errors import StreamlogError
from streamlog.model import BrokerId, Offset, PartitionId, TopicPartition


class GroupState(enum.Enum):
    EMPTY = "empty"  # no members; it has committed offsets
    RECONCILING = "reconciling"  # partitions are being moved between members
    STABLE = "stable"
    UNKNOWN = "unknown"


STATE_NUMBERS: Final[Mapping[GroupState, pb.GroupState.ValueType]] = {
    GroupState.EMPTY: pb.GROUP_STATE_EMPTY,
    GroupState.RECONCILING: pb.GROUP_STATE_RECONCILING,
    GroupState.STABLE: pb.GROUP_STATE_STABLE,
}
_STATES: Final[Mapping[int, GroupState]] = {number: state for state, number in STATE_NUMBERS.items()}


class GroupListing(Struct, frozen=True, kw_only=True):
    group: str
    state: GroupState
    member_count: int
    coordinator: BrokerId


class GroupList(Struct, frozen=True, kw_only=True):
    groups: tuple[GroupListing, ...]  # in ascending order of names
    errors: Mapping[BrokerId, StreamlogError]  # of nodes that did not answer: their groups are missing


class GroupMemberDescription(Struct, frozen=True, kw_only=True):
    member_id: str
    instance_id: str  # empty: not static
    client_id: str
    host: str
    epoch: int  # -2: a static member that has left temporarily
    assignment: tuple[TopicPartition, ...]  # what it owns, including what is being revoked
    target: tuple[TopicPartition, ...]  # what it is to own
    topics: tuple[str, ...]  # that it subscribed to by name
    pattern: str


class GroupDescription(Struct, frozen=True, kw_only=True):
    group: str
    state: GroupState
    group_epoch: int
    target_epoch: int
    assignor: str
    coordinator: BrokerId | None
    coordinator_address: str
    members: tuple[GroupMemberDescription, ...]
    error: StreamlogError | None

    def owners(self) -> dict[TopicPartition, GroupMemberDescription]:
        """The owner of each partition."""
        return {partition: member for member in self.members for partition in member.assignment}


class GroupResult(Struct, frozen=True, kw_only=True):
    """The result of a request about one group."""

    group: str
    error: StreamlogError | None


class GroupOffsetResult(Struct, frozen=True, kw_only=True):
    """The result of a request about one offset of a group."""

    at: TopicPartition
    error: StreamlogError | None


class PartitionLag(Struct, frozen=True, kw_only=True):
    """The progress of a group in one partition."""

    at: TopicPartition
    committed: OffsetAndMetadata | None  # None: nothing is committed
    log_end: Offset | None  # the end for read_uncommitted consumers; None: the leader did not answer in time
    member: GroupMemberDescription | None  # the owner; None: none

    @property
    def lag(self) -> int | None:
        """Records that are not committed yet; None: unknown, or nothing is committed."""
        if self.committed is None or self.log_end is None:
            return None
        return max(0, self.log_end - self.committed.offset)


def listing(row: pb.GroupListing) -> GroupListing:
    return GroupListing(
        group=row.group,
        state=_STATES.get(row.state, GroupState.UNKNOWN),
        member_count=row.member_count,
        coordinator=BrokerId(row.coordinator),
    )


def description(message: pb.GroupDescription) -> GroupDescription:
    known = message.HasField("coordinator")
    members: dict[str, GroupMemberDescription] = {}
    for one in message.members:
        members[one.member_id] = _member(one, members.get(one.topics_as_member))
    return GroupDescription(
        group=message.group,
        state=_STATES.get(message.state, GroupState.UNKNOWN),
        group_epoch=message.group_epoch,
        target_epoch=message.target_epoch,
        assignor=message.assignor,
        coordinator=BrokerId(message.coordinator.node_id) if known else None,
        coordinator_address=address_of(message.coordinator) if known else "",
        members=tuple(members.values()),
        error=from_message(message.error) if message.HasField("error") else None,
    )


def _member(message: pb.GroupMemberDescription, alike: GroupMemberDescription | None) -> GroupMemberDescription:
    """`alike`: a member with the same topics, which the message leaves out then."""
    return GroupMemberDescription(
        member_id=message.member_id,
        instance_id=message.instance_id,
        client_id=message.client_id,
        host=message.host,
        epoch=message.member_epoch,
        assignment=_partitions(message.assignment),
        target=_partitions(message.target),
        topics=tuple(message.subscription.topics) if alike is None else alike.topics,
        pattern=message.subscription.pattern,
    )


def _partitions(message: groups_pb2.MemberPartitions) -> tuple[TopicPartition, ...]:
    """In ascending order."""
    return tuple(
        sorted(TopicPartition(topic.topic, PartitionId(one)) for topic in message.topics for one in topic.partitions)
    )
