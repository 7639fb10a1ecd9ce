"""`.txnindex`: the aborted transactions of a segment, for consumers that read committed records only (KIP-98).

An entry is 34 bytes, big-endian: version i16 (0), producer id i64, first offset i64, last offset i64, last stable
offset i64. Entries are appended when the abort marker is written, to the index of the segment that holds the marker,
so their last offsets rise. The file exists only where the segment holds, or held, an abort marker.

The last stable offset of an entry is the first offset of the oldest transaction that was still open after the
marker, or the offset after the marker: all transactions that end later begin there or above. So a search for
transactions that overlap [start, end) stops at the first entry whose last stable offset is `end` or more.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from crc32c import crc32c

from streamlog.errors import InvariantError
from streamlog.model import NO_OFFSET, Offset, ProducerId
from streamlog.ports import FileSystem
from streamlog.storage.files.replace_file import read_file
from streamlog.storage.segments.entry_file import EntryFile

VERSION: Final = 0
_ENTRY: Final = struct.Struct(">hqqqq")
ENTRY_SIZE: Final = _ENTRY.size
FILE_BYTES_MAX: Final = 2**31
"""As of a segment, which has a marker for each entry."""


class AbortedTransaction(NamedTuple):
    """A transaction whose records [first_offset, last_offset] of this producer must not be shown."""

    version: int
    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset  # of the abort marker
    last_stable_offset: Offset  # when the marker was appended


def format_entry(aborted: AbortedTransaction) -> bytes:
    return _ENTRY.pack(*aborted)


def parse_entry(content: bytes | memoryview, position: int) -> AbortedTransaction:
    """The entry at `position`, ENTRY_SIZE bytes. Neither fields nor version are checked."""
    return AbortedTransaction._make(_ENTRY.unpack_from(content, position))


class TransactionIndex:
    """Owned by its segment, which makes it durable with the other indexes. Most segments have no such file; whether it
    exists is looked up once.
    """

    __slots__ = ("_count", "_file", "_fs", "checked")

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._file = EntryFile(fs, path, ENTRY_SIZE)
        self._count = -1  # not known yet
        self.checked = False  # against its checksum (`DerivedState.transaction_sums`), or written by this process

    def checksum(self) -> int:
        """Of the whole file; 0: it does not exist, or is empty."""
        content = read_file(self._fs, self._file.path, FILE_BYTES_MAX)
        return crc32c(content) if content else 0

    @property
    def file(self) -> EntryFile:
        return self._file

    @property
    def count(self) -> int:
        """Number of entries. DamagedFileError where the file's length is impossible."""
        if self._count < 0:
            self._count = self._file.count if self._exists else 0
        return self._count

    @property
    def _exists(self) -> bool:
        return self._fs.exists(self._file.path)

    def append(self, aborted: AbortedTransaction) -> None:
        count = self.count
        if count and self._at(count - 1).last_offset >= aborted.last_offset:
            raise InvariantError(f"{self._file.path}: the marker at {aborted.last_offset} is entered twice")
        self._file.append(format_entry(aborted))
        self._count = count + 1

    def entries(self) -> list[AbortedTransaction]:
        """All of them, by rising last offset."""
        return [self._at(i) for i in range(self.count)]

    def touching(self, start: Offset, end: Offset) -> tuple[list[AbortedTransaction], bool]:
        """The transactions with offsets in [start, end), and whether no later entry can be one."""
        found: list[AbortedTransaction] = []
        for i in range(self._first_at(start), self.count):
            entry = self._at(i)
            if entry.first_offset < end:
                found.append(entry)
            if entry.last_stable_offset >= end:
                return found, True
        return found, False

    def truncate(self, offset: Offset) -> None:
        """Drop the entries of markers at and above `offset`."""
        kept = self._first_at(offset)
        if kept < self.count:
            self._file.cut(kept)
            self._file.trim()
            self._count = kept

    def clear(self) -> None:
        """Drop all entries, whatever the file contains."""
        if self._exists:
            self._file.clear()
        self._count = 0
        self.checked = True

    async def sync(self) -> None:
        if self._exists:
            await self._file.sync()

    def close(self) -> None:
        self._file.close()

    def _at(self, i: int) -> AbortedTransaction:
        return parse_entry(self._file.entry(i), 0)

    def _first_at(self, offset: Offset) -> int:
        """Index of the first entry whose last offset is at or above `offset`; `count` where there is none."""
        if offset <= NO_OFFSET:
            return 0
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self._at(middle).last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low
