"""The rules of Raft on membership, one by one (sections of Ongaro's thesis, 2014), on cores driven by hand."""

from __future__ import annotations

from msgspec.structs import replace

from streamlog.errors import OutcomeUnknownError
from streamlog.model import BrokerId, RaftIndex, RaftTerm
from streamlog.raft.core.library import RaftRole
from streamlog.raft.protocol.messages import PreVoteRequest, VoteReply, VoteRequest, VotersNotice
from streamlog.raft.voters import VoterSet

from ..kit import voter
from ..library.our_lab import OurLab, directory
from .paper_kit import lead

# 4: membership.


def test_4_1_voters_are_in_effect_from_their_place_in_the_log() -> None:
    lab = OurLab(3)
    lab.elect(1)
    lab.cut |= {(1, 2)}
    lab.core(1).voter_changes.remove(BrokerId(3), lab.answers["remove"].append)
    lab.tick(1)
    assert [v.node_id for v in lab.core(1).voter_sets.voters] == [1, 2]
    lab.run(2)
    assert lab.answers["remove"] == []  # node 2 must agree, and receives nothing
    lab.cut.clear()
    lab.run(4)
    assert len(lab.answers["remove"]) == 1
    assert [v.node_id for v in lab.core(2).voter_sets.voters] == [1, 2]


def test_4_1_voters_that_are_cut_from_the_log_have_never_been() -> None:
    lab = OurLab(3)
    lab.elect(1)
    lab.partition([1], [2, 3])
    lab.core(1).voter_changes.remove(BrokerId(3), lab.answers["remove"].append)
    lab.tick(1)
    lab.elect(2, 2, 3)
    lab.heal()
    lab.run(6)
    assert [v.node_id for v in lab.core(1).voter_sets.voters] == [1, 2, 3]
    assert [type(answer) for answer in lab.answers["remove"]] == [OutcomeUnknownError]


def test_4_1_no_change_before_an_own_entry_is_committed() -> None:
    """raft-dev, 10 July 2015."""
    lab = OurLab(3)
    lab.elect(1)
    lab.elect(2)
    lab.cut |= {(2, 1), (2, 3)}
    lead(lab, 2, 5)
    before = lab.core(2).voter_sets.index
    lab.core(2).voter_changes.remove(BrokerId(3), lab.answers["remove"].append)
    lab.run(2, 2)
    assert lab.core(2).voter_sets.index == before


def test_4_2_1_a_newcomer_catches_up_before_it_votes() -> None:
    lab = OurLab(4, bootstrap=VoterSet.of(map(voter, (1, 2, 3))), catch_up_entries=2)
    lab.elect(1, 1, 2, 3)
    for number in range(20):
        lab.submit(1, f"x{number}")
    lab.run(4, 1, 2, 3)
    lab.cut |= {(4, 1)}  # it receives, and what it sends is lost
    lab.core(1).voter_changes.add(voter(4), lab.answers["add"].append)
    lab.run(4)
    assert [v.node_id for v in lab.core(1).voter_sets.voters] == [1, 2, 3]
    lab.cut.clear()
    lab.run(6)
    assert [v.node_id for v in lab.core(4).voter_sets.voters] == [1, 2, 3, 4]
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
    for _ in range(4):  # node 3 does not know that it was removed
        lab.campaign(3)
        lab.flush()
        lab.run(1)
    assert lab.leads(1)
    assert lab.core(1).term == term


def test_a_voter_without_its_disk_is_not_elected_by_who_knew_it() -> None:
    """Seed 2202: node 1 had been down while the two others committed. Then one of them lost its disk, one its power."""
    lab = OurLab(3)
    lab.partition([1], [2, 3])
    lab.elect(2, 2, 3)
    lab.submit(2, "x")
    lab.run(3, 2, 3)
    assert lab.succeeded("x")
    lab.lose_disk(3)
    lab.heal()
    lab.partition([2], [1, 3])
    lab.clock.now += 10
    lab.campaign(3)
    lab.flush()
    assert lab.core(3).role == RaftRole.FOLLOWER  # no pre-vote
    lab.core(3).elections._campaign()
    lab.settle(3)
    lab.flush()
    assert lab.core(3).role == RaftRole.CANDIDATE  # no vote
    lab.campaign(1)
    lab.flush()
    assert not lab.leads(1)
    lab.heal()
    lab.run(3)
    lab.elect(2)
    assert lab.state(1) == ["x"]


def _replaced(lab: OurLab, node: int) -> VotersNotice:
    """What those say who have got the change of voters by which a new directory has taken the place of the lost one."""
    known = VoterSet.of(replace(voter(n), directory_id=lab.nodes[n].journal.directory_id) for n in lab.ids)
    return VotersNotice(index=RaftIndex(9), voters=known)


def test_a_voter_that_has_taken_the_place_of_another_is_elected() -> None:
    """By one that has not got the change of voters yet, and knows another directory under its id: another voter says
    that it is one.
    """
    lab = OurLab(3)
    lab.lose_disk(3)
    lab.heal()
    lab.flush()
    request = PreVoteRequest(term=RaftTerm(8), last_index=RaftIndex(9), last_term=RaftTerm(7), named=True)
    vote = VoteRequest(term=RaftTerm(8), last_index=RaftIndex(9), last_term=RaftTerm(7), named=True)
    lab.hand(3, 1, _replaced(lab, 3))  # for itself
    for message in (request, vote):
        lab.hand(3, 1, message)
        assert not lab.queues[1, 3].pop().granted
    assert lab.core(1).term == 0
    lab.hand(2, 1, _replaced(lab, 3))
    for message in (request, vote):
        lab.hand(3, 1, message)
        assert lab.queues[1, 3].pop().granted


def test_those_who_vouch_for_themselves_are_not_believed() -> None:
    """Node 1 knows none of them: all its voters may have been replaced, or a peer says so."""
    lab = OurLab(5, bootstrap=VoterSet.of(map(voter, (1, 2, 3))))
    lab.partition([1], [2, 3])
    known = VoterSet.of(replace(voter(n), directory_id=directory(n)) for n in (1, 4, 5))
    for peer in (4, 5):
        lab.hand(peer, 1, VotersNotice(index=RaftIndex(9), voters=known))
    vote = VoteRequest(term=RaftTerm(8), last_index=RaftIndex(9), last_term=RaftTerm(7), named=True)
    lab.hand(4, 1, vote)
    assert lab.queues[1, 4].pop() == VoteReply(term=RaftTerm(0), granted=False)
    assert lab.core(1).term == 0


def test_a_stranger_deposes_nobody_and_is_not_followed() -> None:
    lab = OurLab(4, bootstrap=VoterSet.of(map(voter, (1, 2, 3))))
    lab.elect(1, 1, 2, 3)
    known = VoterSet.of(replace(voter(n), directory_id=directory(n)) for n in (1, 2, 3, 4))
    term = lab.core(1).term
    for node in (1, 2):
        lab.hand(4, node, VotersNotice(index=RaftIndex(99), voters=known))
        lab.hand(4, node, VoteRequest(term=RaftTerm(99), last_index=RaftIndex(99), last_term=RaftTerm(98), named=True))
        lab.hand(4, node, VoteReply(term=RaftTerm(99), granted=False))
    assert lab.leads(1)
    assert (lab.core(1).term, lab.core(2).term, lab.core(2).leader_id) == (term, term, 1)


def test_a_voter_without_its_disk_does_not_count() -> None:
    lab = OurLab(3)
    lab.elect(1)
    lab.run(3)
    assert all(v.directory_id for v in lab.core(2).voter_sets.voters)  # the first leader has written them down
    lab.partition([1], [2, 3])
    lab.heal()
    lab.core(2).connect(BrokerId(3), directory(77))  # node 3 came back with another directory
    lab.core(2).elections._campaign()
    lab.hand(3, 2, VoteReply(term=lab.core(2).term, granted=True))
    assert lab.core(2).role == RaftRole.CANDIDATE
    lab.hand(1, 2, VoteReply(term=lab.core(2).term, granted=True))
    assert lab.core(2).role == RaftRole.LEADER
    lab.cut |= {(2, 1)}
    lab.submit(2, "x")
    lab.run(4, 2, 3)
    assert not lab.succeeded("x")
