"""What a member of a group says of itself: heartbeat by heartbeat, without a network."""

from __future__ import annotations

from unittest.mock import Mock

from streamlog.api.pb import groups_pb2 as pb
from streamlog.client.groups.consumer_membership import ConsumerMembership, MembershipRules
from streamlog.model import PartitionId, TopicId, TopicPartition

TOPIC_ID = TopicId(bytes(range(16)))
RULES = MembershipRules(
    member_id="m",
    instance_id="",
    client_id="",
    assignor="",
    rack="",
    rebalance_timeout_ms=60_000,
    session_timeout_ms=0,
    heartbeat_interval_s=3,
)


def one(partition: int) -> dict[TopicPartition, TopicId]:
    return {TopicPartition("t", PartitionId(partition)): TOPIC_ID}


def assigned(*partitions: int) -> pb.GroupHeartbeatResponse:
    response = pb.GroupHeartbeatResponse(member_epoch=8, heartbeat_interval_ms=3_000)
    response.assignment.topics.add(topic="t", topic_id=TOPIC_ID, partitions=partitions)
    return response


def named(member: ConsumerMembership, *, first: bool = False) -> list[int] | None:
    """The partitions that its next heartbeat names; None: it says nothing of them."""
    request = member._heartbeat(first=first)
    if not request.HasField("owned"):
        return None
    return [partition for topic in request.owned.topics for partition in topic.partitions]


def test_what_it_is_about_to_read_it_does_not_disown() -> None:
    """It looks for the committed offsets of what was assigned, and its stream breaks. The first heartbeat of the next
    one named only what it read; so what was asked back meanwhile went to another member, and then it began to read it.
    """
    coordinator = Mock()
    coordinator.group = "g"
    member = ConsumerMembership(coordinator, Mock(), Mock(), RULES, on_change=Mock())
    member.subscribe(["t"], "")
    member._on_response(assigned(2, 3))
    assert named(member, first=True) == [2, 3]
    member.own({**one(2), **one(3)})
    assert named(member) is None  # as before
    member._on_response(assigned(2))
    assert named(member, first=True) == [2, 3]  # it still reads both
    member.own(one(2))
    assert named(member) == [2]


def test_what_is_asked_back_before_it_was_read_is_given_back_at_once() -> None:
    coordinator = Mock()
    coordinator.group = "g"
    member = ConsumerMembership(coordinator, Mock(), Mock(), RULES, on_change=Mock())
    member.subscribe(["t"], "")
    member._on_response(assigned(2, 3))
    member._on_response(assigned(2))
    assert named(member) == [2]
