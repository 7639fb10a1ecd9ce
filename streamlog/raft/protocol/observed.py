"""The messages between a voter and an observer. Values; wire.py has their bytes."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from streamlog.model import RaftIndex
from streamlog.raft.voters import VoterSet


class WatchRequest(Struct, frozen=True, kw_only=True):
    cluster_id: str
    applied_index: RaftIndex  # the observer has all up to here; 0: nothing


class ObservedSnapshot(Struct, frozen=True, kw_only=True):
    """A piece of the state machine's bytes; pieces come in order."""

    index: RaftIndex  # the state is that after this entry
    data: bytes
    first: bool
    last: bool


class ObservedCommands(Struct, frozen=True, kw_only=True):
    """Commands that were carried out (a repeated one is not among them), in order."""

    commands: tuple[tuple[RaftIndex, bytes], ...]
    applied_index: RaftIndex  # at least the last command's: other kinds of entries move it too
    quorum_silence_ms: int | None = None  # since the voter's last message from the leader; None: from an older release


# What an observer is sent; the voters: those in effect, first of all and whenever they have changed.
Observed: TypeAlias = ObservedSnapshot | ObservedCommands | VoterSet
