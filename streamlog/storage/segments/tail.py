"""Where the last batches of a log stand: an exact, bounded index in memory, so that readers at the tail never search.

Kept for the last batches only and dropped as a whole when the log goes quiet; every answer can be had from the files.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final

from streamlog.model import Offset

BATCHES_MAX: Final = 1024  # 16 KiB of positions; twice that before the older half is dropped


class Tail:
    """Invariant: entry i is the batch whose next offset is `ends[i]` and that begins at `positions[i]`;
    `floor` is the next offset of the batch before entry 0; the last entry is the last batch of the segment.
    """

    __slots__ = ("_ends", "_floor", "_positions")

    def __init__(self, floor: Offset) -> None:
        self._floor = floor
        self._ends = array("q")
        self._positions = array("q")

    def append(self, next_offset: Offset, position: int) -> None:
        if len(self._ends) >= 2 * BATCHES_MAX:
            self._floor = Offset(self._ends[BATCHES_MAX - 1])
            del self._ends[:BATCHES_MAX]
            del self._positions[:BATCHES_MAX]
        self._ends.append(next_offset)
        self._positions.append(position)

    def reset(self, floor: Offset) -> None:
        self._floor = floor
        self._ends = array("q")
        self._positions = array("q")

    def position_after(self, offset: Offset, end_position: int) -> int | None:
        """Where the first batch with a record at or above `offset` begins; `end_position` where all are below it.
        None where the tail does not reach back so far.
        """
        if offset < self._floor:
            return None
        i = bisect_right(self._ends, offset)
        return self._positions[i] if i < len(self._ends) else end_position

    def boundary_before(self, position: int, end_position: int) -> int | None:
        """The last beginning of a batch (or end of the segment) at or before `position`. None: not known here."""
        if position >= end_position:
            return end_position
        i = bisect_right(self._positions, position)
        return self._positions[i - 1] if i else None
