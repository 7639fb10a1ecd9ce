"""Groups for operators: requests and responses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from streamlog.api.convert.fields import distinct, each, enum_value
from streamlog.api.convert.groups import PARTITIONS_MAX, group_id, member_partitions, topic_partition
from streamlog.api.errors import to_message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.pb import groups_pb2
from streamlog.errors import StreamlogError
from streamlog.groups.committing import DeleteOffsets
from streamlog.groups.records import MemberValue
from streamlog.groups.state import Group
from streamlog.model import BrokerId, TopicId

GROUPS_PER_REQUEST_MAX: Final = 1_000
NAMES_BYTES_MAX: Final = 1 << 20
"""Of the names in the lists of topics of a described group; beyond it, equal lists are given once."""
_STATES: Final[Mapping[int, pb.GroupState.ValueType]] = {
    number: number for number in (pb.GROUP_STATE_EMPTY, pb.GROUP_STATE_RECONCILING, pb.GROUP_STATE_STABLE)
}


def states(message: pb.ListGroupsRequest) -> frozenset[pb.GroupState.ValueType]:
    """InvalidRequestError."""
    return frozenset(
        each(
            message.states,
            "states",
            lambda number: enum_value(number, _STATES, pb.GroupState, ""),
            count_max=len(_STATES),
        )
    )


def groups(names: Sequence[str]) -> tuple[str, ...]:
    """The groups of a request. InvalidRequestError, InvalidGroupIdError."""
    wanted = each(names, "groups", lambda name: group_id(name, ""), count_min=1, count_max=GROUPS_PER_REQUEST_MAX)
    distinct(wanted, "groups")
    return wanted


def delete_offsets(message: pb.DeleteGroupOffsetsRequest) -> DeleteOffsets:
    """InvalidRequestError, InvalidGroupIdError, InvalidTopicError."""
    partitions = each(message.partitions, "partitions", topic_partition, count_min=1, count_max=PARTITIONS_MAX)
    distinct(partitions, "partitions")
    return DeleteOffsets(group=group_id(message.group), partitions=partitions)


def deleted_offsets(command: DeleteOffsets, errors: Iterable[StreamlogError | None]) -> pb.DeleteGroupOffsetsResponse:
    response = pb.DeleteGroupOffsetsResponse()
    for partition, error in zip(command.partitions, errors, strict=True):
        row = response.results.add(topic=partition.topic, partition=partition.partition)
        if error is not None:
            row.error.CopyFrom(to_message(error))
    return response


def state_of(group: Group) -> pb.GroupState.ValueType:
    if not group.members:
        return pb.GROUP_STATE_EMPTY
    return pb.GROUP_STATE_STABLE if group.is_settled else pb.GROUP_STATE_RECONCILING


def listing(group: Group, coordinator: BrokerId) -> pb.GroupListing:
    return pb.GroupListing(
        group=group.group_id, state=state_of(group), member_count=len(group.members), coordinator=coordinator
    )


def description(group: Group, default_assignor: str, names: Mapping[TopicId, str]) -> pb.GroupDescription:
    message = pb.GroupDescription(
        group=group.group_id,
        state=state_of(group),
        group_epoch=group.epoch,
        target_epoch=group.target_epoch,
        assignor=_assignor(group, default_assignor),
    )
    names_bytes = sum(sum(map(len, one.topics)) * len(alike) for one, alike in group.subscriptions.items())
    is_large = names_bytes > NAMES_BYTES_MAX
    number_of = {one: number for number, alike in enumerate(group.subscriptions.values()) for one in alike}
    first_with: dict[int, str] = {}  # by number of the subscription
    for member_id, member in group.members.items():
        current = group.current(member_id)
        first = first_with.setdefault(number_of[member_id], member_id) if is_large else member_id
        message.members.add(
            member_id=member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            host=member.client_host,
            member_epoch=current.epoch,
            assignment=member_partitions(current.assigned | current.revoking, names),
            target=member_partitions(group.target(member_id), names),
            subscription=_subscription(member, member.topics if first == member_id else ()),
            topics_as_member="" if first == member_id else first,
        )
    return message


def _assignor(group: Group, default: str) -> str:
    asked = Counter(member.assignor or default for member in group.members.values())
    return asked.most_common(1)[0][0] if asked else default


def _subscription(member: MemberValue, topics: Iterable[str]) -> groups_pb2.GroupSubscription:
    return groups_pb2.GroupSubscription(
        topics=topics,
        pattern=member.pattern,
        assignor=member.assignor,
        rack=member.rack,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.session_timeout_ms,
    )


def not_described(group: str, error: StreamlogError) -> pb.GroupDescription:
    return pb.GroupDescription(group=group, error=to_message(error))


def not_deleted(group: str, error: StreamlogError) -> pb.DeleteGroupResult:
    return pb.DeleteGroupResult(group=group, error=to_message(error))
