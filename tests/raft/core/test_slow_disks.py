"""A node whose disk is slow still sends heartbeats: only its acknowledgements are late."""

from __future__ import annotations

from streamlog.model import BrokerId, RaftIndex, RaftTerm
from streamlog.raft.core.outbox import Outbox
from streamlog.raft.protocol.messages import AppendReply, AppendRequest, Message, PreVoteReply, VoteReply

from ..library.our_lab import OurLab
from .paper_kit import append, entry, fill

STEP_S = 0.05
LONG_S = 4.0
"""Longer than a leader may be without a majority (settings.patience_max_ms)."""


def lab_with_a_leader() -> OurLab:
    lab = OurLab(3, election_timeout_max_ms=600)
    lab.elect(1)
    assert 2 * lab.settings.patience_max_ms / 1000 < LONG_S
    return lab


def pass_time(lab: OurLab, *, commands: bool = False) -> None:
    """LONG_S go by; a command is submitted at every step, or none."""
    for step in range(round(LONG_S / STEP_S)):
        lab.clock.now += STEP_S
        if commands:
            lab.submit(1, f"step {step}")
        for node in lab.ids:
            lab.tick(node)
        lab.flush()


def test_disks_that_hang_depose_no_leader() -> None:
    lab = lab_with_a_leader()
    lab.slow_disks = {2, 3}
    lab.submit(1, "x")
    pass_time(lab)
    assert lab.leads(1)
    assert not lab.succeeded("x")
    lab.sync_disk(2)
    lab.run(2)
    assert lab.succeeded("x")


def test_entries_without_end_do_not_take_the_place_of_heartbeats() -> None:
    """The answer to each of them waits for a disk."""
    lab = lab_with_a_leader()
    lab.slow_disks = {2, 3}
    pass_time(lab, commands=True)
    assert lab.leads(1)
    assert not lab.succeeded("step 0")


def test_a_leader_that_nobody_answers_is_deposed() -> None:
    """The same without a word from the others: what the two above do not show is not for want of time."""
    lab = lab_with_a_leader()
    lab.cut = {(2, 1), (3, 1)}
    lab.submit(1, "x")
    pass_time(lab)
    assert not lab.leads(1)


def test_a_read_waits_for_no_disk() -> None:
    lab = lab_with_a_leader()
    lab.slow_disks = {2, 3}
    lab.submit(1, "x")
    passed: list[object] = []
    lab.core(1).barriers.ask(passed.append)
    lab.run(3)
    assert passed == [lab.core(1).last_applied]
    assert not lab.succeeded("x")


def test_a_heartbeat_is_answered_for_what_is_durable() -> None:
    lab = OurLab(3)
    fill(lab, 1, 1, 1)
    lab.slow_disks = {1}
    lab.nodes[1].journal.append(entry(4, 1))  # in the page cache, from an earlier message
    reply = append(lab, 2, 1, term=1, prev=(4, 1), commit=4)
    assert (reply.matched, reply.next_index) == (True, 4)
    assert lab.core(1).commit_index == 4  # the logs are equal so far: what the leader says is committed is
    lab.sync_disk(1)
    assert append(lab, 2, 1, term=1, prev=(4, 1)).next_index == 5


def test_entries_are_answered_when_they_are_durable() -> None:
    lab = OurLab(3)
    fill(lab, 1, 1, 1)
    lab.slow_disks = {1}
    assert append(lab, 2, 1, term=1, prev=(2, 1), entries=[entry(3, 1)]).next_index == 4  # it had them
    queue = lab.queues[1, 2]
    lab.hand(2, 1, _entries(4))
    assert not queue
    assert append(lab, 2, 1, term=1, prev=(4, 1)).next_index == 4  # overtakes
    lab.sync_disk(1)
    assert [message.next_index for message in queue] == [5]


def test_a_term_is_not_spoken_of_before_it_is_durable() -> None:
    """Else it could take entries of an older leader after a crash, and what it has answered were not true any more."""
    lab = OurLab(3)
    fill(lab, 1, 1, 1)
    lab.slow_disks = {1}
    lab.hand(2, 1, _entries(4, term=5, count=0))
    assert not lab.queues[1, 2]
    lab.sync_disk(1)
    assert [message.term for message in lab.queues[1, 2]] == [5]


def test_what_was_cut_is_not_vouched_for() -> None:
    """The entry of the same index that is durable is another one."""
    lab = OurLab(3)
    fill(lab, 1, 1, 1, 1)
    lab.slow_disks = {1}
    lab.core(1).set_term(RaftTerm(2), None)
    lab.sync_disk(1)
    lab.hand(2, 1, _entries(3, term=2))  # cuts 3 and 4
    assert append(lab, 2, 1, term=2, prev=(3, 2)).next_index == 3


def _entries(first: int, *, term: int = 1, count: int = 1) -> Message:
    return AppendRequest(
        term=RaftTerm(term),
        round=1,
        commit_index=RaftIndex(1),
        prev_index=RaftIndex(first - 1),
        prev_term=RaftTerm(1),
        entries=tuple(entry(index, term) for index in range(first, first + count)),
    )


def test_a_message_that_waits_holds_up_no_other() -> None:
    left: list[Message] = []
    outbox = Outbox(lambda peer, message: left.append(message))
    vote = VoteReply(term=RaftTerm(3), granted=True)
    answers = [AppendReply(term=RaftTerm(3), round=n, matched=True, next_index=RaftIndex(n)) for n in range(3)]
    free = PreVoteReply(asked_term=RaftTerm(4), term=RaftTerm(3), granted=False)
    for message, after in ((vote, 7), (answers[0], 9), (answers[1], 9), (free, 2), (answers[2], 8)):
        outbox.put(BrokerId(1), message, after=after)
    outbox.release(2)
    assert left == [free]
    outbox.release(8)
    assert left == [free, vote, answers[2]]
    outbox.release(9)
    assert left == [free, vote, answers[2], answers[0], answers[1]]
    assert outbox.count() == 0
