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
from streamlog.model import NO_TIMESTAMP, Offset
from streamlog.ports import FileSystem
from streamlog.storage.segments.entry_index import EntryIndex

ENTRY_SIZE: Final = 12
_ENTRY: Final = struct.Struct(">qi")


class TimeEntry(NamedTuple):
    timestamp_ms: int
    offset: Offset


class TimeIndex(EntryIndex):
    """Owned by its segment."""

    __slots__ = ("_last",)

    def __init__(self, fs: FileSystem, path: str, base_offset: Offset, size_bytes_max: int) -> None:
        super().__init__(fs, path, _ENTRY, base_offset, size_bytes_max)
        self._last: TimeEntry | None = None  # None: not known

    def _forget_last(self) -> None:
        self._last = None

    @property
    def is_full(self) -> bool:
        return self._file.count >= self._entries_max - 1  # the last slot is reserved for the entry added at the roll

    def maybe_append(self, timestamp_ms: int, offset: Offset) -> None:
        """Add an entry if it rises in both columns."""
        last = self.last()
        if timestamp_ms <= last.timestamp_ms or self._file.count >= self._entries_max:
            return
        if self._file.count and offset <= last.offset:
            return
        self._file.append(_ENTRY.pack(timestamp_ms, self._relative(offset)))
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
        self._forget_last()

    def check(self) -> None:
        """Raise DamagedFileError unless the last entry is possible."""
        last = self.last()
        if self._file.count and (last.offset < self._base or last.timestamp_ms < 0):
            at = (self._file.count - 1) * ENTRY_SIZE
            raise DamagedFileError(self._file.path, at, f"impossible last entry {last.timestamp_ms} -> {last.offset}")

    def _at(self, i: int) -> TimeEntry:
        timestamp_ms, relative = _ENTRY.unpack(self._file.entry(i))
        return TimeEntry(timestamp_ms, Offset(self._base + relative))
