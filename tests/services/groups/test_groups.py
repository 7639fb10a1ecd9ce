"""The Groups service over the simulated network, from raw messages."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

import pytest

from streamlog.api.pb import groups_pb2 as pb
from streamlog.errors import StreamlogError
from tests.services.groups.group_calls import GROUPS, beat, commit, fetch, find, request, with_group
from tests.services.world import Calls, Cluster

Membership: TypeAlias = Calls[pb.GroupMembershipResponse]


async def ask(stream: Membership, wanted: pb.GroupHeartbeatRequest) -> pb.GroupHeartbeatResponse:
    await stream.send(pb.GroupMembershipRequest(heartbeat=wanted))
    return await answer(stream)


async def answer(stream: Membership) -> pb.GroupHeartbeatResponse:
    """The next one that is no hint."""
    while True:
        response = await stream.recv()
        assert response is not None
        if response.HasField("heartbeat"):
            return response.heartbeat


def indexes(response: pb.GroupHeartbeatResponse) -> list[int]:
    assert response.HasField("assignment")
    return [index for topic in response.assignment.topics for index in topic.partitions]


def test_the_first_that_asks_makes_the_topic() -> None:
    async def story(cluster: Cluster) -> None:
        found = await find(cluster, "g", "group_demo")
        assert [(row.group, row.node.node_id, row.node.port) for row in found.coordinators] == [
            ("g", 1, 9092),
            ("group_demo", 1, 9092),
        ]
        assert len(cluster.rig.topic("__consumer_offsets").partitions) == 50

    with_group(story)


def test_join_commit_leave_and_what_is_committed_stays() -> None:
    async def story(cluster: Cluster) -> None:
        joined = await beat(cluster, request("a"))
        assert (joined.member_id, joined.member_epoch, joined.heartbeat_interval_ms) == ("a", 1, 3_000)
        assert [topic.topic for topic in joined.assignment.topics] == ["t"]
        assert indexes(joined) == [0, 1]
        member = pb.GroupMember(member_id="a", member_epoch=1)
        assert await commit(cluster, 5, member, leader_epoch=0, metadata="here") == ""
        assert await fetch(cluster) == [(0, 5)]
        assert await fetch(cluster, 1, 0) == [(1, -1), (0, 5)]
        left = await beat(cluster, request("a", -1))
        assert left.member_epoch == -1
        assert not left.HasField("assignment")
        assert await commit(cluster, 7) == ""
        assert await fetch(cluster) == [(0, 7)]

    with_group(story)


@pytest.mark.parametrize("partition", [0, 2])
def test_a_commit_for_a_partition_that_was_just_created_waits_until_the_coordinator_knows_it(partition: int) -> None:
    """SEMANTICS 10.5: the controller has created it, this node has not applied it yet."""

    async def story(cluster: Cluster) -> None:
        cluster.rig.create("new", partitions=3)
        committing = asyncio.ensure_future(commit(cluster, 0, topic="new", partition=partition))
        await asyncio.sleep(1)
        assert not committing.done()
        await cluster.spread()
        assert await committing == ""
        assert await commit(cluster, 0, topic="new", partition=3) == "UNKNOWN_TOPIC_OR_PARTITION"
        assert await commit(cluster, 0, topic="none") == "UNKNOWN_TOPIC_OR_PARTITION"

    with_group(story)


def test_a_member_on_a_stream_is_notified_and_a_broken_stream_releases_at_once() -> None:
    async def story(cluster: Cluster) -> None:
        method, kind = GROUPS + "GroupMembership", pb.GroupMembershipResponse
        async with cluster.stream(method, kind) as first:
            assert indexes(await ask(first, request("a"))) == [0, 1]
            async with cluster.stream(method, kind) as second:
                joined = await ask(second, request("b"))
                assert indexes(joined) == []
                hint = await first.recv()
                assert hint is not None
                assert not hint.HasField("heartbeat")
                kept = await ask(first, request("a", 1))
                ((topic,), (index,)) = (kept.assignment.topics, indexes(kept))
                owned = pb.MemberPartitions(topics=[pb.TopicPartitions(topic_id=topic.topic_id, partitions=[index])])
                assert (await ask(first, request("a", 1, owned=owned))).member_epoch == 2
                assert (await second.recv()) == pb.GroupMembershipResponse()
                given = await ask(second, request("b", joined.member_epoch))
                assert sorted([index, *indexes(given)]) == [0, 1]
            begin = cluster.loop.now
            assert (await first.recv()) == pb.GroupMembershipResponse()
            assert cluster.loop.now - begin < 0.3
            assert indexes(await ask(first, request("a", 2))) == [0, 1]

    with_group(story)


def test_a_stream_that_ends_after_leaving_puts_nobody_out() -> None:
    async def story(cluster: Cluster) -> None:
        method, kind = GROUPS + "GroupMembership", pb.GroupMembershipResponse
        async with cluster.stream(method, kind) as stream:
            await ask(stream, request("a", instance_id="one"))
            await ask(stream, request("a", -2, instance_id="one"))
        async with cluster.stream(method, kind) as stream:
            assert indexes(await ask(stream, request("a2", instance_id="one"))) == [0, 1]
        await asyncio.sleep(1)
        again = await beat(cluster, request("a3", instance_id="one"))
        assert indexes(again) == [0, 1]

    with_group(story)


def test_a_join_whose_stream_breaks_before_the_answer_leaves_no_member_behind() -> None:
    """Wherever it breaks: a ghost would keep its partitions for a whole session."""

    async def story(cluster: Cluster) -> None:
        method, kind = GROUPS + "GroupMembership", pb.GroupMembershipResponse
        for step in range(20):
            async with cluster.stream(method, kind) as stream:
                await stream.send(pb.GroupMembershipRequest(heartbeat=request(f"ghost-{step}")))
                await asyncio.sleep(step * 0.0005)
            await asyncio.sleep(1)
            assert indexes(await beat(cluster, request("a"))) == [0, 1], f"cut off after {step / 2} ms"
            await beat(cluster, request("a", -1))

    with_group(story)


def test_a_broken_stream_whose_member_has_resumed_on_another_changes_nothing() -> None:
    """Its end is noticed seconds later, and what was sent on it may arrive before."""

    async def story(cluster: Cluster) -> None:
        method, kind = GROUPS + "GroupMembership", pb.GroupMembershipResponse
        async with cluster.stream(method, kind) as second:
            async with cluster.stream(method, kind) as first:
                assert indexes(await ask(first, request("a", instance_id="one"))) == [0, 1]
                assert (await ask(second, request("a", 1))).member_epoch == 1
                assert (await ask(first, request("a", 1))).member_epoch == 1
            await asyncio.sleep(1)
            assert (await ask(second, request("a", 1))).member_epoch == 1
            assert await commit(cluster, 5, pb.GroupMember(member_id="a", member_epoch=1)) == ""
        await asyncio.sleep(1)
        assert indexes(await beat(cluster, request("b", instance_id="one"))) == [0, 1]

    with_group(story)


BAD = [
    (request("a", group=""), "INVALID_GROUP_ID", "group"),
    (request("a", group="g" * 250), "INVALID_GROUP_ID", "group"),
    (request(""), "INVALID_REQUEST", "member_id"),
    (request("a" * 101), "INVALID_REQUEST", "member_id"),
    (request("a", -3), "INVALID_REQUEST", "member_epoch"),
    (request("a", 4), "UNKNOWN_MEMBER_ID", "member_id"),
    (request("a", subscription=pb.GroupSubscription()), "INVALID_REQUEST", "subscription.topics"),
    (request("a", subscription=pb.GroupSubscription(topics=["../x"])), "INVALID_TOPIC", "subscription.topics[0]"),
    (
        request("a", subscription=pb.GroupSubscription(pattern="(")),
        "INVALID_REGULAR_EXPRESSION",
        "subscription.pattern",
    ),
    (
        request("a", subscription=pb.GroupSubscription(topics=["t"], assignor="best")),
        "UNSUPPORTED_ASSIGNOR",
        "subscription.assignor",
    ),
    (
        request("a", subscription=pb.GroupSubscription(topics=["t"], session_timeout_ms=-1)),
        "INVALID_REQUEST",
        "subscription.session_timeout_ms",
    ),
    (
        request("a", owned=pb.MemberPartitions(topics=[pb.TopicPartitions(topic_id=b"x")])),
        "INVALID_REQUEST",
        "owned.topics[0].topic_id",
    ),
]


def test_bad_heartbeats_are_refused_by_name_and_change_nothing() -> None:
    async def story(cluster: Cluster) -> None:
        for wanted, code, field in BAD:
            with pytest.raises(StreamlogError) as refused:
                await beat(cluster, wanted)
            assert (refused.value.code, refused.value.details.get("field")) == (code, field)
        assert await fetch(cluster) == []
        assert indexes(await beat(cluster, request("b"))) == [0, 1]

    with_group(story)


def test_bad_commits_are_refused_by_name() -> None:
    async def story(cluster: Cluster) -> None:
        assert await commit(cluster, 1, metadata="m" * 4_097) == "OFFSET_METADATA_TOO_LARGE"
        assert await commit(cluster, 1, partition=2) == "UNKNOWN_TOPIC_OR_PARTITION"
        assert await commit(cluster, 1, topic="u") == "UNKNOWN_TOPIC_OR_PARTITION"
        with pytest.raises(StreamlogError, match="at least 0"):
            await commit(cluster, -1)
        joined = await beat(cluster, request("a"))
        with pytest.raises(StreamlogError) as refused:
            await commit(cluster, 1)
        assert refused.value.code == "NON_EMPTY_GROUP"
        with pytest.raises(StreamlogError) as refused:
            await commit(cluster, 1, pb.GroupMember(member_id="a", member_epoch=joined.member_epoch + 1))
        assert refused.value.code == "ILLEGAL_GENERATION"
        assert await fetch(cluster) == []

    with_group(story)


def test_another_node_says_who_coordinates() -> None:
    async def story(cluster: Cluster) -> None:
        (found,) = (await find(cluster)).coordinators
        wrong = 3 - found.node.node_id
        with pytest.raises(StreamlogError) as refused:
            await cluster.call(GROUPS + "GroupHeartbeat", request("a"), pb.GroupHeartbeatResponse, node=wrong)
        assert refused.value.code == "NOT_COORDINATOR"
        assert int(refused.value.details["leader"]) == found.node.node_id  # type: ignore[call-overload]  # a number or its text
        assert refused.value.details["address"] == f"node{found.node.node_id}:9092"

    with_group(story, 1, 2)
