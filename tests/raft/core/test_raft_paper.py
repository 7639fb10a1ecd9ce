"""The rules of Raft, one by one, on cores driven by hand. Sections are of Ongaro's thesis (2014)."""

from __future__ import annotations

import pytest

from streamlog.errors import CorruptMessageError
from streamlog.model import RaftIndex, RaftTerm
from streamlog.raft.core.library import RaftRole
from streamlog.raft.protocol.entries import NO_OP, LogEntry
from streamlog.raft.protocol.messages import (
    AppendReply,
    PreVoteRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)

from ..library.our_lab import OurLab
from .paper_kit import append, entry, fill, lead

# 3.4: elections.


def test_3_4_a_follower_that_hears_nobody_asks_and_then_campaigns() -> None:
    lab = OurLab(3)
    lab.clock.now += 10
    lab.campaign(1)
    assert [type(m) for m in lab.queues[1, 2]] == [PreVoteRequest]
    assert lab.core(1).term == 0
    lab.deliver(1, 2)
    lab.deliver(2, 1)
    assert lab.core(1).role == RaftRole.CANDIDATE
    assert (lab.core(1).term, lab.nodes[1].journal.vote) == (1, 1)
    lab.deliver(1, 2)
    lab.deliver(2, 1)
    assert lab.core(1).role == RaftRole.LEADER
    assert lab.nodes[1].journal.last == LogEntry(NO_OP, RaftIndex(2), RaftTerm(1))


def test_3_4_time_outs_are_drawn_again_and_apart() -> None:
    lab = OurLab(3, election_timeout_min_ms=300, election_timeout_max_ms=600)
    drawn = [lab.core(1).draw_election_timeout_s() for _ in range(50)]
    assert all(0.3 <= timeout <= 0.6 for timeout in drawn)
    assert len(set(drawn)) == 50


def test_3_4_one_vote_a_term() -> None:
    lab = OurLab(3)
    request = VoteRequest(term=RaftTerm(5), last_index=RaftIndex(9), last_term=RaftTerm(4))
    lab.hand(2, 1, request)
    lab.hand(3, 1, request)
    assert list(lab.queues[1, 2]) == [VoteReply(term=RaftTerm(5), granted=True)]
    assert not lab.queues[1, 3]
    assert (lab.nodes[1].journal.term, lab.nodes[1].journal.vote) == (5, 2)


def test_3_4_a_candidate_follows_a_leader_of_its_term() -> None:
    lab = OurLab(3)
    lab.core(1).elections._campaign()
    assert append(lab, 2, 1, term=1, prev=(1, 0)).matched
    assert (lab.core(1).role, lab.core(1).leader_id) == (RaftRole.FOLLOWER, 2)


def test_3_4_a_higher_term_deposes_a_lower_one_is_reported() -> None:
    lab = OurLab(3)
    lead(lab, 1, 3)
    lab.hand(2, 1, AppendReply(term=RaftTerm(7), round=1, matched=False, next_index=RaftIndex(1)))
    assert (lab.core(1).role, lab.core(1).term) == (RaftRole.FOLLOWER, 7)
    assert append(lab, 3, 1, term=6, prev=(1, 0)).term == 7
    lab.hand(3, 1, VoteRequest(term=RaftTerm(6), last_index=RaftIndex(9), last_term=RaftTerm(6)))
    assert lab.queues[1, 3].pop() == VoteReply(term=RaftTerm(7), granted=False)


def test_3_4_a_second_leader_of_a_term_is_refused() -> None:
    lab = OurLab(3)
    lead(lab, 1, 3)
    with pytest.raises(CorruptMessageError, match="lead term 3"):
        append(lab, 2, 1, term=3, prev=(1, 0))
    assert lab.leads(1)


# 3.5: log replication.


def test_3_5_a_follower_refuses_what_does_not_fit_and_says_from_where() -> None:
    lab = OurLab(3)
    fill(lab, 1, 1, 1, 2, 2, 2)  # entries 2 to 6
    beyond = append(lab, 2, 1, term=4, prev=(9, 3))
    assert (beyond.matched, beyond.next_index) == (False, 7)
    conflict = append(lab, 2, 1, term=4, prev=(6, 3))
    assert (conflict.matched, conflict.next_index) == (False, 4)  # the begin of its term 2: one round a term
    assert lab.log(1)[-1] == (6, 2)  # a refusal changes nothing


def test_3_5_only_a_conflict_cuts() -> None:
    lab = OurLab(3)
    fill(lab, 1, 1, 1, 1, 1)  # entries 2 to 5
    assert append(lab, 2, 1, term=2, prev=(1, 0), entries=[entry(2, 1)]).next_index == 3
    assert lab.log(1)[-1] == (5, 1)
    reply = append(lab, 2, 1, term=2, prev=(2, 1), entries=[entry(3, 1), entry(4, 2)])
    assert (reply.matched, reply.next_index) == (True, 5)
    assert lab.log(1) == [(1, 0), (2, 1), (3, 1), (4, 2)]


def test_3_5_commit_goes_as_far_as_the_message_vouches() -> None:
    lab = OurLab(3)
    fill(lab, 1, 1, 1, 1, 1)
    append(lab, 2, 1, term=2, prev=(2, 1), commit=5)
    assert lab.core(1).commit_index == 2
    append(lab, 2, 1, term=2, prev=(2, 1), commit=5, entries=[entry(3, 1)])
    assert lab.core(1).commit_index == 3


def test_3_5_a_conflict_with_what_is_committed_is_refused() -> None:
    lab = OurLab(3)
    fill(lab, 1, 1, 1, 1)
    append(lab, 2, 1, term=2, prev=(4, 1), commit=4)
    with pytest.raises(CorruptMessageError, match="committed"):
        append(lab, 2, 1, term=3, prev=(4, 3))
    with pytest.raises(CorruptMessageError, match="committed"):
        append(lab, 2, 1, term=3, prev=(2, 1), entries=[entry(3, 3)])


def test_3_5_what_lies_before_the_base_is_taken_as_equal() -> None:
    """A follower that has compacted gets an append that begins before its base."""
    lab = OurLab(3)
    lab.elect(1)
    for number in range(6):
        lab.submit(1, f"x{number}")
    lab.run(4)
    lab.compact(2)
    base = lab.nodes[2].journal.base.index
    entries = lab.nodes[1].journal.between(2, 99)
    reply = append(lab, 1, 2, term=1, prev=(2, 1), entries=entries, commit=base)
    assert (reply.matched, reply.next_index) == (True, entries[-1].index + 1)
    overlap = append(lab, 1, 2, term=1, prev=(2, 1), entries=entries[:2], commit=base)
    assert (overlap.matched, overlap.next_index) == (True, base + 1)


def test_3_5_a_new_leader_brings_its_followers_to_its_own_log() -> None:
    """Figure 3.6: followers that lack entries, and that have others."""
    lab = OurLab(5)
    fill(lab, 1, 1, 1, 1, 4, 4, 5, 5, 6, 6, 6)
    fill(lab, 2, 1, 1, 1, 4, 4, 5, 5, 6, 6)
    fill(lab, 3, 1, 1, 1, 4)
    fill(lab, 4, 1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6)
    fill(lab, 5, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3)
    lead(lab, 1, 8)
    lab.run(12)
    logs = [lab.log(node) for node in lab.ids]
    assert all(log == logs[0] for log in logs)
    assert logs[0][-2][1] <= 8


# 3.6: safety.


@pytest.mark.parametrize(
    ("last", "granted"), [((5, 2), True), ((4, 2), False), ((9, 1), False), ((2, 3), True), ((6, 2), True)]
)
def test_3_6_1_a_vote_goes_to_a_log_at_least_as_up_to_date(last: tuple[int, int], granted: bool) -> None:
    lab = OurLab(3)
    fill(lab, 1, 1, 1, 2, 2)  # ends at (5, term 2)
    request = VoteRequest(term=RaftTerm(9), last_index=RaftIndex(last[0]), last_term=RaftTerm(last[1]))
    lab.hand(2, 1, request)
    assert bool(lab.queues[1, 2]) is granted


def test_3_6_2_figure_3_7_entries_of_older_terms_are_not_counted() -> None:
    """A leader has an old entry on a majority; another one may still overwrite it, until an own entry is there."""
    lab = OurLab(5)
    fill(lab, 1, 1, 2)  # (c): S1 is leader of term 4, with entry 3 of term 2
    fill(lab, 2, 1, 2)
    fill(lab, 3, 1)
    lead(lab, 1, 4)
    for peer in (2, 3):
        lab.hand(peer, 1, AppendReply(term=RaftTerm(4), round=0, matched=True, next_index=RaftIndex(4)))
    lab.tick(1)
    assert lab.core(1).commit_index == 1
    for peer in (2, 3):  # (e): with its own entry 4 the old one is committed too
        lab.hand(peer, 1, AppendReply(term=RaftTerm(4), round=0, matched=True, next_index=RaftIndex(5)))
    lab.tick(1)
    assert lab.core(1).commit_index == 4


def test_10_2_1_the_leader_counts_itself_for_what_it_has_synced() -> None:
    lab = OurLab(3)
    lab.elect(1)
    lab.slow_disks = {1}
    lab.submit(1, "x")
    lab.tick(1)
    assert any(m.entries for m in lab.queues[1, 2])  # its message does not wait for its own disk
    lab.deliver(1, 2)
    lab.deliver(2, 1)
    lab.tick(1)
    assert not lab.succeeded("x")
    lab.deliver(1, 3)
    lab.deliver(3, 1)
    lab.tick(1)
    assert lab.succeeded("x")  # the two others are a majority


# 3.10: handing over.


def test_3_10_the_leader_hands_over_to_the_furthest() -> None:
    lab = OurLab(3)
    lab.elect(1)
    lab.cut |= {(1, 3)}
    lab.submit(1, "x")
    lab.run(3)
    lab.core(1).hand_over()
    lab.tick(1)
    assert isinstance(lab.queues[1, 2][-1], TimeoutNow)
    lab.run(3)
    assert lab.leads(2)
    assert lab.core(1).term == lab.core(2).term == 2


def test_3_10_only_the_leader_is_obeyed() -> None:
    lab = OurLab(3)
    lab.elect(1)
    lab.hand(3, 2, TimeoutNow(term=lab.core(2).term))
    assert lab.core(2).role == RaftRole.FOLLOWER
