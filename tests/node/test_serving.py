"""A whole cluster: topics and records, also after a node has failed."""

from __future__ import annotations

from functools import partial

from streamlog.model import NO_BROKER, BrokerId
from streamlog.node import Node

from .calls import Calls, leader_of, until_done
from .kit import Nodes, run_story


def test_three_nodes_keep_records_when_a_leader_is_killed() -> None:
    async def story(nodes: Nodes) -> None:
        nodes.start()
        await nodes.ready()
        host = nodes.world.host("client")
        calls = Calls(host.boot().network)
        await host.spawn(calls.create_topic("n2:9092", "t"))
        leader = leader_of(nodes.node(2).view, "t")
        first = await host.spawn(until_done(partial(calls.produce, f"n{leader}:9092", "t", 0, b"one")))
        assert first == 0
        assert b"one" in await host.spawn(calls.fetch(f"n{leader}:9092", "t", 0, 0))
        died = nodes.world.loop.now
        nodes.host(leader).crash()
        witness = nodes.alive()[0]
        await nodes.until(lambda: leader_of(witness.view, "t") not in (NO_BROKER, leader))
        heir = leader_of(witness.view, "t")
        second = await host.spawn(until_done(partial(calls.produce, f"n{heir}:9092", "t", 0, b"two")))
        paused_s = nodes.world.loop.now - died
        assert second == 1
        assert paused_s < 1.0, paused_s
        found = await host.spawn(calls.fetch(f"n{heir}:9092", "t", 0, 0))
        assert b"one" in found
        nodes.start(int(leader))
        await nodes.ready(int(leader))
        await nodes.until(lambda: len(_isr(witness)) == 3)
        await host.spawn(calls.close())

    run_story(story)


def _isr(node: Node) -> tuple[BrokerId, ...]:
    return node.view.image.require_topic("t").partitions[0].isr


def test_every_listed_method_is_served_once_the_node_is_ready() -> None:
    async def story(nodes: Nodes) -> None:
        nodes.start()
        await nodes.ready()
        assert nodes.node(1).unserved() == []

    run_story(story, voters=1)
