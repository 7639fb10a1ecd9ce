"""The rules of Raft on reads, snapshots and pre-votes, one by one (sections of Ongaro's thesis, 2014)."""

from __future__ import annotations

from typing import Any

from streamlog.errors import NotControllerError
from streamlog.model import BrokerId, RaftIndex, RaftTerm
from streamlog.raft.core.library import RaftRole
from streamlog.raft.protocol.messages import (
    AppendReply,
    AppendRequest,
    PreVoteReply,
    PreVoteRequest,
    SnapshotRequest,
)

from ..library.lab import FAR
from ..library.our_lab import OurLab
from .paper_kit import fill, lead

# 6.4: reads.


def barrier(lab: OurLab, node: int) -> list[Any]:
    passed: list[Any] = []
    lab.core(node).barriers.ask(passed.append)
    return passed


def test_6_4_a_read_waits_for_a_majority_that_was_asked_after_it() -> None:
    lab = OurLab(3)
    lab.elect(1)
    lab.clock.now += 0.2
    lab.tick(1)  # a heartbeat that was sent before the read
    read = barrier(lab, 1)
    lab.cut |= {(1, 2), (1, 3)}
    lab.tick(1)
    lab.flush()
    lab.tick(1)
    assert read == []
    lab.cut.clear()
    lab.run(2)
    assert read == [lab.core(1).last_applied]


def test_6_4_a_new_leader_reads_after_its_own_entry_is_committed() -> None:
    """Its commit index may be an old one: the last leader's answers went to clients, not to it."""
    lab = OurLab(3)
    lab.elect(1)
    lab.submit(1, "x")
    for _ in range(3):
        lab.clock.now += 0.2
        lab.tick(1)
        lab.deliver(1, 2)
        lab.queues[1, 3].clear()
        lab.deliver(2, 1)
    assert lab.succeeded("x")
    assert lab.state(2) == []  # it has the entry, and does not know of its commit
    lab.partition([1], [2, 3])
    lead(lab, 2, 5)
    read = barrier(lab, 2)
    lab.tick(2)
    latest = lab.core(2).replication._round
    lab.hand(3, 2, AppendReply(term=RaftTerm(5), round=latest, matched=False, next_index=RaftIndex(2)))
    lab.tick(2)
    assert read == []
    lab.cut.clear()
    lab.run(6, 2, 3)
    assert read
    assert lab.state(2) == ["x"]


def test_6_4_a_read_waits_until_its_index_is_applied() -> None:
    lab = OurLab(3, apply_entries_max=1)
    lab.elect(1)
    for number in range(5):
        lab.submit(1, f"x{number}")
    lab.core(1).turn()
    lab.settle(1)
    lab.flush()
    lab.core(1).replication.advance_commit()
    commit_index = lab.core(1).commit_index
    read = barrier(lab, 1)
    lab.core(1).turn()  # applies one entry, asks the others
    lab.settle(1)
    lab.flush()
    lab.core(1).turn()
    assert lab.core(1).last_applied < commit_index
    assert read == []
    lab.run(2)
    assert read[0] >= commit_index


def test_6_4_a_deposed_leader_answers_no_read() -> None:
    lab = OurLab(3)
    lab.elect(1)
    lab.partition([1], [2, 3])
    read = barrier(lab, 1)
    lab.tick(1)
    lab.elect(2, 2, 3)
    lab.submit(2, "x")
    lab.run(3, 2, 3)
    lab.run(3, 1)
    assert read == []
    lab.heal()
    lab.run(4)
    assert [type(answer) for answer in read] == [NotControllerError]


# 7: compaction.


def test_7_a_snapshot_replaces_a_log_that_it_does_not_agree_with() -> None:
    """And keeps a tail that it agrees with."""
    lab = OurLab(3)
    lab.elect(1)
    for number in range(6):
        lab.submit(1, f"x{number}")
    lab.run(4)
    lab.compact(1)
    snapshot = bytes(lab.nodes[1].files.files[lab.nodes[1].store.path])
    last, term = lab.nodes[1].journal.base.index, lab.nodes[1].journal.base.term

    other = OurLab(3)
    fill(other, 2, *[3] * 12)  # a tail of its own, none of it committed
    send_snapshot(other, 2, snapshot, last, term)
    assert other.log(2) == [(last, term)]
    assert other.state(2) == [f"x{number}" for number in range(6)]
    assert other.core(2).commit_index == other.core(2).last_applied == last

    third = OurLab(3)
    fill(third, 2, *[1] * 12)  # the same entries, and more
    send_snapshot(third, 2, snapshot, last, term)
    assert third.log(2)[-1] == (13, 1)
    assert third.core(2).commit_index == last


def send_snapshot(lab: OurLab, node: int, data: bytes, last: int, term: int, *, chunk: int = 40) -> None:
    for offset in range(0, len(data), chunk):
        request = SnapshotRequest(
            term=RaftTerm(9),
            round=1,
            last_index=RaftIndex(last),
            last_term=RaftTerm(term),
            size=len(data),
            offset=offset,
            data=data[offset : offset + chunk],
        )
        lab.hand(1, node, request)
    lab.install(node)


def test_7_a_follower_far_behind_is_sent_the_snapshot_then_the_rest() -> None:
    lab = OurLab(3, snapshot_chunk_bytes=50)
    lab.elect(1)
    lab.partition([3], [1, 2])
    for number in range(20):
        lab.submit(1, f"x{number}")
    lab.run(4, 1, 2)
    lab.compact(1, trailing=3)
    for number in range(20, 25):
        lab.submit(1, f"x{number}")
    lab.run(4, 1, 2)
    lab.heal()
    for _ in range(20):
        lab.run(1)
        lab.install(3)
    assert lab.state(3) == [f"x{number}" for number in range(25)]


def test_7_a_broken_snapshot_is_sent_again() -> None:
    lab = OurLab(3, snapshot_chunk_bytes=50)
    lab.elect(1)
    lab.partition([3], [1, 2])
    for number in range(20):
        lab.submit(1, f"x{number}")
    lab.run(4, 1, 2)
    lab.compact(1)
    lab.heal()
    spoilt = False
    for _ in range(40):
        lab.run(1)
        if lab.nodes[3].store.has_received() and not spoilt:
            lab.nodes[3].files.files[f"{lab.nodes[3].store.path}.part"][-3] ^= 1
            spoilt = True
        lab.install(3)
    assert spoilt
    assert lab.state(3) == lab.state(1)


# 9.6: pre-vote.


def test_9_6_a_pre_vote_changes_nothing_at_either_side() -> None:
    lab = OurLab(3)
    request = PreVoteRequest(term=RaftTerm(8), last_index=RaftIndex(9), last_term=RaftTerm(7))
    before = (lab.core(1).term, lab.nodes[1].journal.vote, lab.nodes[1].journal.written)
    lab.hand(2, 1, request)
    lab.hand(3, 1, request)
    for asker in (2, 3):  # both may have it
        reply = lab.queues[1, asker].pop()
        assert isinstance(reply, PreVoteReply)
        assert reply.granted
    assert (lab.core(1).term, lab.nodes[1].journal.vote, lab.nodes[1].journal.written) == before


def test_9_6_who_hears_a_leader_grants_none() -> None:
    lab = OurLab(3, election_timeout_min_ms=300)
    lab.elect(1)
    request = PreVoteRequest(term=RaftTerm(8), last_index=RaftIndex(99), last_term=RaftTerm(7))
    for node in (1, 2):  # the leader, and the follower that receives from it
        lab.hand(3, node, request)
        assert lab.queues[node, 3].pop().granted is False
    lab.clock.now += 5
    lab.hand(3, 2, request)
    assert lab.queues[2, 3].pop().granted is True


def test_9_6_a_node_of_an_older_term_learns_the_newer() -> None:
    lab = OurLab(3)
    lab.core(2).set_term(RaftTerm(6), None)
    lab.clock.now += 10
    lab.campaign(1)
    lab.deliver(1, 2)
    lab.deliver(2, 1)
    assert (lab.core(1).term, lab.core(1).role) == (6, RaftRole.FOLLOWER)


def test_a_follower_asks_soon_when_the_stream_from_its_leader_breaks() -> None:
    lab = OurLab(3, leader_lost_backoff_ms=100)
    lab.elect(1)
    core = lab.core(2)
    assert core.election_deadline == FAR
    core.disconnect(BrokerId(3))
    assert core.election_deadline == FAR  # not the leader
    core.disconnect(BrokerId(1))
    assert core.election_deadline <= lab.clock.now + 0.1


def test_a_patient_follower_waits_as_long_as_the_leader_announced() -> None:
    lab = OurLab(3, election_timeout_min_ms=300, election_timeout_max_ms=600, heartbeat_ms=100, idle_heartbeat_ms=700)
    lab.hand(
        1,
        2,
        AppendRequest(
            term=RaftTerm(1),
            round=1,
            commit_index=RaftIndex(1),
            prev_index=RaftIndex(1),
            prev_term=RaftTerm(0),
            next_within_ms=10**6,
        ),
    )
    core = lab.core(2)
    core.elections._restart_timer()
    assert 0.9 <= core.election_deadline - lab.clock.now <= 1.2  # not for ever: the setting is the limit
