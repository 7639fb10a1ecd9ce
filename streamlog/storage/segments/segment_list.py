"""The segments of a log, in order: bounds, lookup by offset. Never empty; the last one is the active one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from streamlog.errors import InvariantError
from streamlog.model import Offset
from streamlog.storage.segments.segment import Segment


class Segments:
    __slots__ = ("_bases", "_list")

    def __init__(self, segments: list[Segment]) -> None:
        self._list = segments
        self._bases = [s.base_offset for s in segments]
        if not segments or any(a >= b for a, b in zip(self._bases, self._bases[1:], strict=False)):
            raise InvariantError(f"segments out of order: {self._bases[:20]}")

    def __len__(self) -> int:
        return len(self._list)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._list)

    @property
    def active(self) -> Segment:
        return self._list[-1]

    @property
    def first(self) -> Segment:
        return self._list[0]

    def closed(self) -> list[Segment]:
        return self._list[:-1]

    def index_of(self, offset: Offset) -> int:
        """Index of the segment that contains `offset`: the last whose base is at or below it; 0 where all are above."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def at(self, index: int) -> Segment:
        return self._list[index]

    def end_of(self, index: int, log_end: Offset) -> Offset:
        """One past the last offset that may be in segment `index`: the next one's base."""
        return self._bases[index + 1] if index + 1 < len(self._bases) else log_end

    def since(self, offset: Offset) -> list[Segment]:
        """The segments from the one that contains `offset` on."""
        return self._list[self.index_of(offset) :]

    def append(self, segment: Segment) -> None:
        if segment.base_offset <= self._bases[-1]:
            raise InvariantError(f"segment {segment.base_offset} appended after {self._bases[-1]}")
        self._list.append(segment)
        self._bases.append(segment.base_offset)

    def remove_first(self, count: int) -> list[Segment]:
        """Remove the oldest `count` segments, never the active one."""
        if count >= len(self._list):
            raise InvariantError("the active segment cannot be removed")
        return self._take(0, count)

    def remove_from(self, offset: Offset) -> list[Segment]:
        """Remove all segments whose base is at or above `offset`, except the first of the log."""
        begin = max(1, bisect_right(self._bases, offset - 1))
        return self._take(begin, len(self._list))

    def replace_all(self, segment: Segment) -> list[Segment]:
        old = self._take(0, len(self._list))
        self._list.append(segment)
        self._bases.append(segment.base_offset)
        return old

    def replace(self, old: list[Segment], new: list[Segment]) -> None:
        """Replace the adjacent segments `old` by `new`; none of them is active (compaction, repair)."""
        begin = self._list.index(old[0])
        end = begin + len(old)
        if self._list[begin:end] != old or end >= len(self._list):
            raise InvariantError("the segments to replace are not adjacent, or include the active one")
        self._list[begin:end] = new
        self._bases[begin:end] = [s.base_offset for s in new]

    def _take(self, begin: int, end: int) -> list[Segment]:
        taken = self._list[begin:end]
        del self._list[begin:end]
        del self._bases[begin:end]
        return taken
