"""Positions of the last batches of a log: an exact, bounded index in memory, so that reads at the tail never search.

Dropped as a whole when its segment is closed; all of it can be found in the files.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final

from streamlog.model import Offset

BATCHES_MAX: Final = 1024  # 16 KiB of positions; twice that before the older half is dropped


class Tail:
    """Invariant: entry i is the batch whose next offset is `ends[i]` and that begins at `positions[i]`;
    `floor` is the offset at which entry 0 may begin; the last entry is the last batch of the segment.
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
        """Position of the first batch with a record at or above `offset`; `end_position` where all are below it.
        None where it is older than the tail.
        """
        if offset < self._floor:
            return None
        i = bisect_right(self._ends, offset)
        return self._positions[i] if i < len(self._ends) else end_position

    def boundary_before(self, position: int, end_position: int) -> int | None:
        """The last batch boundary at or before `position`. None: older than the tail."""
        if position >= end_position:
            return end_position
        i = bisect_right(self._positions, position)
        return self._positions[i - 1] if i else None
