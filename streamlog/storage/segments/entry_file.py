"""A file of fixed-size entries that are appended, searched and truncated: the base of all indexes.

States: *unopened* (only the path is known: an idle segment costs no descriptor), *open*, *mapped*. Lookups read a
mapping of the file; appends use pwrite and are visible in it, so that a full disk is an OSError and never a SIGBUS.

While its segment is active the file is preallocated (sparse, with zeros), so its length is not the number of entries:
that number is kept in memory, and passed on to the next process by `trim`, which truncates the file to its entries.
After an unclean stop the entries are rebuilt from the log.
"""

from __future__ import annotations

from typing import Final

from streamlog.errors import DamagedFileError
from streamlog.ports import File, FileSystem, Mapping

HELD_BYTES_MAX: Final = 64 << 10


class EntryFile:
    """Not safe for concurrent use; durable after `sync`, which the owner calls."""

    __slots__ = ("_count", "_entry_size", "_file", "_fs", "_held", "_mapping", "path")

    def __init__(self, fs: FileSystem, path: str, entry_size: int) -> None:
        self._fs = fs
        self.path = path
        self._entry_size = entry_size
        self._file: File | None = None
        self._mapping: Mapping | None = None
        self._count = -1  # unknown
        self._held: bytearray | None = None  # entries counted but not written, while a rebuild adds many

    @property
    def count(self) -> int:
        """Number of entries. The first call opens the file and derives it from the length."""
        if self._count < 0:
            size = self._opened().size()
            if size % self._entry_size:
                raise DamagedFileError(self.path, size, f"its length is not a multiple of {self._entry_size}")
            self._count = size // self._entry_size
        return self._count

    def entry(self, index: int) -> memoryview:
        """The bytes of entry `index`, 0 <= index < count; valid until the next change of this file."""
        self._write_held()
        if self._mapping is None:
            file = self._opened()
            self._mapping = file.map(file.size())
        begin = index * self._entry_size
        return self._mapping.view[begin : begin + self._entry_size]

    def read_last(self) -> bytes:
        """The last entry, without mapping the file. There must be one."""
        self._write_held()
        return self._opened().pread(self._entry_size, (self.count - 1) * self._entry_size)

    def append(self, entry: bytes) -> None:
        count = self.count
        if self._held is not None:
            self._held += entry
            self._count = count + 1
            if len(self._held) >= HELD_BYTES_MAX:
                self._write_held()
            return
        file = self._opened()
        if self._mapping is not None and len(self._mapping.view) < (count + 1) * self._entry_size:
            self._unmap()
        file.pwritev((entry,), count * self._entry_size)
        self._count = count + 1

    def hold(self) -> None:
        """From now on write entries many at a time, until `release`."""
        self._held = self._held or bytearray()

    def release(self) -> None:
        self._write_held()
        self._held = None

    def _write_held(self) -> None:
        if self._held:
            held, self._held = self._held, bytearray()
            self._unmap()
            self._opened().pwritev((held,), self.count * self._entry_size - len(held))

    def preallocate(self, size_bytes: int) -> None:
        """Extend to `size_bytes`, sparse. The entries stay."""
        self._count = self.count
        file = self._opened()
        if file.size() < size_bytes:
            self._unmap()
            file.truncate(size_bytes)

    def clear(self, size_bytes: int = 0) -> None:
        """Drop all entries, whatever the file contains; leave `size_bytes` of zeros."""
        self._unmap()
        if self._held:
            self._held.clear()
        file = self._opened()
        file.truncate(0)
        file.truncate(size_bytes)
        self._count = 0

    def cut(self, count: int) -> None:
        """Keep the first `count` entries."""
        self._write_held()
        self._count = min(self.count, count)

    def trim(self) -> None:
        """Truncate the file to its entries."""
        self._write_held()
        self._unmap()
        self._opened().truncate(self.count * self._entry_size)

    async def sync(self) -> None:
        self._write_held()
        await self._opened().sync()

    def close(self) -> None:
        self._write_held()
        self._unmap()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self) -> File:
        if self._file is None:
            self._file = self._fs.open(self.path, create=True)
        return self._file

    def _unmap(self) -> None:
        if self._mapping is not None:
            self._mapping.close()
            self._mapping = None
