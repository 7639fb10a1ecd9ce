"""The messages between voters. Values; wire.py has their bytes.

Every message except VotersNotice carries a term. `round` numbers the leader's messages: a reply returns it, so the
leader can match replies to messages.
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
    """Would the receiver grant a vote? Changes no state at either side (thesis, 9.6)."""

    term: RaftTerm  # the one the sender would campaign in: its own + 1
    last_index: RaftIndex
    last_term: RaftTerm
    named: bool = False  # the sender's voter set names its directory


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
    next_within_ms: int = 0  # the leader sends its next message within this time; 0: its usual heartbeat
    entries: tuple[LogEntry, ...] = ()  # consecutive; none: a heartbeat


class AppendReply(Struct, frozen=True, kw_only=True):
    term: RaftTerm
    round: int
    matched: bool  # True: the follower durably holds the leader's entries below next_index. False: next_index is a hint
    next_index: RaftIndex


class SnapshotRequest(Struct, frozen=True, kw_only=True):
    """One chunk of the snapshot file; the next one follows the reply."""

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
    offset: int  # of the next chunk to send
    installed: bool  # the state is at last_index or beyond


class TimeoutNow(Struct, frozen=True, kw_only=True):
    """Campaign at once: the leader transfers its leadership (thesis, 3.10)."""

    term: RaftTerm


class VotersNotice(Struct, frozen=True, kw_only=True):
    """The sender's voters in effect. Changes no term and no log: see VoterSetHistory.may_lead."""

    index: RaftIndex  # of the entry that set them; 0: the settings
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
