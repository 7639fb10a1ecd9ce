"""Which bytes of a segment's file are known to be intact: written by this process, or read and checked by it.

    [0 ............ written_from) [written_from ............ end)
     only what `add` has named     written by this process, or scanned by recovery

Ranges are of positions in the file and begin and end between batches. Each knows the offset after its last batch, so
that a reader that goes on where one ends knows what must come there. Few ranges are kept: sequential readers extend
one, and what is forgotten is read and checked again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from streamlog.model import Offset

RANGES_MAX: Final = 32
"""Of one segment. More come of readers that jump; the shortest is forgotten then."""
ALL_UNKNOWN: Final = 2**63 - 1


class VerifiedRange(NamedTuple):
    begin: int
    end: int
    next_offset: Offset  # after the last batch before `end`


class Verified:
    """Owned by its segment."""

    __slots__ = ("_ranges", "written_from")

    def __init__(self, written_from: int = ALL_UNKNOWN) -> None:
        self.written_from = written_from  # all from here on is intact
        self._ranges: list[VerifiedRange] = []  # rising, apart from one another

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
        """The file ends here now; what is written behind it is written by this process."""
        self.written_from = min(self.written_from, position)
        self._ranges = [known for known in self._ranges if known.end <= position]

    def forget(self) -> None:
        """Nothing is known any more: something corrupt was found."""
        self.written_from = ALL_UNKNOWN
        self._ranges.clear()
