"""What the two indexes of a segment have in common: rows of two rising numbers, found by bisection."""

from __future__ import annotations

from struct import Struct

from streamlog.model import INT32_MAX, Offset
from streamlog.ports import FileSystem
from streamlog.storage.segments.entry_file import EntryFile


class EntryIndex:
    """Owned by its segment. `size_bytes_max` is rounded down to whole entries, as Kafka does."""

    __slots__ = ("_base", "_entries_max", "_file", "_row")

    def __init__(self, fs: FileSystem, path: str, row: Struct, base_offset: Offset, size_bytes_max: int) -> None:
        self._file = EntryFile(fs, path, row.size)
        self._row = row
        self._base = base_offset
        self._entries_max = size_bytes_max // row.size

    @property
    def file(self) -> EntryFile:
        return self._file

    @property
    def preallocated_bytes(self) -> int:
        return self._entries_max * self._row.size

    def clear(self, *, preallocate: bool) -> None:
        """Drop all entries."""
        self._file.clear(self.preallocated_bytes if preallocate else 0)
        self._forget_last()

    def _forget_last(self) -> None:
        """The last entry has changed: drop its cached value."""
        raise NotImplementedError

    def _relative(self, offset: Offset) -> int:
        relative = offset - self._base
        if not 0 <= relative <= INT32_MAX:
            raise ValueError(f"offset {offset} is out of range for an index with base {self._base}")
        return relative

    def _search(self, bound: int, column: int) -> int:
        """Number of entries whose column (0 or 1) is below `bound`."""
        low, high = 0, self._file.count
        while low < high:
            middle = (low + high) // 2
            if self._row.unpack(self._file.entry(middle))[column] < bound:
                low = middle + 1
            else:
                high = middle
        return low
