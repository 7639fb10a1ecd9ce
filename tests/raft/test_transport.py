"""Links between nodes: who dials, which of two stays, what is dropped, who is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from streamlog.errors import Status
from streamlog.model import BrokerId, RaftIndex, RaftTerm
from streamlog.ports import RpcError
from streamlog.ports.bundle import Ports
from streamlog.raft.protocol import wire
from streamlog.raft.protocol.messages import Message, PeerHello, SnapshotRequest, VoteReply, VotersNotice
from streamlog.raft.settings import QuorumSettings
from streamlog.raft.transport import METHOD, Transport
from streamlog.raft.voters import DirectoryId
from streamlog.sim import SimLoop
from streamlog.sim import run as run_simulation
from streamlog.sim.world import World

from .kit import PORT, voter


class End:
    """A node that has nothing but a transport."""

    def __init__(self, node_id: int, ports: Ports, cluster_id: str, settings: QuorumSettings) -> None:
        self.node_id = node_id
        self.ports = ports
        self.events: list[str] = []
        self.received_terms: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()
        hello = PeerHello(
            cluster_id=cluster_id, node_id=BrokerId(node_id), directory_id=DirectoryId(bytes([node_id]) * 16)
        )
        self.transport = Transport(
            hello,
            self,
            network=ports.network,
            clock=ports.clock,
            random=ports.random,
            probe=ports.probe,
            settings=settings,
        )

    async def run(self) -> None:
        await self.ports.network.listen(f"n{self.node_id}:{PORT}", unary={}, streaming={METHOD: self.transport.serve})
        await self.transport.run()

    def link_up(self, node_id: BrokerId, directory_id: DirectoryId) -> None:
        assert directory_id == bytes([node_id]) * 16
        self.events.append(f"up {node_id}")

    def link_down(self, node_id: BrokerId) -> None:
        self.events.append(f"down {node_id}")

    async def received(self, node_id: BrokerId, message: Message) -> None:
        await self.gate.wait()
        assert not isinstance(message, VotersNotice)
        self.received_terms.append(message.term)

    def say(self, node_id: int, *terms: int) -> None:
        for term in terms:
            self.transport.send(BrokerId(node_id), VoteReply(term=RaftTerm(term), granted=True))


class Lines:
    def __init__(self, world: World) -> None:
        self.world = world

    def start(self, node_id: int, *, knows: tuple[int, ...] = (), cluster_id: str = "c", **settings: Any) -> End:
        quorum = QuorumSettings(**settings)
        end = self.world.host(f"n{node_id}").start(lambda ports: End(node_id, ports, cluster_id, quorum))
        end.transport.want([voter(peer) for peer in knows])
        return end


def run_story(story: Callable[[Lines], Awaitable[None]], seed: int = 1) -> None:
    async def main(loop: SimLoop) -> None:
        world = World(loop, seed)
        await story(Lines(world))
        world.stop()

    run_simulation(main, seed=seed)


def test_one_stream_for_each_pair_both_ways_and_in_order() -> None:
    async def story(lines: Lines) -> None:
        one, two = lines.start(1, knows=(2,)), lines.start(2, knows=(1,))
        await asyncio.sleep(2)
        assert (one.events, two.events) == (["up 2"], ["up 1"])
        assert len(lines.world.fabric.connections) == 1
        one.say(2, *range(1, 200))
        two.say(1, *range(1, 200))
        await asyncio.sleep(1)
        assert one.received_terms == two.received_terms == list(range(1, 200))

    run_story(story)


def test_the_greater_id_dials() -> None:
    async def story(lines: Lines) -> None:
        lines.start(1, knows=(2,))
        lines.start(2, knows=(1,))
        await asyncio.sleep(0.3)
        assert lines.world.fabric.connections[0].client_host == "n2"

    run_story(story)


def test_the_smaller_id_dials_where_the_greater_does_not_know_of_it() -> None:
    """Its configuration may be the older one, and its vote be needed (thesis, 4.1)."""

    async def story(lines: Lines) -> None:
        one, two = lines.start(1, knows=(2,)), lines.start(2)
        await asyncio.sleep(1)
        assert (one.events, two.events) == (["up 2"], ["up 1"])
        two.say(1, 7)
        await asyncio.sleep(0.2)
        assert one.received_terms == [7]

    run_story(story)


def test_nothing_is_replayed_after_a_break() -> None:
    async def story(lines: Lines) -> None:
        one, two = lines.start(1, knows=(2,)), lines.start(2, knows=(1,))
        await asyncio.sleep(1)
        lines.world.fabric.block("n1", "n2")
        one.say(2, 1, 2, 3)
        await asyncio.sleep(0.1)
        lines.world.fabric.reset("n1", "n2")
        lines.world.fabric.heal()
        await asyncio.sleep(0.01)
        one.say(2, 4)  # there is no link: dropped
        await asyncio.sleep(2)
        one.say(2, 5)
        await asyncio.sleep(0.2)
        assert two.received_terms == [5]
        assert two.events == ["up 1", "down 1", "up 1"]

    run_story(story)


def test_a_peer_that_came_back_takes_the_place_of_its_ghost() -> None:
    """It lost its power: this side was not notified that the old link is closed."""

    async def story(lines: Lines) -> None:
        one = lines.start(1, knows=(2,))
        lines.start(2, knows=(1,))
        await asyncio.sleep(1.5)
        lines.world.host("n2").power_cut()
        await asyncio.sleep(0.2)
        two = lines.start(2, knows=(1,))
        await asyncio.sleep(1)
        assert one.events == ["up 2", "down 2", "up 2"]
        one.say(2, 9)
        await asyncio.sleep(0.2)
        assert two.received_terms == [9]

    run_story(story)


def test_twins_that_both_sides_dialled_settle_on_one() -> None:
    for seed in range(20):

        async def story(lines: Lines) -> None:
            one = lines.start(1, knows=(2,), second_choice_ms=1)
            two = lines.start(2, knows=(1,))
            await asyncio.sleep(3)
            assert one.events[-1] == "up 2"
            assert two.events[-1] == "up 1"
            one.say(2, 1)
            two.say(1, 2)
            await asyncio.sleep(0.5)
            assert (two.received_terms, one.received_terms) == ([1], [2])

        run_story(story, seed)


def test_another_cluster_is_refused_with_a_reason() -> None:
    seen: list[dict[str, object]] = []

    async def story(lines: Lines) -> None:
        lines.world.listeners.append(lambda host, event, fields: seen.append({"host": host.name, **fields}))
        one = lines.start(1, knows=(2,))
        two = lines.start(2, knows=(1,), cluster_id="another")
        await asyncio.sleep(1)
        assert (one.events, two.events) == ([], [])

    run_story(story)
    assert any(entry["host"] == "n2" and "cluster" in str(entry["reason"]) for entry in seen)


def test_a_node_with_this_nodes_id_is_refused() -> None:
    async def story(lines: Lines) -> None:
        lines.start(1)
        client = lines.world.host("client").boot()

        async def dial() -> None:
            async with client.network.connect(f"n1:{PORT}").stream(METHOD) as stream:
                hello = PeerHello(cluster_id="c", node_id=BrokerId(1), directory_id=DirectoryId(bytes(16)))
                await stream.send(wire.encode_hello(hello))
                while await stream.recv() is not None:
                    pass

        task = lines.world.host("client").spawn(dial())
        await asyncio.wait([task])
        error = task.exception()
        assert isinstance(error, RpcError)
        assert error.status is Status.FAILED_PRECONDITION
        assert "have the id 1" in error.message

    run_story(story)


def test_what_is_no_message_ends_the_link() -> None:
    async def story(lines: Lines) -> None:
        one = lines.start(1)
        client = lines.world.host("client").boot()

        async def dial() -> None:
            async with client.network.connect(f"n1:{PORT}").stream(METHOD) as stream:
                hello = PeerHello(cluster_id="c", node_id=BrokerId(9), directory_id=DirectoryId(bytes([9]) * 16))
                await stream.send(wire.encode_hello(hello))
                await stream.recv()
                await stream.send(b"\xff\xff\xff")
                while await stream.recv() is not None:
                    pass

        await asyncio.wait([lines.world.host("client").spawn(dial())])
        assert one.events == ["up 9", "down 9"]

    run_story(story)


def test_who_says_nothing_is_let_go() -> None:
    async def story(lines: Lines) -> None:
        one = lines.start(1)
        client = lines.world.host("client").boot()

        async def dial() -> None:
            async with client.network.connect(f"n1:{PORT}").stream(METHOD) as stream:
                while await stream.recv() is not None:
                    pass

        await asyncio.wait([lines.world.host("client").spawn(dial())])
        assert one.events == []

    run_story(story)


def test_a_peer_that_does_not_take_what_it_is_sent_loses_its_link() -> None:
    """Queues are bounded: the link ends, and with it the queue."""

    async def story(lines: Lines) -> None:
        one, two = lines.start(1, knows=(2,)), lines.start(2, knows=(1,))
        await asyncio.sleep(1)
        two.gate.clear()
        chunk = SnapshotRequest(
            term=RaftTerm(1),
            round=1,
            last_index=RaftIndex(1),
            last_term=RaftTerm(1),
            size=1 << 20,
            offset=0,
            data=bytes(1 << 20),
        )
        for _ in range(40):
            one.transport.send(BrokerId(2), chunk)
        await asyncio.sleep(0.05)
        assert one.events[:2] == ["up 2", "down 2"]

    run_story(story)


def test_only_so_many_links() -> None:
    async def story(lines: Lines) -> None:
        one = lines.start(1, links_max=2)
        for node_id in (2, 3, 4):
            lines.start(node_id, knows=(1,))
        await asyncio.sleep(1)
        assert len([event for event in one.events if event.startswith("up")]) == 2

    run_story(story)


def test_nobody_is_dialled_any_more_who_is_not_wanted() -> None:
    async def story(lines: Lines) -> None:
        one, two = lines.start(1), lines.start(2, knows=(1,))
        await asyncio.sleep(0.5)
        assert one.events == ["up 2"]
        two.transport.want([])
        await asyncio.sleep(0.5)
        assert one.events == ["up 2", "down 2"]
        await asyncio.sleep(2)
        assert one.events == ["up 2", "down 2"]

    run_story(story)
