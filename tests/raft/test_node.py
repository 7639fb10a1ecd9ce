"""RaftNode: what the rest of the node may rely on (port.Quorum), on whole clusters in virtual time."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from streamlog.errors import (
    InvalidRequestError,
    MessageTooLargeError,
    NotControllerError,
    OutcomeUnknownError,
    QuorumUnavailableError,
    StorageError,
    ThrottledError,
)
from streamlog.raft.node import RaftNode
from streamlog.raft.port import Leadership, Quorum

from .kit import Cluster, Member
from .stories import now, run_story


def test_the_node_has_all_of_the_port() -> None:
    """mypy checks the types (node.py); this, that nothing is left out."""
    port = {name for name in vars(Quorum) if not name.startswith("_")}
    assert len(port) >= 10
    assert port <= set(dir(RaftNode))


@pytest.mark.parametrize("size", [1, 3, 5])
def test_commands_reach_every_member(size: int) -> None:
    async def story(cluster: Cluster) -> None:
        for number in range(20):
            applied = await cluster.put(f"k={number}")
        assert applied.result == b"18"  # the value before
        await cluster.settle()
        assert {member.machine.digest for member in cluster.members()} == {cluster.members()[0].machine.digest}
        assert all(member.machine.count == 20 for member in cluster.members())

    run_story(story, size=size)


def test_commands_in_flight_share_syncs() -> None:
    async def story(cluster: Cluster) -> None:
        leader = await cluster.wait_for_leader()
        before = cluster.host(leader.node_id).disk.stats.syncs
        proposals = [cluster.call(leader, leader.raft.propose(b"k=%d" % number)) for number in range(64)]
        indexes = sorted(applied.index for applied in await asyncio.gather(*proposals))
        assert indexes == list(range(indexes[0], indexes[0] + 64))
        assert cluster.host(leader.node_id).disk.stats.syncs - before < 8

    run_story(story)


def test_the_time_of_each_commit_is_counted_where_it_is_led() -> None:
    async def story(cluster: Cluster) -> None:
        leader = await cluster.wait_for_leader()
        began = now(cluster)
        for number in range(5):
            await cluster.put(f"k={number}")
        took_s = now(cluster) - began
        latency = leader.raft.commit_latency_s()
        assert latency.count == 5
        assert 0 < latency.sum <= took_s
        others = [member for member in cluster.members() if member is not leader]
        assert [member.raft.commit_latency_s().count for member in others] == [0, 0]

    run_story(story)


def test_a_command_that_is_not_committed_has_no_latency() -> None:
    async def story(cluster: Cluster) -> None:
        leader = await cluster.wait_for_leader()
        for member in cluster.members():
            if member is not leader:
                cluster.host(member.node_id).crash()
        with pytest.raises((NotControllerError, OutcomeUnknownError)):
            await cluster.call(leader, leader.raft.propose(b"k=1"))
        assert leader.raft.commit_latency_s().count == 0

    run_story(story)


def test_a_follower_names_the_leader() -> None:
    async def story(cluster: Cluster) -> None:
        leader = await cluster.wait_for_leader()
        await cluster.put("k=1")
        await cluster.settle()
        follower = next(member for member in cluster.members() if member is not leader)
        for request in (follower.raft.propose(b"k=2"), follower.raft.read_barrier()):
            with pytest.raises(NotControllerError) as caught:
                await cluster.call(follower, request)
            assert caught.value.details == {"leader": leader.node_id, "address": f"n{leader.node_id}:9092"}

    run_story(story)


def test_a_retried_command_is_applied_once() -> None:
    async def story(cluster: Cluster) -> None:
        first = await cluster.put("k=1", client_id="c", sequence=7)
        again = await cluster.put("k=1", client_id="c", sequence=7)
        assert (again.index, again.result, again.repeated) == (first.index, first.result, True)
        other = await cluster.put("k=1", client_id="d", sequence=7)
        assert not other.repeated
        leader = await cluster.wait_for_leader()
        cluster.host(leader.node_id).crash()
        third = await cluster.put("k=1", client_id="c", sequence=7)
        assert (third.index, third.repeated) == (first.index, True)

    run_story(story)


def test_a_retried_command_is_applied_once_over_a_snapshot() -> None:
    async def story(cluster: Cluster) -> None:
        first = await cluster.put("k=1", client_id="c", sequence=7)
        await cluster.settle()
        for member in cluster.members():
            member.raft.want_snapshot()
        await asyncio.sleep(0.5)
        for node_id in (1, 2, 3):
            cluster.host(node_id).power_cut()
        cluster.start()
        again = await cluster.put("k=1", client_id="c", sequence=7)
        assert (again.index, again.repeated) == (first.index, True)
        assert len(cluster.members()) == 3
        assert all(member.machine.installed for member in cluster.members())

    run_story(story)


def test_a_sequence_that_is_too_old_is_refused() -> None:
    async def story(cluster: Cluster) -> None:
        for sequence in range(10, 150):
            await cluster.put("k=1", client_id="c", sequence=sequence)
        leader = await cluster.wait_for_leader()
        with pytest.raises(OutcomeUnknownError, match="too old"):
            await cluster.call(leader, leader.raft.propose(b"k=1", client_id="c", sequence=10))

    run_story(story)


@pytest.mark.parametrize(
    ("command", "client_id", "sequence", "error"),
    [
        (b"k" * 1001, "", 0, MessageTooLargeError),
        (b"k=1", "c" * 129, 0, InvalidRequestError),
        (b"k=1", "c", -1, InvalidRequestError),
        (b"k=1", "c", 2**63, InvalidRequestError),
    ],
)
def test_what_cannot_be_is_refused_at_once(
    command: bytes, client_id: str, sequence: int, error: type[Exception]
) -> None:
    async def story(cluster: Cluster) -> None:
        leader = await cluster.wait_for_leader()
        with pytest.raises(error):
            await cluster.call(leader, leader.raft.propose(command, client_id=client_id, sequence=sequence))

    run_story(story, command_bytes_max=1000)


def test_too_many_commands_are_refused_by_name() -> None:
    async def story(cluster: Cluster) -> None:
        leader = await cluster.wait_for_leader()
        proposals = [cluster.call(leader, leader.raft.propose(b"k=1")) for _ in range(20)]
        outcomes = await asyncio.gather(*proposals, return_exceptions=True)
        refused = [outcome for outcome in outcomes if isinstance(outcome, ThrottledError)]
        assert len(refused) == 12
        await cluster.put("k=3")
        assert leader.machine.count == 9

    run_story(story, proposals_max=8)


def test_a_leader_that_is_cut_off_tells_who_waits() -> None:
    async def story(cluster: Cluster) -> None:
        leader = await cluster.wait_for_leader()
        await cluster.put("k=0")
        for other in cluster.members():
            if other is not leader:
                cluster.world.fabric.block(f"n{other.node_id}", f"n{leader.node_id}")
        begin = now(cluster)
        with pytest.raises(OutcomeUnknownError):
            await cluster.call(leader, leader.raft.propose(b"k=1"))
        with pytest.raises(NotControllerError):
            await cluster.call(leader, leader.raft.propose(b"k=2"))
        assert now(cluster) - begin < cluster.settings.patience_max_ms / 1000 + 0.1
        await cluster.wait_for_leader(other_than=leader.node_id)

    run_story(story)


def test_a_cancelled_proposal_leaves_nothing_behind() -> None:
    async def story(cluster: Cluster) -> None:
        leader = await cluster.wait_for_leader()
        task = cluster.host(leader.node_id).spawn(leader.raft.propose(b"k=1"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0.2)
        assert leader.raft._running is not None
        assert leader.raft._running.callers == 0
        await cluster.put("k=2")

    run_story(story)


@pytest.mark.parametrize("power", [False, True])
def test_fail_over(power: bool) -> None:
    """A process that dies is found out by its streams; a machine without power by its silence."""

    async def story(cluster: Cluster) -> None:
        await cluster.put("k=0")
        for _ in range(5):
            leader = await cluster.wait_for_leader()
            host = cluster.host(leader.node_id)
            begin = now(cluster)
            host.power_cut() if power else host.crash()
            await cluster.put(f"k={begin}")
            assert now(cluster) - begin < (0.9 if power else 0.3)
            cluster.start(leader.node_id)
            await asyncio.sleep(1)

    run_story(story)


def test_an_idle_quorum_keeps_its_leader_and_is_quiet() -> None:
    async def story(cluster: Cluster) -> None:
        leader = await cluster.wait_for_leader()
        await cluster.put("k=0")
        await asyncio.sleep(3)
        frames, steps = cluster.world.fabric.frames, cluster.world.loop.steps
        await asyncio.sleep(60)
        assert await cluster.wait_for_leader() is leader
        assert leader.raft.leadership().term == 1
        assert cluster.world.fabric.frames - frames < 60 * 16  # two peers: requests, answers, and a credit for each
        assert cluster.world.loop.steps - steps < 60 * 60

    run_story(story)


def test_silence_of_an_idle_leader_is_noticed() -> None:
    async def story(cluster: Cluster) -> None:
        leader = await cluster.wait_for_leader()
        await asyncio.sleep(10)
        begin = now(cluster)
        cluster.host(leader.node_id).power_cut()
        await cluster.wait_for_leader(other_than=leader.node_id)
        assert now(cluster) - begin < 1.5

    run_story(story)


def test_leadership_is_watched() -> None:
    async def story(cluster: Cluster) -> None:
        seen: list[Leadership] = []
        watched = cluster.member(2)
        await watched.raft.wait_until_up()

        async def watch(member: Member) -> None:
            async for leadership in member.raft.watch_leadership():
                seen.append(leadership)

        task = cluster.host(2).spawn(watch(watched))
        for _ in range(2):
            leader = await cluster.wait_for_leader()
            await cluster.put("k=1")
            if leader is not watched:
                cluster.host(leader.node_id).crash()
                await cluster.wait_for_leader(other_than=leader.node_id)
                cluster.start(leader.node_id)
        task.cancel()
        assert seen[0].leader is None
        assert seen[-1] == watched.raft.leadership()
        assert [leadership.term for leadership in seen] == sorted(leadership.term for leadership in seen)
        assert all(a != b for a, b in itertools.pairwise(seen))
        assert all(leadership.is_self for leadership in seen if leadership.is_ready)

    run_story(story)


def test_a_leader_is_ready_when_it_has_what_was_committed_before() -> None:
    async def story(cluster: Cluster) -> None:
        for number in range(300):
            await cluster.put(f"k={number}")
        old = await cluster.wait_for_leader()
        cluster.host(old.node_id).crash()
        leader = await cluster.wait_for_leader(other_than=old.node_id)
        assert leader.machine.values["k"] == "299"

    run_story(story, apply_entries_max=10)


def test_a_read_barrier_sees_what_was_acknowledged() -> None:
    async def story(cluster: Cluster) -> None:
        for number in range(10):
            applied = await cluster.put(f"k={number}")
            leader = await cluster.wait_for_leader()
            assert await cluster.call(leader, leader.raft.read_barrier()) >= applied.index
            assert leader.machine.values["k"] == str(number)

    run_story(story)


def test_the_leadership_is_handed_over() -> None:
    async def story(cluster: Cluster) -> None:
        leader = await cluster.wait_for_leader()
        await cluster.put("k=1")
        begin = now(cluster)
        await cluster.call(leader, leader.raft.transfer_leadership())
        await cluster.wait_for_leader(other_than=leader.node_id)
        assert now(cluster) - begin < 0.2
        with pytest.raises(NotControllerError):
            await cluster.call(leader, leader.raft.transfer_leadership())

    run_story(story)


def test_before_and_after_its_life_a_node_refuses() -> None:
    async def story(cluster: Cluster) -> None:
        first = cluster.member(1)
        with pytest.raises(QuorumUnavailableError):
            first.raft.leadership()
        await cluster.put("k=1")
        leader = await cluster.wait_for_leader()
        task = cluster.host(leader.node_id).task
        leader.raft.stop()
        assert task is not None
        await task
        with pytest.raises(QuorumUnavailableError):
            await leader.raft.propose(b"k=2")
        await cluster.put("k=3")

    run_story(story)


def test_a_node_that_stops_tells_who_waits() -> None:
    async def story(cluster: Cluster) -> None:
        leader = await cluster.wait_for_leader()
        cluster.host(leader.node_id).disk.faults.slow = 1000
        proposal = asyncio.ensure_future(cluster.call(leader, leader.raft.propose(b"k=1")))
        await asyncio.sleep(0.001)
        leader.raft.stop()
        with pytest.raises(OutcomeUnknownError, match="stopped"):
            await proposal

    run_story(story)


def test_a_disk_that_fails_ends_the_node_and_not_the_quorum() -> None:
    async def story(cluster: Cluster) -> None:
        leader = await cluster.wait_for_leader()
        cluster.host(leader.node_id).disk.faults.sync_errors = 1
        await cluster.put("k=1")
        await asyncio.sleep(0.1)
        task = cluster.host(leader.node_id).task
        assert task is not None
        assert isinstance(task.exception(), StorageError)
        await cluster.put("k=2")
        assert len(cluster.members()) == 2

    run_story(story)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_a_quorum_that_starts_elects_without_waiting_for_a_time_out(size: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.wait_for_leader()
        assert now(cluster) < 0.25  # the shortest time-out is 0.3 s
        await cluster.settle()
        assert {member.raft.leadership().term for member in cluster.members()} == {1}

    run_story(story, size=size)


def test_links_stay_when_the_leader_writes_down_the_directories() -> None:
    async def story(cluster: Cluster) -> None:
        leader = await cluster.wait_for_leader()
        links = dict(leader.runner.transport._links)
        await asyncio.sleep(0.5)
        assert all(voter.directory_id for voter in leader.raft.voters())
        assert leader.runner.transport._links == links

    run_story(story)
