"""Each defect of PySyncObj 0.3.17 that the hardening answers: shown by the untouched library, not by ours.

Every test runs twice: the untouched library must show the defect (else the test proves nothing, or a new release has
fixed it, and the hardening can go), and the hardened core must not. Line numbers are of pysyncobj/syncobj.py 0.3.17.
"""

from __future__ import annotations

import asyncio
import collections
import logging
from collections.abc import Iterator
from typing import Any

import pysyncobj.pickle
import pysyncobj.syncobj as library
import pytest

from streamlog.errors import OutcomeUnknownError, VoterChangeInProgressError
from streamlog.model import BrokerId, RaftIndex, RaftTerm
from streamlog.raft.core.library import PRIVATE
from streamlog.raft.protocol.messages import AppendReply, VoteReply
from streamlog.raft.voters import VoterSet
from streamlog.sim import SimLoop
from streamlog.sim import run as run_simulation
from streamlog.sim.world import World

from ..kit import Cluster, voter
from .both_labs import BOTH
from .lab import Lab
from .our_lab import OurLab
from .plain_lab import LabNode, PlainLab


@pytest.fixture(autouse=True)
def _quiet_library() -> Iterator[None]:
    """It logs the exceptions that it swallows."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_the_names_that_we_know_of_are_there() -> None:
    """Another release of the library fails here, and not in a cluster."""
    plain = PlainLab(3).nodes[1]
    overridden = ["sendAppendEntries", "generateRaftTimeout"]
    assert [name for name in [*PRIVATE, *overridden] if not hasattr(plain, f"_SyncObj__{name}")] == []


# Replication.


def deposed_with_a_command(lab: Lab) -> None:
    """Node 1 led, is cut off with a command of its own; node 2 leads, and has only a snapshot to offer."""
    lab.elect(1)
    lab.partition([1], [2, 3])
    lab.submit(1, "mine")
    lab.tick(1)
    lab.elect(2, 2, 3)
    for number in range(10):
        lab.submit(2, f"other{number}")
    lab.run(4, 2, 3)
    lab.compact(2)
    lab.run(3, 2, 3)
    lab.heal()
    lab.clock.now += 0.2
    lab.tick(2)
    lab.deliver(2, 1, 1)
    lab.tick(1)


@BOTH
def test_t1_a_snapshot_confirms_what_a_deposed_leader_has(kind: type[Lab], shows: bool) -> None:
    """Lines 1022-1035: any chunk moves the commit index over the receiver's own tail."""
    lab = kind(3)
    deposed_with_a_command(lab)
    lab.run(6)
    if isinstance(lab, OurLab):
        lab.install(1)
        lab.run(6)
    assert (lab.succeeded("mine") and "mine" not in lab.state(2)) is shows


@BOTH
def test_t1b_the_leader_spins_while_it_makes_a_snapshot(kind: type[Lab], shows: bool) -> None:
    """Lines 1267-1337: with nothing to send yet it sends that, until a heartbeat interval has passed."""
    lab = kind(3)
    lab.elect(1)
    lab.partition([3], [1, 2])
    for number in range(10):
        lab.submit(1, f"x{number}")
    lab.run(4, 1, 2)
    lab.compact(1)
    lab.run(2, 1, 2)
    if isinstance(lab, PlainLab):
        serializer = lab.get(1, "serializer")
        serializer._Serializer__pid = 4242  # its forked child is at work
        serializer.checkSerializing = lambda: (library.SERIALIZER_STATE.SERIALIZING, None)
    elif isinstance(lab, OurLab):
        lab.nodes[1].files.cold = True  # the snapshot must be fetched from the device first
    lab.heal()
    lab.clock.now += 1
    lab.tick(1)
    if isinstance(lab, OurLab):
        lab.flush()  # the new peer says that it needs the snapshot
        lab.clock.now += 1
        lab.tick(1)
    assert (len(lab.queues[1, 3]) > 100) is shows


@BOTH
def test_t2_an_acknowledgement_counts_in_a_later_term(kind: type[Lab], shows: bool) -> None:
    """Lines 1070-1083: `next_node_idx` carries no term."""
    lab = kind(3)
    lab.elect(1)
    for number in range(3):
        lab.submit(1, f"x{number}")
    lab.run(4)
    end = lab.log(1)[-1][0]
    if isinstance(lab, PlainLab):
        old: Any = {"type": "next_node_idx", "next_node_idx": end + 4, "reset": False, "success": True}
    else:
        old = AppendReply(term=RaftTerm(1), round=10**6, matched=True, next_index=RaftIndex(end + 4))
    lab.elect(2)
    lab.elect(1)
    lab.cut |= {(1, 2), (1, 3)}
    lab.submit(1, "late")
    lab.tick(1)
    lab.hand(2, 1, old)
    lab.tick(1)
    assert lab.succeeded("late") is shows


@BOTH
def test_t3_an_old_append_cuts_entries_that_match(kind: type[Lab], shows: bool) -> None:
    """Lines 991-1006: everything behind prev is deleted, conflict or not."""
    lab = kind(3)
    lab.elect(1)
    lab.submit(1, "first")
    for _ in range(2):
        lab.clock.now += 0.2
        lab.tick(1)
    old = next(m for m in lab.queues[1, 2] if (m["entries"] if isinstance(m, dict) else m.entries))
    lab.flush()
    for number in range(3):
        lab.submit(1, f"next{number}")
    lab.run(3)
    before = lab.log(2)
    lab.hand(1, 2, old)
    assert (lab.log(2) != before) is shows


@BOTH
def test_t3b_acknowledged_commands_are_lost_over_one_reconnect(kind: type[Lab], shows: bool) -> None:
    """FIFO links, one reconnect, one leader killed: nothing that a quorum may not live through."""
    lab = kind(3, **({"appendEntriesBatchSizeBytes": 40} if kind is PlainLab else {"append_bytes_max": 40}))
    lab.elect(1)
    lab.partition([3], [1, 2])
    commands = [f"x{number}" for number in range(5, 9)]
    for command in commands:
        lab.submit(1, command)
    lab.cut |= {(1, 2)}
    for _ in range(2):  # the appends are lost with the connection
        lab.clock.now += 0.2
        lab.tick(1)
    lab.queues[1, 2].clear()
    lab.cut -= {(1, 2)}
    if isinstance(lab, OurLab):
        lab.connect(1, 2)
        lab.connect(2, 1)
    for _ in range(2):  # two messages after the reconnect, and an answer to each
        lab.clock.now += 0.2
        lab.tick(1)
    lab.deliver(1, 2)
    for _ in range(2):
        lab.deliver(2, 1, 1)
        lab.clock.now += 0.2
        lab.tick(1)
    lab.deliver(1, 2, 2)
    lab.deliver(2, 1)
    lab.tick(1)
    lab.deliver(1, 2, 1)  # one more, and the leader is killed
    lab.partition([1], [2, 3])
    lab.cut -= {(2, 3), (3, 2)}
    lab.connect(2, 3)
    lab.connect(3, 2)
    lab.elect(2, 2, 3)
    lab.run(3, 2, 3)
    lost = [command for command in commands if lab.succeeded(command) and command not in lab.state(2)]
    assert bool(lost) is shows


@BOTH
def test_t13_a_snapshot_forgets_who_waits(kind: type[Lab], shows: bool) -> None:
    """Lines 1022-1025: callbacks of the entries that it stands for never fire."""
    lab = kind(3)
    if isinstance(lab, PlainLab):
        lab.elect(1)
        lab.partition([3], [1, 2])
        index, seen = lab.log(1)[-1][0] + 1, []
        waiting = collections.defaultdict(list)
        waiting[index].append((1, lambda result, reason: seen.append(reason)))  # what line 1061 leaves behind
        lab.set(3, "commandsWaitingCommit", waiting)
        for number in range(10):
            lab.submit(1, f"x{number}")
        lab.run(4, 1, 2)
        lab.compact(1)
        lab.run(3, 1, 2)
        lab.heal()
        lab.set(1, "raftNextIndex", {**lab.get(1, "raftNextIndex"), LabNode("3"): index})
        lab.run(6)
        assert len(lab.state(3)) == 10
        assert (not seen) is shows
        return
    deposed_with_a_command(lab)
    lab.run(3)
    assert isinstance(lab, OurLab)
    lab.install(1)
    assert [type(answer) for answer in lab.answers["mine"]] == [OutcomeUnknownError]


@BOTH
def test_t14_a_large_command_stops_its_follower(kind: type[Lab], shows: bool) -> None:
    """Line 1281: the last piece is found by the command's length, and the pieces are of its pickle."""
    lab = kind(3, **({"appendEntriesBatchSizeBytes": 1000} if kind is PlainLab else {"append_bytes_max": 1000}))
    lab.elect(1)
    refused = 0
    for size in range(1850, 2000, 5):
        lab.submit(1, "z" * size)
        for _ in range(4):
            lab.clock.now += 0.2
            for node in lab.ids:
                lab.tick(node)
            for link in sorted(lab.queues):
                while lab.queues[link]:
                    try:
                        lab.deliver(*link, 1)
                    except (pysyncobj.pickle.pickle.UnpicklingError, EOFError, IndexError, ValueError):
                        refused += 1
    assert (refused > 0) is shows


# Elections.


@BOTH
def test_t4_a_vote_counts_as_often_as_it_comes(kind: type[Lab], shows: bool) -> None:
    """Lines 1063-1068."""
    lab = kind(5)
    if isinstance(lab, PlainLab):
        lab.campaign(1)
        vote: Any = {"type": "response_vote", "term": lab.nodes[1].raftCurrentTerm}
    else:
        assert isinstance(lab, OurLab)
        lab.core(1).elections._campaign()
        vote = VoteReply(term=lab.core(1).term, granted=True)
    lab.hand(2, 1, vote)
    lab.hand(2, 1, vote)
    assert lab.leads(1) is shows


@BOTH
def test_t15_a_deposed_leader_leads_on(kind: type[Lab], shows: bool) -> None:
    """config.py 57: for 30 s by default; reads from it are old. And callers that wait never get an answer (T15b)."""
    lab = kind(3, **({"leaderFallbackTimeout": 30.0} if kind is PlainLab else {"election_timeout_max_ms": 600}))
    lab.elect(1)
    lab.partition([1], [2, 3])
    lab.submit(1, "waits")
    since = lab.clock.now
    for _ in range(400):
        lab.clock.now += 0.1
        lab.tick(1)
        if not lab.leads(1):
            break
    assert (lab.clock.now - since > 5.0) is shows
    assert (lab.answers["waits"] == []) is shows


@BOTH
def test_t18_a_node_that_hears_half_deposes_the_leader(kind: type[Lab], shows: bool) -> None:
    """Lines 634-651: no pre-vote."""
    lab = kind(3)
    lab.elect(1)
    lab.partition([1], [3])  # node 2 receives from both
    before = lab.term(2)
    for _ in range(4):
        lab.clock.now += 0.2
        for node in (1, 2):
            lab.tick(node)
        lab.flush()
        lab.campaign(3)
        lab.flush()
    assert (lab.term(2) > before) is shows


# Applying.


@BOTH
def test_t5_a_callback_that_raises_applies_the_command_twice(kind: type[Lab], shows: bool) -> None:
    """Lines 715-725: on that node alone."""
    lab = kind(3)
    lab.elect(1)

    def boom(*_: Any) -> None:
        raise RuntimeError("a caller's fault")

    if isinstance(lab, PlainLab):
        lab.nodes[1].put("x", callback=boom)
    else:
        assert isinstance(lab, OurLab)
        lab.core(1).proposals.submit(b"x", "", 0, boom)
    for _ in range(6):
        lab.clock.now += 0.2
        for node in lab.ids:
            try:
                lab.tick(node)
            except RuntimeError:
                pass
        lab.flush()
    assert lab.state(2) == ["x"]
    assert (lab.state(1) != ["x"]) is shows


def test_t6_the_library_swallows_a_command_that_raises_and_stands_still() -> None:
    """Lines 708-729: its tick thread logs and tries again, on all nodes, for ever."""
    lab = PlainLab(3)
    lab.elect(1)
    lab.submit(1, "!")
    lab.submit(1, "after")
    raised = 0
    for _ in range(20):
        lab.clock.now += 0.2
        for node in lab.ids:
            try:
                lab.tick(node)
            except ValueError:  # as _autoTickThread does with any exception
                raised += 1
        lab.flush()
    assert raised > 10
    assert lab.nodes[1]._isLeader()
    assert [lab.state(node) for node in lab.ids] == [[], [], []]


def test_t6_ours_stops_the_nodes() -> None:
    async def main(loop: SimLoop) -> None:
        world = World(loop, 6)
        cluster = Cluster(world)
        cluster.start()
        leader = await cluster.wait_for_leader()
        with pytest.raises(OutcomeUnknownError, match="stopped"):
            await cluster.call(leader, leader.raft.propose(b"!"))
        tasks = [cluster.host(node).task for node in (1, 2, 3)]
        await asyncio.sleep(1)
        ends = [type(task.exception()) for task in tasks if task is not None and task.done()]
        assert ends == [ValueError] * 2  # the leader, and the next one; the third has no one left to commit it with
        world.stop()

    run_simulation(main, seed=6)


# Membership.


@BOTH
def test_t7_changes_of_the_voters_overlap(kind: type[Lab], shows: bool) -> None:
    """Lines 186 and 1361-1367: the guard is never set. Two changes at once can make two majorities."""
    if kind is PlainLab:
        plain = PlainLab(3, dynamicMembershipChange=True)
        plain.elect(1)
        plain.cut |= {(1, 2), (1, 3)}
        plain.nodes[1].addNodeToCluster(LabNode("4"))
        plain.nodes[1].addNodeToCluster(LabNode("5"))
        plain.nodes[1].removeNodeFromCluster(LabNode("2"))
        plain.tick(1)
        before, after = {"2", "3"}, {node.id for node in plain.nodes[1].otherNodes}
        assert (len(before ^ after) > 1) is shows
        return
    lab = OurLab(5, bootstrap=VoterSet.of(map(voter, (1, 2, 3))))
    lab.elect(1, 1, 2, 3)
    lab.cut |= {(1, 2), (1, 3)}
    answers: list[Any] = []
    lab.core(1).voter_changes.remove(BrokerId(2), answers.append)
    lab.tick(1)
    with pytest.raises(VoterChangeInProgressError):
        lab.core(1).voter_changes.remove(BrokerId(3), answers.append)
    lab.tick(1)
    assert [v.node_id for v in lab.core(1).voter_sets.voters] == [1, 3]
    assert answers == []
