"""Which bytes of a segment's file are known to be intact: written by this process, or read and checked by it.

    [0 ............ written_from) [written_from ............ end)
     the ranges passed to `add`    written by this process, or scanned by recovery

Ranges are positions in the file, at batch boundaries. Each carries the offset after its last batch, so that a read
that continues there knows which offset to expect. Few ranges are kept: sequential reads extend one, and a dropped one
is read and checked again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from streamlog.model import Offset

RANGES_MAX: Final = 32
"""Of one segment. Random reads make more; the shortest is dropped then."""
ALL_UNKNOWN: Final = 2**63 - 1


class VerifiedRange(NamedTuple):
    begin: int
    end: int
    next_offset: Offset  # after the last batch before `end`


class Verified:
    """Owned by its segment."""

    __slots__ = ("_ranges", "written_from")

    def __init__(self, written_from: int = ALL_UNKNOWN) -> None:
        self.written_from = written_from  # everything from here on is intact
        self._ranges: list[VerifiedRange] = []  # rising, not touching

    def covers(self, begin: int, end: int) -> bool:
        if begin >= self.written_from:
            return True
        for known in self._ranges:
            if known.begin <= begin < known.end:
                return end <= known.end or known.end >= self.written_from
        return False

    def next_offset_at(self, position: int) -> Offset | None:
        """The offset after the batch that ends at `position`, where that batch is known to be intact."""
        for known in self._ranges:
            if known.end == position:
                return known.next_offset
        return None

    def add(self, begin: int, end: int, next_offset: Offset) -> None:
        """Whole batches, all intact."""
        if begin >= end:
            return
        kept: list[VerifiedRange] = []
        for known in self._ranges:
            if known.end < begin or known.begin > end:
                kept.append(known)
                continue
            begin = min(begin, known.begin)
            if known.end > end:
                end, next_offset = known.end, known.next_offset
        kept.append(VerifiedRange(begin, end, next_offset))
        kept.sort()
        if len(kept) > RANGES_MAX:
            kept.remove(min(kept, key=lambda one: one.end - one.begin))
        self._ranges = kept

    def cut(self, position: int) -> None:
        """The file ends here now; later bytes are written by this process."""
        self.written_from = min(self.written_from, position)
        self._ranges = [known for known in self._ranges if known.end <= position]

    def forget(self) -> None:
        """Drop everything: corrupt bytes were found."""
        self.written_from = ALL_UNKNOWN
        self._ranges.clear()
