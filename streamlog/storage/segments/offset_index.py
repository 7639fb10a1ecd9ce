"""`.index`: from offsets to positions in the segment, one entry for about each 4,096 bytes.

An entry is int32 relative offset, int32 position, big-endian: the *last* offset of a batch and where that batch
begins. So a lookup for an offset below the entry's still finds a batch that may contain it (Kafka's OffsetIndex).
Entries rise strictly in both. The first entry may be anywhere; before it, the search begins at position 0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from streamlog.errors import DamagedFileError
from streamlog.model import Offset
from streamlog.ports import FileSystem
from streamlog.storage.segments.entry_index import EntryIndex

ENTRY_SIZE: Final = 8
_ENTRY: Final = struct.Struct(">ii")


class IndexEntry(NamedTuple):
    offset: Offset
    position: int


class OffsetIndex(EntryIndex):
    """Owned by its segment."""

    __slots__ = ("_last_offset",)

    def __init__(self, fs: FileSystem, path: str, base_offset: Offset, size_bytes_max: int) -> None:
        super().__init__(fs, path, _ENTRY, base_offset, size_bytes_max)
        self._last_offset = -1  # of the last entry; -1: not known, or none

    def _forget_last(self) -> None:
        self._last_offset = -1

    @property
    def is_full(self) -> bool:
        return self._file.count >= self._entries_max

    def append(self, offset: Offset, position: int) -> None:
        """Add an entry; one that does not rise is ignored (a rebuild may add an existing one)."""
        relative = self._relative(offset)
        if offset <= self._last():
            return
        self._file.append(_ENTRY.pack(relative, position))
        self._last_offset = offset

    def lookup(self, offset: Offset) -> IndexEntry:
        """The last entry at or below `offset`; (base, 0) where there is none."""
        return self._entry_before(self._search(offset - self._base + 1, 0))

    def lookup_position(self, position: int) -> IndexEntry:
        """The last entry whose batch begins at or before `position`; (base, 0) where there is none."""
        return self._entry_before(self._search(position + 1, 1))

    def last(self) -> IndexEntry:
        """The last entry; (base, 0) where there is none. Does not map the file."""
        if not self._file.count:
            return IndexEntry(self._base, 0)
        relative, position = _ENTRY.unpack(self._file.read_last())
        return IndexEntry(Offset(self._base + relative), position)

    def entries(self) -> Iterator[IndexEntry]:
        for i in range(self._file.count):
            yield self._at(i)

    def truncate(self, offset: Offset) -> None:
        """Drop the entries at and above `offset`."""
        self._file.cut(self._search(offset - self._base, 0))
        self._forget_last()

    def check(self, log_size_bytes: int) -> None:
        """Raise DamagedFileError unless the last entry is possible (Kafka's sanityCheck)."""
        if not self._file.count:
            return
        last = self.last()
        if last.offset < self._base or not 0 <= last.position < max(1, log_size_bytes):
            at = (self._file.count - 1) * ENTRY_SIZE
            raise DamagedFileError(self._file.path, at, f"impossible last entry {last.offset} -> {last.position}")

    def _last(self) -> int:
        if self._last_offset < 0 and self._file.count:
            self._last_offset = self.last().offset
        return self._last_offset

    def _at(self, i: int) -> IndexEntry:
        relative, position = _ENTRY.unpack(self._file.entry(i))
        return IndexEntry(Offset(self._base + relative), position)

    def _entry_before(self, i: int) -> IndexEntry:
        return self._at(i - 1) if i else IndexEntry(self._base, 0)
