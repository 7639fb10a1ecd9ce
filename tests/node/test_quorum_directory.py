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
            assert f"they belong into {where}/__cluster_metadata" in reason
            assert "set metadata.log.dir=/a" in reason
        nodes.start(**{**other, "metadata_log_dir": "/a"})
        await nodes.ready()
        assert nodes.node(1).view.image.topic_named("t") is not None
        assert not nodes.events("replica_removed")

    run_story(story, voters=voters)
