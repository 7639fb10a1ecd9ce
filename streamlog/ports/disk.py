"""The disk: files, names, and what of them is durable.

Contract
- Paths are absolute, parts joined by `/`. Errors are OSError with the kernel's errno.
- `pwritev` and `truncate` change the page cache: other readers see them at once, kill -9 keeps them, a power cut
  may keep any subset of the unsynced sectors (and may extend the file by zeros that nobody wrote).
- A name (create, rename, unlink, mkdir) is durable only after `sync_dir` of its directory; syncing a file does not
  sync its name. Until then a power cut may keep any prefix of a directory's changes.
- A sync that raised is final: the dirty pages may be gone while the next sync says OK. Never retry; take the log
  directory offline.
- `pwritev` writes all or raises OSError after any prefix of it was written (ENOSPC writes short first).
- Calls without `await` never wait for the device, but for memory pressure; calls with `await` do their work in
  another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar

Buffer: TypeAlias = bytes | bytearray | memoryview
T = TypeVar("T")


class Mapping(Protocol):
    """A read-only window on a file's first bytes. Later writes through the file are seen in it."""

    @property
    def view(self) -> memoryview:
        """As long as the size that was mapped. Slices of it must be released before `close`."""
        ...

    def close(self) -> None: ...


class File(Protocol):
    """An open file. Reading and writing never move a cursor: there is none."""

    @property
    def path(self) -> str:
        """The path it was opened under (a rename since then does not change it)."""
        ...

    def size(self) -> int: ...

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes; shorter only at the end of the file. May wait for the device where the page cache
        lacks them: for small reads and recovery. Serving data goes by `try_pread` and `read`.
        """
        ...

    def data_from(self, offset: int) -> int:
        """The first position at or behind `offset` where anything but a hole may be; the size where there is only a
        hole, `offset` where nobody knows. What is skipped reads as zeros.
        """
        ...

    def try_pread(self, size: int, offset: int) -> bytes | None:
        """As `pread`, if the page cache holds all of it; None where it would have to wait for the device."""
        ...

    async def read(self, size: int, offset: int) -> bytes:
        """As `pread`, off the loop."""
        ...

    async def read_with(self, size: int, offset: int, work: Callable[[bytes], T]) -> T:
        """As `read`; `work` gets what was read, in the same thread, and its result (or error) is that of the call."""
        ...

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Write the buffers one behind the other from `offset` on, without joining them."""
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
        """fdatasync: all that was written before the call is durable when it returns."""
        ...

    def close(self) -> None:
        """Idempotent. Does not sync."""
        ...


class DirectoryLock(Protocol):
    def release(self) -> None: ...


class FileSystem(Protocol):
    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. `create`: make it if missing (mode 0600), keep what is there."""
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
        """syncfs of the file system that holds `path`: all files and names on it, written before the call. Tells of
        writes that failed since the first call for this `path`.
        """
        ...

    def free_bytes(self, path: str) -> int:
        """What can still be written to the file system of `path`."""
        ...

    def total_bytes(self, path: str) -> int:
        """The size of the file system of `path`."""
        ...

    def lock(self, path: str) -> DirectoryLock:
        """Take the exclusive advisory lock on the file `path`, making it if missing. BlockingIOError when another
        process (or another node in this one) holds it. Freed when the process dies.
        """
        ...
