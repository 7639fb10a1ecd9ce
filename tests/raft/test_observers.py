"""Nodes without a vote follow: a snapshot, then every command, from any voter, whatever breaks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from streamlog.errors import OutcomeUnknownError, Status
from streamlog.model import BrokerId, RaftIndex
from streamlog.ports import RpcError
from streamlog.ports.bundle import Ports
from streamlog.raft import observers
from streamlog.raft.observers import METHOD, Observer
from streamlog.raft.protocol import wire
from streamlog.raft.protocol.observed import ObservedCommands, ObservedSnapshot, WatchRequest
from streamlog.raft.settings import QuorumSettings
from streamlog.raft.voters import VoterSet
from streamlog.sim import SimLoop
from streamlog.sim import run as run_simulation
from streamlog.sim.wires.call import WINDOW_BYTES
from streamlog.sim.world import World

from .kit import PORT, Cluster, voter, voters
from .registers import Registers


class Follower:
    """A broker that is no voter."""

    def __init__(self, name: str, ports: Ports, known: VoterSet) -> None:
        self.machine = Registers()
        self.observer = Observer(
            self.machine,
            known,
            node_id=BrokerId(100),
            cluster_id="test",
            network=ports.network,
            clock=ports.clock,
            random=ports.random,
            workers=ports.workers,
            probe=ports.probe,
        )

    async def run(self) -> None:
        await self.observer.run()


def follow(cluster: Cluster, name: str, *node_ids: int) -> Follower:
    known = voters(*(node_ids or range(1, cluster.size + 1)))
    return cluster.world.host(name).start(lambda ports: Follower(name, ports, known))


def run_story(story: Callable[[Cluster], Awaitable[None]], *, seed: int = 1, **settings: Any) -> None:
    async def main(loop: SimLoop) -> None:
        cluster = Cluster(World(loop, seed), 3, QuorumSettings(**settings))
        cluster.start()
        await story(cluster)
        cluster.world.stop()

    run_simulation(main, seed=seed)


async def until_at(follower: Follower, index: int) -> None:
    while follower.observer.applied_index < index:  # noqa: ASYNC110  watched from outside its process
        await asyncio.sleep(0.02)


async def caught_up(cluster: Cluster, *followers: Follower, within_s: float = 15) -> None:
    leader = await cluster.wait_for_leader()
    async with asyncio.timeout(within_s):
        for follower in followers:
            await until_at(follower, leader.raft.applied_index)
            assert follower.machine.digest == leader.machine.digest
            assert follower.machine.count == leader.machine.count


def test_any_number_follow() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.put("before=1")
        followers = [follow(cluster, f"b{number}") for number in range(20)]
        for number in range(50):
            await cluster.put(f"k={number}")
        await caught_up(cluster, *followers)
        assert all(len(f.machine.applied) >= 40 for f in followers)  # commands, not snapshots again and again

    run_story(story)


def test_a_repeated_command_is_not_delivered() -> None:
    async def story(cluster: Cluster) -> None:
        follower = follow(cluster, "b")
        await cluster.put("k=0")
        await caught_up(cluster, follower)
        for _ in range(3):
            await cluster.put("k=1", client_id="c", sequence=1)
        await caught_up(cluster, follower)
        assert follower.machine.count == 2

    run_story(story)


def test_the_index_moves_without_commands() -> None:
    """No-ops and voters count: who waits for an index must not wait for a command."""

    async def story(cluster: Cluster) -> None:
        follower = follow(cluster, "b")
        await cluster.put("k=0")
        leader = await cluster.wait_for_leader()
        cluster.host(leader.node_id).crash()
        other = await cluster.wait_for_leader(other_than=leader.node_id)
        task = cluster.world.host("b").spawn(follower.observer.wait_until_applied(other.raft.applied_index))
        await asyncio.wait_for(asyncio.wait([task]), 10)
        assert follower.machine.count == 1

    run_story(story)


def test_voters_die_and_the_observers_go_on() -> None:
    async def story(cluster: Cluster) -> None:
        followers = [follow(cluster, f"b{number}") for number in range(3)]
        for round_ in range(6):
            for number in range(5):
                await cluster.put(f"k={round_}.{number}")
            victim = cluster.host(round_ % 3 + 1)
            (victim.power_cut if round_ % 2 else victim.crash)()
            await cluster.put(f"after={round_}")
            cluster.start(round_ % 3 + 1)
            await asyncio.sleep(0.5)
        await caught_up(cluster, *followers)

    run_story(story)


def test_a_voter_that_is_behind_is_waited_for() -> None:
    async def story(cluster: Cluster) -> None:
        follower = follow(cluster, "b", 1)
        applied = await cluster.put("k=0")
        await until_at(follower, applied.index)
        for other in (2, 3):
            cluster.world.fabric.block(f"n{other}", "n1")
        for number in range(10):
            await cluster.put(f"k={number}")
        await asyncio.sleep(0.5)
        assert follower.machine.values.get("k") == "0"
        cluster.world.fabric.heal()
        await caught_up(cluster, follower)

    run_story(story)


def test_an_observer_that_is_too_far_behind_gets_a_snapshot() -> None:
    async def story(cluster: Cluster) -> None:
        follower = follow(cluster, "b")
        await cluster.put("k=0")
        await caught_up(cluster, follower)
        cluster.world.host("b").pause()
        for number in range(60):  # more than the buffer and the window of its stream take together
            await cluster.put(f"k{number}={'x' * 2_000}")
        cluster.world.host("b").resume()
        await caught_up(cluster, follower)
        assert len(follower.machine.installed) >= 2

    assert WINDOW_BYTES + 40_000 < 60 * 2_000
    run_story(story, observer_buffer_bytes=20_000, observer_message_bytes=5_000)


def test_what_the_hub_keeps_is_bounded() -> None:
    async def story(cluster: Cluster) -> None:
        for number in range(100):
            await cluster.put(f"k{number}={'x' * 100}")
        for member in cluster.members():
            hub = member.raft._hub
            assert hub._bytes == sum(len(c) + observers.COMMAND_OVERHEAD_BYTES for _, c in hub._commands) <= 5_000

    run_story(story, observer_buffer_bytes=5_000)


def test_messages_are_bounded_and_in_order() -> None:
    received: dict[int, list[Any]] = {0: [], 5: []}  # by what the observer has already

    async def story(cluster: Cluster) -> None:
        for number in range(40):
            await cluster.put(f"k{number}={'x' * 50}")
        ports = cluster.world.host("b").boot()

        async def watch(applied: int) -> None:
            async with ports.network.connect(f"n1:{PORT}").stream(METHOD) as stream:
                request = WatchRequest(cluster_id="test", applied_index=RaftIndex(applied))
                await stream.send(wire.encode_watch_request(request))
                while (data := await stream.recv()) is not None:
                    received[applied].append(wire.decode_observed(data))

        tasks = [cluster.world.host("b").spawn(watch(0)), cluster.world.host("b").spawn(watch(5))]
        await asyncio.sleep(3)
        for task in tasks:
            task.cancel()

    run_story(story, observer_message_bytes=200)
    pieces = [m for m in received[0] if isinstance(m, ObservedSnapshot)]
    news = [m for m in received[5] if isinstance(m, ObservedCommands)]
    assert len(pieces) > 5
    assert [piece.first for piece in pieces].count(True) == [piece.last for piece in pieces].count(True) == 1
    assert all(len(piece.data) <= 200 for piece in pieces)
    indexes = [index for message in news for index, _ in message.commands]
    assert indexes == sorted(set(indexes))
    assert min(indexes) > 5
    assert all(sum(len(c) for _, c in message.commands) <= 200 for message in news)


def test_a_quiet_hub_says_that_it_lives() -> None:
    async def story(cluster: Cluster) -> None:
        follower = follow(cluster, "b")
        await cluster.put("k=0")
        await caught_up(cluster, follower)
        installed = len(follower.machine.installed)
        await asyncio.sleep(60)
        assert len(follower.machine.installed) == installed  # the same stream all the time

    run_story(story)


def test_a_silent_voter_is_left() -> None:
    async def story(cluster: Cluster) -> None:
        follower = follow(cluster, "b")
        await cluster.put("k=0")
        await caught_up(cluster, follower)
        cluster.world.fabric.keepalive_s = 1000.0  # gRPC does not notice either
        watched = next(c.server_host for c in cluster.world.fabric.connections if c.client_host == "b")
        cluster.world.fabric.block(watched, "b")
        for number in range(5):
            await cluster.put(f"k={number}")
        leader = await cluster.wait_for_leader()
        async with asyncio.timeout(60):
            await until_at(follower, leader.raft.applied_index)

    run_story(story)


def test_whoever_it_knew_may_be_replaced_in_time() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.start(4, 5, 6, bootstrap=voters(1, 2, 3))
        await cluster.put("k=1")
        follower = follow(cluster, "b", 1, 2, 3)
        await caught_up(cluster, follower)
        for gone in (1, 2, 3):
            leader = await cluster.wait_for_leader()
            await cluster.call(leader, leader.raft.add_voter(voter(gone + 3)))
            leader = await cluster.wait_for_leader()
            with suppress(OutcomeUnknownError):  # it leads, and hands over
                await cluster.call(leader, leader.raft.remove_voter(BrokerId(gone)))
            leader = await cluster.wait_for_leader(other_than=gone)
            assert gone not in [voter.node_id for voter in leader.raft.voters()]
            cluster.host(gone).power_cut()
            await caught_up(cluster, follower, within_s=60)  # some that it asks have no power, and no event says so
        await cluster.put("k=2")
        await caught_up(cluster, follower)
        assert [voter.node_id for voter in follower.observer.voters] == [4, 5, 6]

    run_story(story)


def test_an_observer_of_another_cluster_is_refused() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.put("k=0")
        ports = cluster.world.host("b").boot()

        async def watch() -> None:
            async with ports.network.connect(f"n1:{PORT}").stream(METHOD) as stream:
                request = WatchRequest(cluster_id="another", applied_index=RaftIndex(0))
                await stream.send(wire.encode_watch_request(request))
                await stream.recv()

        task = cluster.world.host("b").spawn(watch())
        await asyncio.wait([task])
        with pytest.raises(RpcError) as caught:
            task.result()
        assert caught.value.status is Status.FAILED_PRECONDITION

    run_story(story)


def test_a_voter_that_was_voted_out_is_left() -> None:
    """It keeps running but receives nothing: its keepalives would hold the observer at an old state permanently."""

    async def story(cluster: Cluster) -> None:
        await cluster.put("k=0")
        leader = await cluster.wait_for_leader()
        out = next(member.node_id for member in cluster.members() if member is not leader)
        follower = follow(cluster, "b", out)
        await caught_up(cluster, follower)
        seen = watch(cluster)
        await cluster.call(leader, leader.raft.remove_voter(BrokerId(out)))
        await cluster.put("k=1")
        assert cluster.host(out).alive
        await caught_up(cluster, follower)
        assert seen["observer_stream_lost"] == seen["observer_stream_found"] == 1

    run_story(story)


def test_a_node_whose_addition_was_given_up_stops_following_that_leader() -> None:
    """It is no voter, so it starts no election: it would follow the failed leader permanently, and not observe."""

    async def story(cluster: Cluster) -> None:
        cluster.start(4, bootstrap=voters(1, 2, 3))
        await cluster.put("k=0")
        leader = await cluster.wait_for_leader()
        for other in {1, 2, 3} - {leader.node_id}:  # the change is never committed
            cluster.host(other).crash()
        adding = cluster.host(leader.node_id).spawn(leader.raft.add_voter(voter(4)))
        joining = cluster.member(4).raft
        async with asyncio.timeout(10):
            async for leadership in joining.watch_leadership():
                if leadership.leader == leader.node_id:
                    break
        cluster.host(leader.node_id).power_cut()
        for other in {1, 2, 3} - {leader.node_id}:
            cluster.start(other)
        await cluster.wait_for_leader(other_than=leader.node_id)
        await asyncio.sleep(5)
        assert joining.leadership().leader != leader.node_id
        adding.cancel()

    run_story(story)


def test_nobody_follows_a_voter_that_hears_no_leader() -> None:
    """Two of three voters are gone: their observers say once that no voter can be followed, and follow again later."""

    async def story(cluster: Cluster) -> None:
        await cluster.put("k=0")
        follower = follow(cluster, "b")
        await caught_up(cluster, follower)
        seen = watch(cluster)
        for gone in (1, 2):
            cluster.host(gone).crash()
        await asyncio.sleep(40)
        assert follower.observer.received_voters is None
        assert seen["observer_stream_lost"] == 1
        cluster.start(1, 2)
        await cluster.put("k=1")
        await caught_up(cluster, follower)
        assert seen["observer_stream_found"] == 1

    run_story(story)


def test_a_source_that_says_that_it_hears_nothing_is_left() -> None:
    news = ObservedCommands(commands=(), applied_index=RaftIndex(9), quorum_silence_ms=10**6)
    assert wire.decode_observed(wire.encode_observed(news)) == news
    old = ObservedCommands(commands=(), applied_index=RaftIndex(9))
    assert wire.decode_observed(wire.encode_observed(old)) == old


def watch(cluster: Cluster) -> Counter[str]:
    """What is said from now on, by event."""
    seen: Counter[str] = Counter()
    cluster.world.listeners.append(lambda host, event, fields: seen.update([event]))
    return seen
