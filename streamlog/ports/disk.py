"""The disk: files, names, and which of their changes are durable.

Contract
- Paths are absolute, parts joined by `/`. Errors are OSError with the kernel's errno.
- `pwritev` and `truncate` change the page cache: other readers see them at once, kill -9 keeps them, a power cut
  may keep any subset of the unsynced sectors (and may extend the file by zeros that were never written).
- A name (create, rename, unlink, mkdir) is durable only after `sync_dir` of its directory; syncing a file does not
  sync its name. Until then a power cut may keep any prefix of a directory's changes.
- A sync that raised is final: the dirty pages may be lost while the next sync reports success. Never retry; take the
  log directory offline.
- `pwritev` writes all or raises OSError after any prefix of it was written (ENOSPC writes short first).
- Calls without `await` do not wait for the device, except under memory pressure; calls with `await` do their work in
  another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar

Buffer: TypeAlias = bytes | bytearray | memoryview
T = TypeVar("T")


class Mapping(Protocol):
    """A read-only window on a file's first bytes. Later writes to the file are visible in it."""

    @property
    def view(self) -> memoryview:
        """Of the mapped size. Slices of it must be released before `close`."""
        ...

    def close(self) -> None: ...


class File(Protocol):
    """An open file. Reading and writing never move a cursor: there is none."""

    @property
    def path(self) -> str:
        """The path it was opened under (a rename since then does not change it)."""
        ...

    def size(self) -> int: ...

    def modified_ms(self) -> int:
        """Wall time of the last change of its bytes."""
        ...

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes; shorter only at the end of the file. May wait for the device if the page cache does not
        hold them: for small reads and recovery. Data is served by `try_pread` and `read`.
        """
        ...

    def data_from(self, offset: int) -> int:
        """The first position at or after `offset` that may not be in a hole; the file's size if only a hole follows,
        `offset` if holes are unknown. The skipped range reads as zeros.
        """
        ...

    def try_pread(self, size: int, offset: int) -> bytes | None:
        """As `pread`, if the page cache holds all of it; None where it would have to wait for the device."""
        ...

    async def read(self, size: int, offset: int) -> bytes:
        """As `pread`, off the loop."""
        ...

    async def read_with(self, size: int, offset: int, work: Callable[[bytes], T]) -> T:
        """As `read`; `work` gets the bytes in the same thread, and its result (or error) is that of the call."""
        ...

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Write the buffers one after the other from `offset` on, without joining them."""
        ...

    def truncate(self, size: int) -> None:
        """Cut or extend (with zeros) to `size` bytes. Never below the size of an open Mapping."""
        ...

    def fallocate(self, size: int, *, keep_size: bool = False) -> None:
        """Reserve blocks for the first `size` bytes. Unless `keep_size`, the file is at least `size` long
        afterwards (new bytes are zeros). Raises ENOSPC before it changes anything.
        """
        ...

    def map(self, size: int) -> Mapping:
        """Map the first `size` bytes, 0 < size <= self.size()."""
        ...

    async def sync(self) -> None:
        """fdatasync: everything written before the call is durable when it returns."""
        ...

    def close(self) -> None:
        """Idempotent. Does not sync."""
        ...


class DirectoryLock(Protocol):
    def release(self) -> None: ...


class FileSystem(Protocol):
    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. `create`: create it if missing (mode 0600), keep its content otherwise."""
        ...

    def free_descriptors(self) -> int:
        """How many files the process may still open, besides those that it reserves. Costs a system call."""
        ...

    def open_readonly(self, path: str) -> File:
        """Open for reading; works on files and file systems that cannot be written."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces an existing target file. Both in one file system. Directories too."""
        ...

    def unlink(self, path: str) -> None: ...

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def mkdir(self, path: str, *, parents: bool = False) -> None:
        """Mode 0700. With `parents` as `mkdir -p`; without, FileExistsError when it is there."""
        ...

    def list(self, directory: str) -> list[str]:
        """The names in it (not paths), sorted."""
        ...

    async def sync_dir(self, directory: str) -> None:
        """Make all changes of names in this directory durable."""
        ...

    async def sync_all(self, path: str) -> None:
        """syncfs of the file system of `path`: all its files and names, as written before the call. Raises if a write
        failed since the first call for this `path`.
        """
        ...

    def free_bytes(self, path: str) -> int:
        """Free space of the file system of `path`."""
        ...

    def total_bytes(self, path: str) -> int:
        """The size of the file system of `path`."""
        ...

    def lock(self, path: str) -> DirectoryLock:
        """Take the exclusive advisory lock on the file `path`, which is created if missing. BlockingIOError if another
        process (or another node in this one) holds it. Released when the process ends.
        """
        ...
