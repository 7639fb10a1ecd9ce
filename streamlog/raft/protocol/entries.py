"""Entries of the replicated log. Their data are one byte of kind, then the payload.

The kinds and their numbers are PySyncObj's, which writes the byte itself for commands and no-ops.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from streamlog.model import RaftIndex, RaftTerm


class LogEntry(NamedTuple):
    """Fields in the order in which PySyncObj unpacks them; equal (index, term) means equal data (log matching)."""

    data: bytes
    index: RaftIndex  # type: ignore[assignment]  # hides tuple.index, which is never called on an entry
    term: RaftTerm

    @property
    def kind(self) -> int:
        """An EntryKind, or a number that this version does not know."""
        return self.data[0]

    @property
    def payload(self) -> bytes:
        return self.data[1:]


class EntryKind(enum.IntEnum):
    COMMAND = 0  # payload: a Command envelope (wire.py) around the caller's bytes
    NO_OP = 1  # a leader's first entry of its term; no payload
    VOTERS = 2  # payload: a VoterSet (wire.py), in effect from its place in the log
    # 3 was PySyncObj's switch of its code version. Not used, not to be used again.


NO_OP: Final = bytes([EntryKind.NO_OP])
COMMAND: Final = bytes([EntryKind.COMMAND])
VOTERS: Final = bytes([EntryKind.VOTERS])

FIRST_INDEX: Final = RaftIndex(1)
FIRST_ENTRY: Final = LogEntry(NO_OP, FIRST_INDEX, RaftTerm(0))
"""The first entry of every log; counts as committed and applied (PySyncObj's convention)."""
