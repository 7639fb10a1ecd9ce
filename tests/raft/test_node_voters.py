"""RaftNode: changes of the voters, and snapshots, on whole clusters in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from streamlog.errors import (
    DuplicateVoterError,
    InvalidRequestError,
    NotControllerError,
    OutcomeUnknownError,
    QuorumUnavailableError,
    VoterChangeInProgressError,
    VoterNotFoundError,
)
from streamlog.model import BrokerId, RaftIndex
from streamlog.ports.bundle import Ports
from streamlog.raft.core.voter_changes import VoterChanges, _Change
from streamlog.raft.settings import QuorumSettings
from streamlog.raft.voters import Voter, VoterSet
from streamlog.sim import SimDisk, SimLoop
from streamlog.sim import run as run_simulation
from streamlog.sim.world import World

from .kit import Cluster, Member, voter, voters
from .stories import run_story

# Voters.


def test_voters_are_added_and_removed() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.start(4, 5, bootstrap=voters(1, 2, 3))
        for number in range(30):
            await cluster.put(f"k={number}")
        leader = await cluster.wait_for_leader()
        await cluster.call(leader, leader.raft.add_voter(voter(4)))
        await cluster.call(leader, leader.raft.add_voter(voter(5)))
        await cluster.settle()
        assert [v.node_id for v in leader.raft.voters()] == [1, 2, 3, 4, 5]
        assert all(v.directory_id for v in leader.raft.voters())
        others = [v.node_id for v in leader.raft.voters() if v.node_id != leader.node_id]
        for node_id in others[:2]:
            cluster.host(node_id).crash()  # three of five are a majority
        await cluster.put("k=31")
        await cluster.call(leader, leader.raft.remove_voter(others[0]))
        await cluster.call(leader, leader.raft.remove_voter(others[1]))
        cluster.host(others[2]).crash()  # and two of three
        await cluster.put("k=32")

    run_story(story)


@pytest.mark.parametrize("leader_id", [1, 2, 3])
def test_the_leader_is_removed_and_the_removal_is_acknowledged(leader_id: int) -> None:
    """Followers with greater ids dialled the leader. They keep the link until the removal is committed: else their
    acknowledgements of it are lost, and another leader is elected before this one can commit.
    """
    elected: list[bool] = []

    async def story(cluster: Cluster) -> None:
        cluster.world.listeners.append(lambda host, event, fields: elected.append(event == "became_leader"))
        await cluster.put("k=1")
        while (leader := await cluster.wait_for_leader()).node_id != leader_id:
            await cluster.call(leader, leader.raft.transfer_leadership())
            await asyncio.sleep(0.5)
        await cluster.settle()
        await asyncio.sleep(2)  # links that both sides dialled at the start are settled
        before = sum(elected)
        index = await cluster.call(leader, leader.raft.remove_voter(BrokerId(leader_id)))
        assert sum(elected) == before, "it was committed by the leader that was asked"
        await cluster.put("k=2")
        rest = [member for member in cluster.members() if member is not leader]
        assert all(member.raft.applied_index > index for member in rest if member.raft.leadership().is_self)
        for member in rest:
            assert leader_id not in [v.node_id for v in member.raft.voters()]
            assert member.raft._running is not None
            async with asyncio.timeout(5):
                while BrokerId(leader_id) in member.raft._running.transport._wanted:  # noqa: ASYNC110  virtual time
                    await asyncio.sleep(0.1)

    run_story(story)


def test_a_dead_voter_is_replaced() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.start(4, bootstrap=voters(1, 2, 3))
        await cluster.put("k=1")
        leader = await cluster.wait_for_leader()
        dead = next(node_id for node_id in (1, 2, 3) if node_id != leader.node_id)
        cluster.host(dead).power_cut()
        await cluster.call(leader, leader.raft.replace_voter(BrokerId(dead), voter(4)))
        ids = [v.node_id for v in leader.raft.voters()]
        assert ids == sorted({1, 2, 3, 4} - {dead})
        another = next(node_id for node_id in ids if node_id not in (leader.node_id, 4))
        cluster.host(another).power_cut()
        await cluster.put("k=2")

    run_story(story)


def test_changes_that_make_no_sense_are_refused() -> None:
    async def story(cluster: Cluster) -> None:
        leader = await cluster.wait_for_leader()
        with pytest.raises(DuplicateVoterError):
            await cluster.call(leader, leader.raft.add_voter(voter(2)))
        with pytest.raises(VoterNotFoundError):
            await cluster.call(leader, leader.raft.remove_voter(BrokerId(9)))
        with pytest.raises(QuorumUnavailableError, match="catch up"):
            await cluster.call(leader, leader.raft.add_voter(voter(9)))
        with pytest.raises(InvalidRequestError, match="replace itself"):
            await cluster.call(leader, leader.raft.replace_voter(BrokerId(leader.node_id), voter(9)))
        follower = next(member for member in cluster.members() if member is not leader)
        with pytest.raises(NotControllerError):
            await cluster.call(follower, follower.raft.remove_voter(BrokerId(1)))

    run_story(story, catch_up_timeout_ms=500)


def test_a_voter_that_comes_back_elsewhere_is_dialled_there() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.put("k=1")
        await cluster.settle()
        leader = await cluster.wait_for_leader()
        other = next(node_id for node_id in (1, 2, 3) if node_id != leader.node_id)
        cluster.host(other).power_cut()
        moved = Voter(node_id=BrokerId(other), address="elsewhere:9092")
        change = asyncio.ensure_future(cluster.call(leader, leader.raft.replace_voter(BrokerId(other), moved)))
        await asyncio.sleep(0.1)
        assert leader.raft._running is not None
        assert leader.raft._running.transport._wanted[BrokerId(other)] == moved
        with pytest.raises(QuorumUnavailableError):
            await change
        assert leader.raft._running.transport._wanted[BrokerId(other)].address == f"n{other}:9092"

    run_story(story, catch_up_timeout_ms=300)


def test_one_change_at_a_time() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.put("k=1")
        leader = await cluster.wait_for_leader()
        change = asyncio.ensure_future(cluster.call(leader, leader.raft.add_voter(voter(9))))
        await asyncio.sleep(0.1)
        with pytest.raises(VoterChangeInProgressError):
            await cluster.call(leader, leader.raft.remove_voter(BrokerId(1)))
        with pytest.raises(QuorumUnavailableError):
            await change

    run_story(story, catch_up_timeout_ms=300)


def test_the_last_voter_stays() -> None:
    async def story(cluster: Cluster) -> None:
        leader = await cluster.wait_for_leader()
        with pytest.raises(InvalidRequestError):
            await cluster.call(leader, leader.raft.remove_voter(BrokerId(1)))

    run_story(story, size=1)


def test_one_voter_grows_to_three() -> None:
    async def story(cluster: Cluster) -> None:
        for number in range(5):
            await cluster.put(f"k={number}")
        cluster.start(2, 3, bootstrap=voters(1))
        leader = cluster.member(1)
        await cluster.call(leader, leader.raft.add_voter(voter(2)))
        await cluster.call(leader, leader.raft.add_voter(voter(3)))
        cluster.host(1).power_cut()
        await cluster.put("k=6")
        assert (await cluster.wait_for_leader()).machine.count == 6

    run_story(story, size=1)


def test_a_voter_that_is_alone_may_move() -> None:
    """Its address in the log stayed the old one, so no other node could join."""

    async def story(cluster: Cluster) -> None:
        await cluster.put("k=1")
        [before] = (await cluster.wait_for_leader()).raft.voters()
        cluster.host(1).power_cut()
        for _ in range(2):
            cluster.start(1, address="elsewhere:9092")
            await cluster.put("k=2")
            await cluster.settle()
            leader = await cluster.wait_for_leader()
            [after] = leader.raft.voters()
            assert after == replace(before, address="elsewhere:9092")
            assert leader.raft.leadership().address == "elsewhere:9092"
            recorded = leader.core.voter_sets.index
            cluster.host(1).power_cut()
        cluster.start(1, address="elsewhere:9092")
        await cluster.put("k=3")
        assert (await cluster.wait_for_leader()).core.voter_sets.index == recorded

    run_story(story, size=1)


def test_a_voter_that_became_the_only_one_keeps_its_address_where_the_settings_name_an_old_one() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.put("k=1")
        for node_id in (1, 2, 3):
            cluster.host(node_id).power_cut()
        cluster.start(bootstrap=VoterSet.of(replace(one, address="stale:9092") for one in voters(1, 2, 3)))
        await cluster.put("k=2")
        for _ in range(2):
            await asyncio.sleep(5)
            leader = await cluster.wait_for_leader()
            other = next(one.node_id for one in leader.raft.voters() if one.node_id != leader.node_id)
            await cluster.call(leader, leader.raft.remove_voter(other))
        await asyncio.sleep(5)
        leader = await cluster.wait_for_leader()
        [left] = leader.raft.voters()
        assert left.address == f"n{leader.node_id}:9092"
        assert leader.raft.leadership().address == left.address

    run_story(story)


def test_a_voter_among_others_keeps_the_address_in_the_log() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.put("k=1")
        for node_id in (1, 2, 3):
            cluster.host(node_id).power_cut()
        cluster.start(bootstrap=VoterSet.of(replace(one, address="elsewhere:9092") for one in voters(1, 2, 3)))
        await cluster.put("k=2")
        await cluster.settle()
        leader = await cluster.wait_for_leader()
        assert [one.address for one in leader.raft.voters()] == [one.address for one in voters(1, 2, 3)]

    run_story(story)


def test_a_standby_waits_in_silence() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.start(4, bootstrap=voters(1, 2, 3))
        await cluster.put("k=1")
        await asyncio.sleep(5)
        assert cluster.member(4).raft.leadership().term == 0
        assert (await cluster.wait_for_leader()).raft.leadership().term == 1

    run_story(story)


# Snapshots.


def test_a_node_far_behind_is_sent_a_snapshot() -> None:
    async def story(cluster: Cluster) -> None:
        leader = await cluster.wait_for_leader()
        late = next(node_id for node_id in (1, 2, 3) if node_id != leader.node_id)
        cluster.host(late).crash()
        for number in range(120):
            await cluster.put(f"k{number}={number}")
        cluster.start(late)
        await cluster.member(late).raft.wait_until_up()
        await cluster.settle(leader.raft.applied_index)
        assert cluster.member(late).machine.installed
        assert cluster.member(late).machine.digest == leader.machine.digest
        assert leader.core.log.base.index > 2
        cluster.host(late).power_cut()
        cluster.start(late)
        await cluster.member(late).raft.wait_until_up()
        assert cluster.member(late).machine.values["k7"] == "7"

    run_story(story, snapshot_entries=40, snapshot_trailing_entries=5, snapshot_chunk_bytes=100)


def test_the_journal_is_bounded() -> None:
    async def story(cluster: Cluster) -> None:
        for number in range(400):
            await cluster.put(f"k={number}" + "x" * 100)
        await asyncio.sleep(1)
        for member in cluster.members():
            assert len(member.core.log) < 120
            assert member.core.log.size_bytes < 40_000

    run_story(story, snapshot_entries=50, snapshot_trailing_entries=10)


def test_the_journal_is_bounded_while_commands_never_pause() -> None:
    """Compaction has its turn between two syncs, also when there is always something to sync."""

    async def story(cluster: Cluster) -> None:
        leader = await cluster.wait_for_leader()

        cluster.host(leader.node_id).disk.faults.slow = 5.0
        longest = 0
        for number in range(1500):  # none waits for an answer before the next one asks
            cluster.host(leader.node_id).spawn(leader.raft.propose(b"k=%d" % number))
            longest = max(longest, len(leader.core.log))
            await asyncio.sleep(0.0005)
        await cluster.settle(leader.core.log.last.index)
        assert leader.machine.count == 1500
        assert longest < 700

    run_story(story, snapshot_entries=100, snapshot_trailing_entries=10)


def test_the_probe_is_notified_of_what_happens() -> None:
    events: list[str] = []

    async def story(cluster: Cluster) -> None:
        cluster.world.listeners.append(lambda host, event, fields: events.append(event))
        await cluster.put("k=1")
        await cluster.settle()
        cluster.members()[0].raft.want_snapshot()
        await asyncio.sleep(0.5)

    run_story(story)
    assert {"quorum_up", "became_leader", "leadership", "quorum_voters", "snapshot_taken"} <= set(events)


def test_ports_are_all_that_a_node_gets() -> None:
    """It can be made without touching anything: opening is for `run`."""

    async def main(loop: SimLoop) -> None:
        world = World(loop, 1)
        ports: Ports = world.host("n1").boot()
        Member(1, voters(1), ports, QuorumSettings())
        assert world.host("n1").disk.stats.syncs == 0
        world.stop()

    run_simulation(main)


@pytest.mark.parametrize("size", [3, 5])
def test_a_voter_that_lost_its_disk_gets_its_vote_back(size: int) -> None:
    """By itself: then one more node may be lost."""

    async def story(cluster: Cluster) -> None:
        await cluster.put("k=1")
        await cluster.settle()
        leader = await cluster.wait_for_leader()
        wiped = next(member.node_id for member in cluster.members() if member is not leader)
        lose_disk(cluster, wiped)
        seen: Counter[str] = Counter()
        cluster.world.listeners.append(lambda host, event, fields: seen.update([f"{host.name} {event}"]))
        cluster.start(wiped)
        async with asyncio.timeout(20):
            while not seen[f"n{wiped} own_vote_back"]:  # noqa: ASYNC110  in virtual time
                await asyncio.sleep(0.1)
        assert seen[f"n{wiped} own_vote_missing"] == 1
        assert seen[f"n{leader.node_id} vote_missing"] == 1
        assert all(not member.raft.without_vote() for member in cluster.members())
        lost = next(member.node_id for member in cluster.members() if member.node_id not in (wiped, leader.node_id))
        cluster.host(lost).crash()
        await cluster.put("k=2")

    run_story(story, size=size)


def test_a_lost_disk_is_said_and_left_alone_where_it_is_not_to_be_replaced() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.put("k=1")
        await cluster.settle()
        leader = await cluster.wait_for_leader()
        wiped = next(member.node_id for member in cluster.members() if member is not leader)
        lose_disk(cluster, wiped)
        cluster.start(wiped)
        await asyncio.sleep(30)
        assert all(set(member.raft.without_vote()) == {wiped} for member in cluster.members())
        leader = await cluster.wait_for_leader()
        await cluster.call(leader, leader.raft.replace_voter(BrokerId(wiped), voter(wiped)))
        await cluster.settle()
        assert all(not member.raft.without_vote() for member in cluster.members())

    run_story(story, auto_join=False)


def test_a_voter_whose_removal_alone_was_committed_is_added_by_the_next_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its vote was being restored when the leader failed, between the two entries."""
    failed: list[int] = []

    async def story(cluster: Cluster) -> None:
        await cluster.put("k=1")
        await cluster.settle()
        leader = await cluster.wait_for_leader()
        wiped = next(member.node_id for member in cluster.members() if member is not leader)
        lose_disk(cluster, wiped)

        def crash(changes: VoterChanges) -> None:
            failed.append(leader.node_id)
            asyncio.get_running_loop().call_soon(cluster.host(leader.node_id).crash)

        between_the_entries(monkeypatch, crash)
        cluster.start(wiped)
        async with asyncio.timeout(20):
            while not failed:  # noqa: ASYNC110  in virtual time
                await asyncio.sleep(0.05)
        await asyncio.sleep(1)
        cluster.start(leader.node_id)
        await asyncio.sleep(10)
        leader = await cluster.wait_for_leader()
        assert [v.node_id for v in leader.raft.voters()] == [1, 2, 3]
        assert leader.raft.voters().pending is None
        assert all(not member.raft.without_vote() for member in cluster.members())

    run_story(story)


@pytest.mark.parametrize("withdrawn", [False, True])
def test_a_replacement_that_is_half_done_has_an_unknown_outcome(
    withdrawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is completed, unless the operator removes the new voter."""

    async def story(cluster: Cluster) -> None:
        cluster.start(4, bootstrap=voters(1, 2, 3))
        await cluster.put("k=1")
        leader = await cluster.wait_for_leader()
        dead = next(node_id for node_id in (1, 2, 3) if node_id != leader.node_id)
        cluster.host(dead).power_cut()

        def step_down(changes: VoterChanges) -> None:
            if withdrawn:
                cluster.host(4).crash()
            leader.core.elections.step_down(leader.core.term)

        between_the_entries(monkeypatch, step_down)
        with pytest.raises(OutcomeUnknownError):
            await cluster.call(leader, leader.raft.replace_voter(BrokerId(dead), voter(4)))
        leader = await cluster.wait_for_leader()
        assert leader.raft.voters().pending == voter(4)
        if withdrawn:
            await cluster.call(leader, leader.raft.remove_voter(BrokerId(4)))
            cluster.start(4, bootstrap=voters(1, 2, 3))
        await asyncio.sleep(10)
        assert leader.raft.voters().pending is None
        assert [v.node_id for v in leader.raft.voters()] == sorted(
            {1, 2, 3, 4} - {dead} - ({4} if withdrawn else set())
        )

    run_story(story)


def test_a_replacement_that_is_half_done_is_not_forgotten_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A voter that lost its disk took the place of the one to be added: the quorum stayed one voter short."""

    async def story(cluster: Cluster) -> None:
        cluster.start(6, bootstrap=voters(1, 2, 3, 4, 5))
        await cluster.put("k=1")
        leader = await cluster.wait_for_leader()
        dead, wiped, *_ = (node_id for node_id in range(1, 6) if node_id != leader.node_id)
        cluster.host(dead).power_cut()

        def step_down(changes: VoterChanges) -> None:
            cluster.host(6).crash()
            leader.core.elections.step_down(leader.core.term)

        between_the_entries(monkeypatch, step_down)
        with pytest.raises(OutcomeUnknownError):
            await cluster.call(leader, leader.raft.replace_voter(BrokerId(dead), voter(6)))
        lose_disk(cluster, wiped)
        cluster.start(wiped)
        await asyncio.sleep(10)
        leader = await cluster.wait_for_leader()
        assert leader.raft.voters().pending == voter(6)
        assert set(leader.raft.without_vote()) == {wiped}
        with pytest.raises(VoterChangeInProgressError, match="remove-voter 6"):
            await cluster.call(leader, leader.raft.replace_voter(BrokerId(wiped), voter(wiped)))
        cluster.start(6, bootstrap=voters(1, 2, 3, 4, 5))
        await asyncio.sleep(10)
        leader = await cluster.wait_for_leader()
        assert leader.raft.voters().pending is None
        assert [v.node_id for v in leader.raft.voters()] == sorted({1, 2, 3, 4, 5, 6} - {dead})
        assert not leader.raft.without_vote()

    run_story(story, size=5)


def between_the_entries(monkeypatch: pytest.MonkeyPatch, do: Callable[[VoterChanges], None]) -> None:
    """Once, when the removal is committed and the addition is not in the log."""
    committed = VoterChanges._committed

    def observed(changes: VoterChanges, change: _Change, index: RaftIndex) -> None:
        half_done = change.remove is not None and change.add is not None
        committed(changes, change, index)
        if half_done:
            monkeypatch.undo()
            do(changes)

    monkeypatch.setattr(VoterChanges, "_committed", observed)


def lose_disk(cluster: Cluster, node_id: int) -> None:
    """The machine comes back with another one."""
    host = cluster.host(node_id)
    host.power_cut()
    host.disk = SimDisk(cluster.world.stream(f"disk/{host.name}/new"))
