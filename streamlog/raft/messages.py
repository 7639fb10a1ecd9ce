"""What nodes of the quorum tell one another. Values; wire.py gives their bytes.

Every message carries a term. `round` numbers the leader's messages: a reply returns it, so the leader knows what has
been heard since when, and a reply to an old message is told from one to a new.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from streamlog.model import BrokerId, RaftIndex, RaftTerm
from streamlog.raft.entries import Entry
from streamlog.raft.voters import DirectoryId


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """First on every stream, both ways."""

    cluster_id: str
    node_id: BrokerId
    directory_id: DirectoryId


@dataclass(frozen=True, slots=True, kw_only=True)
class PreVoteRequest:
    """Would you vote for me? Changes nothing at either side (thesis, 9.6)."""

    term: RaftTerm  # the one that the sender would campaign in: its own + 1
    last_index: RaftIndex
    last_term: RaftTerm
    named: bool = False  # the voters that the sender goes by name its directory


@dataclass(frozen=True, slots=True, kw_only=True)
class PreVoteReply:
    asked_term: RaftTerm  # of the request
    term: RaftTerm  # the voter's own
    granted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    term: RaftTerm
    last_index: RaftIndex
    last_term: RaftTerm
    named: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteReply:
    term: RaftTerm
    granted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRequest:
    term: RaftTerm
    round: int
    commit_index: RaftIndex
    prev_index: RaftIndex  # entries[0].index - 1
    prev_term: RaftTerm
    next_within_ms: int = 0  # the leader will be heard again after so long at most; 0: its usual heartbeat
    entries: tuple[Entry, ...] = ()  # consecutive; none: a heartbeat


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendReply:
    term: RaftTerm
    round: int
    matched: bool  # True: the follower holds durably what the leader has below next_index. False: next_index is a hint
    next_index: RaftIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequest:
    """One piece of the snapshot file; they come in order, the next one after the reply."""

    term: RaftTerm
    round: int
    last_index: RaftIndex  # what the snapshot covers
    last_term: RaftTerm
    size: int  # of the file
    offset: int  # of `data` in it
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotReply:
    term: RaftTerm
    round: int
    last_index: RaftIndex
    offset: int  # wanted next
    installed: bool  # the state is at last_index or beyond


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutNow:
    """Campaign at once: the leader hands over (thesis, 3.10)."""

    term: RaftTerm


Message: TypeAlias = (
    PreVoteRequest
    | PreVoteReply
    | VoteRequest
    | VoteReply
    | AppendRequest
    | AppendReply
    | SnapshotRequest
    | SnapshotReply
    | TimeoutNow
)
