"""What the tests of the rules of Raft have in common: cores brought into a state by hand."""

from __future__ import annotations

from typing import Any

from streamlog.model import RaftIndex, RaftTerm
from streamlog.raft.core.elections import NEVER
from streamlog.raft.core.library import RaftRole
from streamlog.raft.protocol.entries import LogEntry
from streamlog.raft.protocol.messages import (
    AppendReply,
    AppendRequest,
    VoteReply,
)

from ..library.lab import FAR
from ..library.our_lab import OurLab


def entry(index: int, term: int, text: str = "x") -> LogEntry:
    return LogEntry(b"\x01" + text.encode(), RaftIndex(index), RaftTerm(term))


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
    leader = next(peer for peer in lab.ids if peer != node)
    assert append(lab, leader, node, term=terms[-1], prev=(1, 0), entries=entries).matched
    core = lab.core(node)
    core.elections.step_down(core.term)  # that leader is no more
    core.elections._leader_seen_at = NEVER
    core.election_deadline = FAR


def lead(lab: OurLab, node: int, term: int) -> None:
    """Make it leader of `term`, with the votes of all, without sending a message."""
    core = lab.core(node)
    core.set_term(RaftTerm(term - 1), None)
    core.elections._campaign()
    for peer in lab.ids:
        if core.role == RaftRole.CANDIDATE and peer != node:
            lab.hand(peer, node, VoteReply(term=RaftTerm(term), granted=True))
    assert core.role == RaftRole.LEADER
    for link in lab.queues:
        lab.queues[link].clear()
