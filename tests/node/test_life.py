"""A node's life in a simulated world: clusters form, nodes come, are killed, come back, shut down."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial

import pytest
from google.protobuf.message import Message

from streamlog.api.pb import admin_pb2, groups_pb2
from streamlog.coordinator import group_shard
from streamlog.errors import InconsistentClusterError, LogDirectoryLockedError, StreamlogError
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId
from streamlog.node import Node

from .calls import Calls, R, until_done
from .kit import Nodes, properties, run_story


@pytest.mark.parametrize("voters", [1, 3, 5])
def test_a_cluster_forms_without_a_format_step(voters: int) -> None:
    async def story(nodes: Nodes) -> None:
        nodes.start()
        await nodes.ready()
        ids = {node.cluster_id for node in nodes.alive()}
        assert len(ids) == 1
        assert len(nodes.events("cluster_id_drawn")) == 1
        image = nodes.node(1).view.image
        assert {broker.broker_id for broker in image.brokers.values() if broker.active} >= {BrokerId(1)}
        assert image.cluster_id in ids

    run_story(story, voters=voters)


def test_no_id_is_generated_before_a_majority_has_answered() -> None:
    async def story(nodes: Nodes) -> None:
        nodes.start(1)
        await asyncio.sleep(20)
        assert not nodes.node(1).cluster_id
        nodes.start(3)
        await nodes.ready(1, 3)
        assert nodes.node(3).cluster_id == nodes.node(1).cluster_id
        nodes.start(2)
        await nodes.ready(2)
        assert nodes.node(2).cluster_id == nodes.node(1).cluster_id

    run_story(story)


def test_the_lowest_voter_with_an_empty_disk_learns_the_existing_id() -> None:
    async def story(nodes: Nodes) -> None:
        nodes.start()
        await nodes.ready()
        cluster_id = nodes.node(1).cluster_id
        for node_id in (1, 2, 3):
            nodes.host(node_id).crash()
        other = Nodes(nodes.world, 3)
        nodes.world.hosts["n1"].disk = nodes.world.host("spare").disk  # a new disk
        other.start(1)
        await asyncio.sleep(5)
        assert not other.node(1).cluster_id  # alone it generates none
        other.start(2, 3)
        await other.ready(2, 3)
        await other.until(lambda: {other.node(n).cluster_id for n in (1, 2, 3)} == {cluster_id})
        assert len(other.events("cluster_id_drawn")) == 0

    run_story(story)


def test_an_observer_joins_by_bootstrap_servers() -> None:
    async def story(nodes: Nodes) -> None:
        nodes.start()
        nodes.host(7).start(
            lambda ports: Node(
                properties(7, 3, controller_quorum_voters="", controller_quorum_bootstrap_servers="n9:9092,n2:9092"),
                ports,
            )
        )
        await nodes.ready()
        assert nodes.node(7).cluster_id == nodes.node(1).cluster_id
        assert nodes.node(7).controller is None
        await nodes.until(lambda: nodes.node(1).view.address_of(BrokerId(7)) == "n7:9092")

    run_story(story)


def test_a_node_of_another_cluster_is_refused() -> None:
    async def story(nodes: Nodes) -> None:
        nodes.start(1, 2, 3)
        await nodes.ready()
        nodes.host(1).crash()
        stranger = Nodes(nodes.world, 1)
        stranger.host(8).start(lambda ports: Node(properties(8, 1, controller_quorum_voters="8@n8:9092"), ports))
        await stranger.ready(8)
        await stranger.stopped(8)
        nodes.host(8).start(lambda ports: Node(properties(8, 3), ports))
        task = nodes.host(8).task
        assert task is not None
        with pytest.raises(InconsistentClusterError):
            await task

    run_story(story)


def test_a_second_process_on_the_same_directories_is_refused() -> None:
    async def story(nodes: Nodes) -> None:
        nodes.start()
        await nodes.ready()
        twin = Node(properties(1, 3), nodes.host(1).ports)
        with pytest.raises(LogDirectoryLockedError):
            await nodes.as_node(1, twin.run())

    run_story(story)


def test_a_node_that_was_killed_comes_back_at_once() -> None:
    """kill -9 and a start at the same moment: the old session, which lasts 3 s more, does not delay it."""

    async def story(nodes: Nodes) -> None:
        nodes.start()
        await nodes.ready()
        for node_id in (1, 2, 3):
            epoch = nodes.node(node_id).view.image.brokers[BrokerId(node_id)].epoch
            nodes.host(node_id).crash()
            began = nodes.world.loop.now
            nodes.start(node_id)
            await nodes.ready(node_id)
            assert nodes.world.loop.now - began < 1.5
            assert nodes.node(node_id).view.image.brokers[BrokerId(node_id)].epoch > epoch

    run_story(story)


def test_a_controller_that_was_killed_does_not_wait_for_its_own_session() -> None:
    """A single node itself detects that its earlier process has ended."""

    async def story(nodes: Nodes) -> None:
        nodes.start()
        await nodes.ready()
        await asyncio.sleep(1)
        nodes.host(1).crash()
        killed = nodes.world.loop.now
        nodes.start(1)
        await nodes.ready()
        assert nodes.world.loop.now - killed < 1.0

    run_story(story, voters=1)


def test_a_node_that_stops_shuts_down_controlled() -> None:
    async def story(nodes: Nodes) -> None:
        nodes.start()
        await nodes.ready()
        controller = nodes.controller()
        assert controller is not None
        began = nodes.world.loop.now
        await nodes.stopped(controller)
        assert nodes.world.loop.now - began < 2
        survivor = nodes.alive()[0]
        await nodes.until(
            lambda: survivor.view.image.brokers[controller].fenced
        )  # committed; a follower learns it later
        await nodes.until(lambda: nodes.controller() is not None)
        assert nodes.world.loop.now - began < 2
        nodes.start(controller)
        await nodes.ready(controller)
        await nodes.until(lambda: not survivor.view.image.brokers[controller].fenced)

    run_story(story)


def test_a_node_stops_cleanly_while_a_member_waits_for_its_group_s_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_shard, "REST_S_PER_MEMBER", 1_000.0)

    async def story(nodes: Nodes) -> None:
        nodes.start(controlled_shutdown_enable="false")
        await nodes.ready()
        calls = Calls(nodes.world.host("client").boot().network)
        await until_done(partial(calls.create_topic, "n1:9092", "t", 1, 1))
        asking = groups_pb2.FindCoordinatorRequest(groups=["g"])  # creates the offsets' topic
        await calls.call("n1:9092", "Groups/FindCoordinator", asking, groups_pb2.FindCoordinatorResponse)

        def beat(epoch: int) -> Awaitable[groups_pb2.GroupHeartbeatResponse]:
            request = groups_pb2.GroupHeartbeatRequest(group="g", member_id="a", member_epoch=epoch)
            if epoch == 0:
                request.subscription.topics.append("t")
            return calls.call(
                "n1:9092", "Groups/GroupHeartbeat", request, groups_pb2.GroupHeartbeatResponse, timeout_s=60
            )

        joined = await until_done(lambda: beat(0))
        waiting = asyncio.ensure_future(beat(joined.member_epoch))
        await asyncio.sleep(1)
        await nodes.stopped(1)
        with pytest.raises(StreamlogError):
            await waiting
        assert [fields["clean"] for _, _, fields in nodes.events("node_stopped")] == [True]
        await calls.close()

    run_story(story, voters=1)


def test_the_last_node_does_not_wait_for_ever() -> None:
    async def story(nodes: Nodes) -> None:
        nodes.start()
        await nodes.ready()
        for node_id in (1, 2, 3):
            began = nodes.world.loop.now
            await nodes.stopped(node_id)
            assert nodes.world.loop.now - began < 10
        assert {fields["clean"] for _, _, fields in nodes.events("node_stopped")} == {True}
        nodes.start()
        await nodes.ready()

    run_story(story)


def test_a_node_that_is_starting_can_be_stopped() -> None:
    async def story(nodes: Nodes) -> None:
        nodes.start(2)  # which waits for an id
        await asyncio.sleep(1)
        await nodes.stopped(2, within_s=2)

    run_story(story)


def test_a_silent_node_is_fenced_when_its_session_expires() -> None:
    async def story(nodes: Nodes) -> None:
        nodes.start()
        await nodes.ready()
        silent = next(n for n in (1, 2, 3) if n != nodes.controller())
        witness = next(n for n in (1, 2, 3) if n != silent)
        began = nodes.world.loop.now
        nodes.host(silent).pause()
        await nodes.until(lambda: nodes.node(witness).view.image.brokers[BrokerId(silent)].fenced)
        assert 4 < nodes.world.loop.now - began < 7
        nodes.host(silent).resume()
        await nodes.until(lambda: not nodes.node(witness).view.image.brokers[BrokerId(silent)].fenced)

    run_story(story)


def test_a_broker_becomes_a_voter_and_is_removed_again() -> None:
    """It follows the metadata all the time: before it is added, as a voter, and after it was removed."""

    async def story(nodes: Nodes) -> None:
        nodes.start()
        await nodes.ready()
        nodes.host(4).start(lambda ports: Node(properties(4, 4), ports))
        await nodes.ready(4)

        calls = Calls(nodes.world.host("client").boot().network)

        async def ask(method: str, request: Message, response_type: type[R]) -> R:
            return await calls.call("n1:9092", f"Admin/{method}", request, response_type, timeout_s=20)

        async def hosts(topic: str) -> None:
            """Node 4 leads a partition, and takes records."""
            created = await ask("CreateTopics", placed(topic, 4, 1), admin_pb2.CreateTopicsResponse)
            assert not created.results[0].HasField("error"), created
            async with asyncio.timeout(5):
                await until_done(lambda: calls.produce("n4:9092", topic, 0, b"v"))

        await hosts("before")
        await ask("AddVoter", admin_pb2.AddVoterRequest(node_id=4), admin_pb2.AddVoterResponse)
        await hosts("as-a-voter")
        for leaving in (1, 2):
            nodes.host(leaving).crash()
        nodes.start(1, 2)  # with 3 and 4 a majority stays, and 4 may lead it
        await nodes.ready(1, 2)
        await ask("RemoveVoter", admin_pb2.RemoveVoterRequest(node_id=4), admin_pb2.RemoveVoterResponse)
        await hosts("after")

        await calls.close()

    run_story(story)


def test_a_removed_leader_freezes_no_observer_and_knows_the_next_controller() -> None:
    """Observers follow any voter: those of a removed voter find another one, and host topics created later."""

    async def story(nodes: Nodes) -> None:
        nodes.start()
        await nodes.ready()
        observers = (4, 5, 6, 7)
        for node_id in observers:
            nodes.host(node_id).start(partial(Node, properties(node_id, 3)))
        await nodes.ready(*observers)
        calls = Calls(nodes.world.host("client").boot().network)

        async def ask(method: str, request: Message, response_type: type[R]) -> R:
            return await calls.call("n4:9092", f"Admin/{method}", request, response_type, timeout_s=20)

        for round_ in range(2):
            seen = await ask("DescribeCluster", admin_pb2.DescribeClusterRequest(), admin_pb2.DescribeClusterResponse)
            leader = seen.controller
            await ask("RemoveVoter", admin_pb2.RemoveVoterRequest(node_id=leader), admin_pb2.RemoveVoterResponse)
            name = f"after{round_}"
            created = await ask("CreateTopics", placed(name, *observers), admin_pb2.CreateTopicsResponse)
            assert not created.results[0].HasField("error"), created
            for node_id in (leader, *observers):
                view = nodes.node(node_id).view
                await nodes.until(partial(_knows, view, name), 15)
                await nodes.until(lambda: view.controller not in (None, leader), 15)  # noqa: B023  awaited here

        await calls.close()

    run_story(story)


def test_a_removed_voter_repeats_no_old_news_of_lost_votes() -> None:
    """Its own set of voters may be an old one: there the lost directory stays, although the vote was restored."""

    async def story(nodes: Nodes) -> None:
        nodes.start()
        await nodes.ready()
        nodes.host(4).start(partial(Node, properties(4, 4)))
        await nodes.ready(4)
        calls = Calls(nodes.world.host("client").boot().network)

        async def ask(method: str, request: Message, response_type: type[R]) -> R:
            return await calls.call("n4:9092", f"Admin/{method}", request, response_type, timeout_s=20)

        await ask("AddVoter", admin_pb2.AddVoterRequest(node_id=4), admin_pb2.AddVoterResponse)
        await ask("RemoveVoter", admin_pb2.RemoveVoterRequest(node_id=4), admin_pb2.RemoveVoterResponse)
        wiped = next(n for n in (1, 2, 3) if BrokerId(n) != nodes.controller())
        nodes.host(wiped).power_cut()
        nodes.host(wiped).disk.replace()
        nodes.start(wiped)
        await nodes.until(lambda: nodes.has_recorded(f"n{wiped}", "own_vote_back"))
        seen = await ask("DescribeCluster", admin_pb2.DescribeClusterRequest(), admin_pb2.DescribeClusterResponse)
        assert [voter.node_id for voter in seen.voters] == [1, 2, 3]
        assert not any(voter.without_vote for voter in seen.voters)
        await calls.close()

    run_story(story)


def _knows(view: MetadataView, topic: str) -> bool:
    return view.image.topic_named(topic) is not None


def placed(topic: str, *replicas: int) -> admin_pb2.CreateTopicsRequest:
    assignment = [admin_pb2.ReplicaAssignment(replicas=replicas)]
    return admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name=topic, assignments=assignment)])
