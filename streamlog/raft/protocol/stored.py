"""The values in the quorum's files besides entries. wire.py has their bytes."""

from __future__ import annotations

from msgspec import Struct

from streamlog.model import BrokerId, RaftIndex, RaftTerm
from streamlog.raft.port import Applied
from streamlog.raft.voters import DirectoryId, VoterSet


class QuorumIdentity(Struct, frozen=True, kw_only=True):
    """Whose directory it is. Written once, before the first vote."""

    cluster_id: str
    node_id: BrokerId
    directory_id: DirectoryId
    bootstrap: VoterSet  # the voters of the first start (`Owner`): in effect until the log names others


class SnapshotHead(Struct, frozen=True, kw_only=True):
    """What a snapshot covers, and the voters in effect there."""

    last_index: RaftIndex
    last_term: RaftTerm
    voters_index: RaftIndex  # where in the log they were set; 0: the bootstrap
    voters: VoterSet


class Session(Struct, frozen=True, kw_only=True):
    """What is remembered of one client."""

    client_id: str
    forgotten_end: int  # a sequence below this that is not among the answers is no longer known
    answers: tuple[tuple[int, Applied], ...]  # (sequence, answer), oldest first
