"""What nodes of the quorum tell one another. Values; wire.py gives their bytes.

Every message but the voters' carries a term. `round` numbers the leader's messages: a reply returns it, so the leader
knows what has been heard since when, and a reply to an old message is told from one to a new.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from streamlog.model import BrokerId, RaftIndex, RaftTerm
from streamlog.raft.protocol.entries import LogEntry
from streamlog.raft.voters import DirectoryId, VoterSet


class PeerHello(Struct, frozen=True, kw_only=True):
    """First on every stream, both ways."""

    cluster_id: str
    node_id: BrokerId
    directory_id: DirectoryId


class PreVoteRequest(Struct, frozen=True, kw_only=True):
    """Would you vote for me? Changes nothing at either side (thesis, 9.6)."""

    term: RaftTerm  # the one that the sender would campaign in: its own + 1
    last_index: RaftIndex
    last_term: RaftTerm
    named: bool = False  # the voters that the sender goes by name its directory


class PreVoteReply(Struct, frozen=True, kw_only=True):
    asked_term: RaftTerm  # of the request
    term: RaftTerm  # the voter's own
    granted: bool


class VoteRequest(Struct, frozen=True, kw_only=True):
    term: RaftTerm
    last_index: RaftIndex
    last_term: RaftTerm
    named: bool = False


class VoteReply(Struct, frozen=True, kw_only=True):
    term: RaftTerm
    granted: bool


class AppendRequest(Struct, frozen=True, kw_only=True):
    term: RaftTerm
    round: int
    commit_index: RaftIndex
    prev_index: RaftIndex  # entries[0].index - 1
    prev_term: RaftTerm
    next_within_ms: int = 0  # the leader will be heard again after so long at most; 0: its usual heartbeat
    entries: tuple[LogEntry, ...] = ()  # consecutive; none: a heartbeat


class AppendReply(Struct, frozen=True, kw_only=True):
    term: RaftTerm
    round: int
    matched: bool  # True: the follower holds durably what the leader has below next_index. False: next_index is a hint
    next_index: RaftIndex


class SnapshotRequest(Struct, frozen=True, kw_only=True):
    """One piece of the snapshot file; they come in order, the next one after the reply."""

    term: RaftTerm
    round: int
    last_index: RaftIndex  # what the snapshot covers
    last_term: RaftTerm
    size: int  # of the file
    offset: int  # of `data` in it
    data: bytes


class SnapshotReply(Struct, frozen=True, kw_only=True):
    term: RaftTerm
    round: int
    last_index: RaftIndex
    offset: int  # wanted next
    installed: bool  # the state is at last_index or beyond


class TimeoutNow(Struct, frozen=True, kw_only=True):
    """Campaign at once: the leader hands over (thesis, 3.10)."""

    term: RaftTerm


class VotersNotice(Struct, frozen=True, kw_only=True):
    """The voters that the sender goes by. Moves no term and no log: see Membership.may_lead."""

    index: RaftIndex  # where they were set; 0: the settings
    voters: VoterSet


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
    | VotersNotice
)
