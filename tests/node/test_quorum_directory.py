"""A node whose settings name other directories than before: none of them may begin a second, empty quorum."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from streamlog.errors import InconsistentClusterError

from .calls import Calls, until_done
from .kit import Nodes, run_story


async def topic_made(nodes: Nodes) -> None:
    calls = Calls(nodes.world.host("client").boot().network)
    await until_done(partial(calls.create_topic, "n1:9092", "t", replication_factor=nodes.voters))
    await calls.close()


async def refused(nodes: Nodes, node_id: int) -> str:
    """Why it ended."""
    task = nodes.host(node_id).task
    assert task is not None
    async with asyncio.timeout(30):
        await asyncio.wait([task])
    nodes.host(node_id).crash()
    with pytest.raises(InconsistentClusterError) as caught:
        task.result()
    return str(caught.value)


@pytest.mark.parametrize(
    ("voters", "other"),
    [
        (1, {"log_dirs": "/b,/a"}),
        (3, {"log_dirs": "/new,/a,/b"}),
        (1, {"log_dirs": "/a,/b", "metadata_log_dir": "/meta"}),
    ],
)
def test_a_quorum_in_another_log_directory_is_not_begun_again(voters: int, other: dict[str, str]) -> None:
    async def story(nodes: Nodes) -> None:
        nodes.start(log_dirs="/a,/b")
        await nodes.ready()
        await topic_made(nodes)
        for node_id in range(1, voters + 1):
            await nodes.stopped(node_id)
        nodes.start(**other)
        for node_id in range(1, voters + 1):
            where = other.get("metadata_log_dir") or other["log_dirs"].partition(",")[0]
            reason = await refused(nodes, node_id)
            assert "are in /a/__cluster_metadata" in reason
            assert f"but its settings name {where}/__cluster_metadata" in reason
            assert "set metadata.log.dir=/a" in reason
        nodes.start(**{**other, "metadata_log_dir": "/a"})
        await nodes.ready()
        assert nodes.node(1).view.image.topic_named("t") is not None
        assert not nodes.events("replica_removed")

    run_story(story, voters=voters)


@pytest.mark.parametrize("voters", [1, 3])
def test_replaced_data_disks_do_not_change_the_cluster_of_a_quorum_directory_that_is_left(voters: int) -> None:
    async def story(nodes: Nodes) -> None:
        nodes.start(log_dirs="/data", metadata_log_dir="/meta")
        await nodes.ready()
        await topic_made(nodes)
        cluster_id = nodes.node(1).cluster_id
        for node_id in range(1, voters + 1):
            await nodes.stopped(node_id)
        nodes.start(log_dirs="/empty", metadata_log_dir="/meta")
        await nodes.ready()
        assert {node.cluster_id for node in nodes.alive()} == {cluster_id}
        assert len(nodes.events("cluster_id_drawn")) == 1
        assert nodes.node(1).view.image.topic_named("t") is not None

    run_story(story, voters=voters)


def test_a_quorum_directory_of_another_node_gives_no_cluster() -> None:
    async def story(nodes: Nodes) -> None:
        nodes.start(1, metadata_log_dir="/meta", controller_quorum_voters="1@n1:9092")
        await nodes.ready(1)
        await nodes.stopped(1)
        nodes.host(2).disk = nodes.host(1).disk
        nodes.start(2, log_dirs="/empty", metadata_log_dir="/meta", controller_quorum_voters="2@n2:9092")
        assert "/meta/__cluster_metadata/identity: belongs to node 1, but this is node 2" in await refused(nodes, 2)
        assert [host for _, host, _ in nodes.events("cluster_joined")] == ["n1"]

    run_story(story, voters=1)


@pytest.mark.parametrize(
    "other",
    [
        {"metadata_log_dir": "/other"},
        {"metadata_log_dir": ""},  # now the first log directory
    ],
)
def test_the_only_voter_of_a_cluster_does_not_begin_without_its_metadata(other: dict[str, str]) -> None:
    async def story(nodes: Nodes) -> None:
        nodes.start(metadata_log_dir="/meta")
        await nodes.ready()
        await topic_made(nodes)
        await nodes.stopped(1)
        nodes.start(**other)
        assert "set metadata.log.dir to where the log is" in await refused(nodes, 1)
        nodes.start(metadata_log_dir="/meta")
        await nodes.ready()
        assert nodes.node(1).view.image.topic_named("t") is not None
        assert not nodes.events("replica_removed")

    run_story(story, voters=1)


@pytest.mark.parametrize("empty", [None, 1, 3])
def test_voters_that_all_lost_their_metadata_begin_no_quorum(empty: int | None) -> None:
    """`empty`: this one has lost its log directories as well, and gets the id from another."""

    async def story(nodes: Nodes) -> None:
        nodes.start(metadata_log_dir="/meta")
        await nodes.ready()
        await topic_made(nodes)
        for node_id in (1, 2, 3):
            await nodes.stopped(node_id)
        for node_id in (1, 2, 3):
            nodes.start(node_id, **({"log_dirs": "/empty"} if node_id == empty else {}))
        await asyncio.sleep(20)
        assert nodes.controller() is None
        assert len(nodes.events("cluster_id_drawn")) == 1
        for node_id in (1, 2, 3):
            nodes.host(node_id).crash()
        nodes.start(metadata_log_dir="/meta")
        await nodes.ready()
        assert nodes.node(1).view.image.topic_named("t") is not None
        assert not nodes.events("replica_removed")

    run_story(story)


def test_an_observer_that_is_started_without_voters_begins_no_quorum() -> None:
    async def story(nodes: Nodes) -> None:
        nodes.start(1, 2, controller_quorum_voters="1@n1:9092")
        await nodes.ready()
        await nodes.stopped(2)
        nodes.start(2, controller_quorum_voters="")
        assert "set controller.quorum.voters if other nodes vote" in await refused(nodes, 2)

    run_story(story)
