"""What passes between a voter and an observer. Values; wire.py gives their bytes."""

from __future__ import annotations

from dataclasses import dataclass

from streamlog.model import RaftIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest:
    cluster_id: str
    applied_index: RaftIndex  # the observer has all up to here; 0: nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedSnapshot:
    """A piece of the state machine's bytes; pieces come in order."""

    index: RaftIndex  # the state is that after this entry
    data: bytes
    first: bool
    last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCommands:
    """Commands that were carried out (a repeated one is not among them), in order."""

    commands: tuple[tuple[RaftIndex, bytes], ...]
    applied_index: RaftIndex  # at least the last command's: other kinds of entries move it too
