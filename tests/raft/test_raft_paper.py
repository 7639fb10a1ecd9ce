"""The rules of Raft, one by one, on cores driven by hand. Sections are of Ongaro's thesis (2014)."""

from __future__ import annotations

from typing import Any

import pytest

from streamlog.errors import InvariantError, NotControllerError, OutcomeUnknownError
from streamlog.model import BrokerId, RaftIndex, RaftTerm
from streamlog.raft.entries import NO_OP, Entry
from streamlog.raft.library import Role
from streamlog.raft.messages import (
    AppendReply,
    AppendRequest,
    PreVoteReply,
    PreVoteRequest,
    SnapshotRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from streamlog.raft.voters import VoterSet

from .kit import voter
from .lab import FAR
from .our_lab import OurLab, directory


def entry(index: int, term: int, text: str = "x") -> Entry:
    return Entry(b"\x01" + text.encode(), RaftIndex(index), RaftTerm(term))


def append(lab: OurLab, leader: int, to: int, *, term: int, prev: tuple[int, int], **rest: Any) -> AppendReply:
    """Hand over an append as if `leader` had sent it, and return the answer."""
    lab.queues[to, leader].clear()
    commit = rest.pop("commit", 1)
    entries = tuple(rest.pop("entries", ()))
    request = AppendRequest(
        term=RaftTerm(term),
        round=1,
        commit_index=RaftIndex(commit),
        prev_index=RaftIndex(prev[0]),
        prev_term=RaftTerm(prev[1]),
        entries=entries,
        **rest,
    )
    lab.hand(leader, to, request)
    reply = lab.queues[to, leader].pop()
    assert isinstance(reply, AppendReply)
    return reply


def fill(lab: OurLab, node: int, *terms: int) -> None:
    """Give a node a log with entries of these terms, behind the first entry, as a leader of the last term would."""
    entries = [entry(place, term) for place, term in enumerate(terms, 2)]
    assert append(lab, 9, node, term=terms[-1], prev=(1, 0), entries=entries).matched
    lab.disconnect(node, 9)


def lead(lab: OurLab, node: int, term: int) -> None:
    """Make it leader of `term`, with the votes of all, without telling anybody."""
    core = lab.core(node)
    core.set_term(RaftTerm(term - 1), None)
    core.elections._campaign()
    for peer in lab.ids:
        if core.role == Role.CANDIDATE and peer != node:
            lab.hand(peer, node, VoteReply(term=RaftTerm(term), granted=True))
    assert core.role == Role.LEADER
    for link in lab.queues:
        lab.queues[link].clear()


# 3.4: elections.


def test_3_4_a_follower_that_hears_nobody_asks_and_then_campaigns() -> None:
    lab = OurLab(3)
    lab.clock.now += 10
    lab.campaign(1)
    assert [type(m) for m in lab.queues[1, 2]] == [PreVoteRequest]
    assert lab.core(1).term == 0
    lab.deliver(1, 2)
    lab.deliver(2, 1)
    assert lab.core(1).role == Role.CANDIDATE
    assert (lab.core(1).term, lab.nodes[1].journal.vote) == (1, 1)
    lab.deliver(1, 2)
    lab.deliver(2, 1)
    assert lab.core(1).role == Role.LEADER
    assert lab.nodes[1].journal.last == Entry(NO_OP, RaftIndex(2), RaftTerm(1))


def test_3_4_time_outs_are_drawn_anew_and_apart() -> None:
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
    assert (lab.core(1).role, lab.core(1).leader_id) == (Role.FOLLOWER, 2)


def test_3_4_a_higher_term_deposes_a_lower_one_is_told() -> None:
    lab = OurLab(3)
    lead(lab, 1, 3)
    lab.hand(2, 1, AppendReply(term=RaftTerm(7), round=1, matched=False, next_index=RaftIndex(1)))
    assert (lab.core(1).role, lab.core(1).term) == (Role.FOLLOWER, 7)
    assert append(lab, 3, 1, term=6, prev=(1, 0)).term == 7
    lab.hand(3, 1, VoteRequest(term=RaftTerm(6), last_index=RaftIndex(9), last_term=RaftTerm(6)))
    assert lab.queues[1, 3].pop() == VoteReply(term=RaftTerm(7), granted=False)


def test_3_4_two_leaders_of_a_term_stop_the_node() -> None:
    lab = OurLab(3)
    lead(lab, 1, 3)
    with pytest.raises(InvariantError, match="leads term 3"):
        append(lab, 2, 1, term=3, prev=(1, 0))


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


def test_3_5_a_conflict_with_what_is_committed_stops_the_node() -> None:
    lab = OurLab(3)
    fill(lab, 1, 1, 1, 1)
    append(lab, 2, 1, term=2, prev=(4, 1), commit=4)
    with pytest.raises(InvariantError, match="committed"):
        append(lab, 2, 1, term=3, prev=(4, 3))
    with pytest.raises(InvariantError, match="conflicts"):
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
        lab.hand(peer, 1, AppendReply(term=RaftTerm(4), round=1, matched=True, next_index=RaftIndex(4)))
    lab.tick(1)
    assert lab.core(1).commit_index == 1
    for peer in (2, 3):  # (e): with its own entry 4 the old one is committed too
        lab.hand(peer, 1, AppendReply(term=RaftTerm(4), round=1, matched=True, next_index=RaftIndex(5)))
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
    assert lab.core(2).role == Role.FOLLOWER


# 4: membership.


def test_4_1_voters_are_in_effect_from_their_place_in_the_log() -> None:
    lab = OurLab(3)
    lab.elect(1)
    lab.cut |= {(1, 2)}
    lab.core(1).voter_changes.remove(BrokerId(3), lab.answers["remove"].append)
    lab.tick(1)
    assert [v.node_id for v in lab.core(1).membership.voters] == [1, 2]
    lab.run(2)
    assert lab.answers["remove"] == []  # node 2 must agree, and does not hear
    lab.cut.clear()
    lab.run(4)
    assert len(lab.answers["remove"]) == 1
    assert [v.node_id for v in lab.core(2).membership.voters] == [1, 2]


def test_4_1_voters_that_are_cut_from_the_log_have_never_been() -> None:
    lab = OurLab(3)
    lab.elect(1)
    lab.partition([1], [2, 3])
    lab.core(1).voter_changes.remove(BrokerId(3), lab.answers["remove"].append)
    lab.tick(1)
    lab.elect(2, 2, 3)
    lab.heal()
    lab.run(6)
    assert [v.node_id for v in lab.core(1).membership.voters] == [1, 2, 3]
    assert [type(answer) for answer in lab.answers["remove"]] == [OutcomeUnknownError]


def test_4_1_no_change_before_an_own_entry_is_committed() -> None:
    """raft-dev, 10 July 2015."""
    lab = OurLab(3)
    lab.elect(1)
    lab.elect(2)
    lab.cut |= {(2, 1), (2, 3)}
    lead(lab, 2, 5)
    before = lab.core(2).membership.index
    lab.core(2).voter_changes.remove(BrokerId(3), lab.answers["remove"].append)
    lab.run(2, 2)
    assert lab.core(2).membership.index == before


def test_4_2_1_a_newcomer_catches_up_before_it_votes() -> None:
    lab = OurLab(4, bootstrap=VoterSet.of(map(voter, (1, 2, 3))), catch_up_entries=2)
    lab.elect(1, 1, 2, 3)
    for number in range(20):
        lab.submit(1, f"x{number}")
    lab.run(4, 1, 2, 3)
    lab.cut |= {(4, 1)}  # it hears, and is not heard
    lab.core(1).voter_changes.add(voter(4), lab.answers["add"].append)
    lab.run(4)
    assert [v.node_id for v in lab.core(1).membership.voters] == [1, 2, 3]
    lab.cut.clear()
    lab.run(6)
    assert [v.node_id for v in lab.core(4).membership.voters] == [1, 2, 3, 4]
    assert len(lab.answers["add"]) == 1
    assert lab.state(4) == lab.state(1)


def test_4_2_1_a_newcomer_that_does_not_come_is_given_up() -> None:
    lab = OurLab(4, bootstrap=VoterSet.of(map(voter, (1, 2, 3))), catch_up_timeout_ms=1000)
    lab.elect(1, 1, 2, 3)
    lab.partition([4], [1, 2, 3])
    lab.core(1).voter_changes.add(voter(4), lab.answers["add"].append)
    lab.run(10)
    assert "did not catch up" in str(lab.answers["add"][0])
    lab.core(1).voter_changes.remove(BrokerId(3), lab.answers["remove"].append)
    lab.run(4)
    assert len(lab.answers["remove"]) == 1


def test_4_2_2_a_leader_that_removes_itself_leads_until_that_is_committed() -> None:
    lab = OurLab(3)
    lab.elect(1)
    lab.core(1).voter_changes.remove(BrokerId(1), lab.answers["remove"].append)
    lab.tick(1)
    assert lab.leads(1)
    lab.deliver(1, 2)
    lab.deliver(2, 1)
    lab.tick(1)
    assert lab.leads(1)  # itself and one other: but it does not count any more
    lab.run(6)
    assert not lab.leads(1)
    assert lab.leads(2) or lab.leads(3)
    assert not isinstance(lab.answers["remove"][0], Exception)


def test_4_2_3_a_removed_node_deposes_nobody() -> None:
    lab = OurLab(3)
    lab.elect(1)
    lab.cut |= {(1, 3)}
    lab.core(1).voter_changes.remove(BrokerId(3), lab.answers["remove"].append)
    lab.run(6)
    term = lab.core(1).term
    lab.cut.clear()
    for _ in range(4):  # node 3 has not heard that it is out
        lab.campaign(3)
        lab.flush()
        lab.run(1)
    assert lab.leads(1)
    assert lab.core(1).term == term


def test_a_voter_without_its_disk_does_not_count() -> None:
    lab = OurLab(3)
    lab.elect(1)
    lab.run(3)
    assert all(v.directory_id for v in lab.core(2).membership.voters)  # the first leader has written them down
    lab.partition([1], [2, 3])
    lab.heal()
    lab.core(2).connect(BrokerId(3), directory(77))  # node 3 came back with another directory
    lab.core(2).elections._campaign()
    lab.hand(3, 2, VoteReply(term=lab.core(2).term, granted=True))
    assert lab.core(2).role == Role.CANDIDATE
    lab.hand(1, 2, VoteReply(term=lab.core(2).term, granted=True))
    assert lab.core(2).role == Role.LEADER
    lab.cut |= {(2, 1)}
    lab.submit(2, "x")
    lab.run(4, 2, 3)
    assert not lab.succeeded("x")


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
    assert lab.state(2) == []  # it has the entry, and has not heard of its commit
    lab.partition([1], [2, 3])
    lead(lab, 2, 5)
    read = barrier(lab, 2)
    lab.hand(3, 2, AppendReply(term=RaftTerm(5), round=10**6, matched=False, next_index=RaftIndex(2)))
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
    for node in (1, 2):  # the leader, and who hears it
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
    assert (lab.core(1).term, lab.core(1).role) == (6, Role.FOLLOWER)


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
