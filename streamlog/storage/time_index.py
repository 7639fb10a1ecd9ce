"""`.timeindex`: from timestamps to offsets, for lookups by time.

An entry is int64 largest timestamp so far in the segment, int32 relative offset of the batch (its last offset) that
holds it, big-endian; both rise strictly (Kafka's TimeIndex). An entry says: every record with a larger timestamp
comes after that offset.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from streamlog.errors import DamagedFileError
from streamlog.model import INT32_MAX, NO_TIMESTAMP, Offset
from streamlog.ports import FileSystem
from streamlog.storage.entry_file import EntryFile

ENTRY_SIZE: Final = 12
_ENTRY: Final = struct.Struct(">qi")


class TimeEntry(NamedTuple):
    timestamp_ms: int
    offset: Offset


class TimeIndex:
    """Owned by its segment."""

    __slots__ = ("_base", "_entries_max", "_file", "_last")

    def __init__(self, fs: FileSystem, path: str, base_offset: Offset, size_bytes_max: int) -> None:
        self._file = EntryFile(fs, path, ENTRY_SIZE)
        self._base = base_offset
        self._entries_max = size_bytes_max // ENTRY_SIZE
        self._last: TimeEntry | None = None  # None: not known

    @property
    def file(self) -> EntryFile:
        return self._file

    @property
    def is_full(self) -> bool:
        return self._file.count >= self._entries_max - 1  # the last place is kept for the entry made at the roll

    @property
    def preallocated_bytes(self) -> int:
        return self._entries_max * ENTRY_SIZE

    def maybe_append(self, timestamp_ms: int, offset: Offset) -> None:
        """Add an entry if it rises in both columns."""
        last = self.last()
        if timestamp_ms <= last.timestamp_ms or self._file.count >= self._entries_max:
            return
        if self._file.count and offset <= last.offset:
            return
        relative = offset - self._base
        if not 0 <= relative <= INT32_MAX:
            raise ValueError(f"offset {offset} does not fit an index with base {self._base}")
        self._file.append(_ENTRY.pack(timestamp_ms, relative))
        self._last = TimeEntry(timestamp_ms, offset)

    def last(self) -> TimeEntry:
        """The last entry; (-1, base) where there is none. Does not map the file."""
        if self._last is None:
            if self._file.count:
                timestamp_ms, relative = _ENTRY.unpack(self._file.read_last())
                self._last = TimeEntry(timestamp_ms, Offset(self._base + relative))
            else:
                self._last = TimeEntry(NO_TIMESTAMP, self._base)
        return self._last

    def lookup(self, timestamp_ms: int) -> TimeEntry:
        """The last entry at or below the timestamp; (-1, base) where there is none."""
        i = self._search(timestamp_ms + 1, 0)
        return self._at(i - 1) if i else TimeEntry(NO_TIMESTAMP, self._base)

    def entries(self) -> Iterator[TimeEntry]:
        for i in range(self._file.count):
            yield self._at(i)

    def truncate(self, offset: Offset) -> None:
        """Drop the entries at and above `offset`."""
        self._file.cut(self._search(offset - self._base, 1))
        self._last = None

    def clear(self, *, preallocate: bool) -> None:
        self._file.clear(self.preallocated_bytes if preallocate else 0)
        self._last = None

    def check(self) -> None:
        """Raise DamagedFileError unless the last entry can be true."""
        last = self.last()
        if self._file.count and (last.offset < self._base or last.timestamp_ms < 0):
            at = (self._file.count - 1) * ENTRY_SIZE
            raise DamagedFileError(self._file.path, at, f"impossible last entry {last.timestamp_ms} -> {last.offset}")

    def _at(self, i: int) -> TimeEntry:
        timestamp_ms, relative = _ENTRY.unpack(self._file.entry(i))
        return TimeEntry(timestamp_ms, Offset(self._base + relative))

    def _search(self, bound: int, column: int) -> int:
        """Number of entries whose column (0: timestamp, 1: relative offset) is below `bound`."""
        low, high = 0, self._file.count
        while low < high:
            middle = (low + high) // 2
            if _ENTRY.unpack(self._file.entry(middle))[column] < bound:
                low = middle + 1
            else:
                high = middle
        return low
