"""The disk port on a POSIX file system: Linux, where each call below does what the contract says.

Calls that may wait for the device run in threads: `syncs` for files and file systems, a small pool for directories and
one for cold reads, so that a slow read never delays a sync. Each device has its own (`DeviceThreads`): one that hangs
does not hold up the others. Another thread frees the blocks of removed files: for a gigabyte in the page cache that
takes the kernel 0.2 s.
Everything else is a system call on the page cache, made on the event loop. One PosixFileSystem serves a node; it is
used from the node's event loop only, except for the work in its own threads.

A descriptor is closed when its file is closed and no thread uses it: if it were closed earlier, with a sync still
running, the next file to be opened could get its number.

Files are opened through `spare_files`: a lack of descriptors is not a failure of the disk.

Once a sync of a file or of a file system has failed, every later one fails too. The kernel reports such an error once,
then success; and the caller that should have received it may have been cancelled.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import stat
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property, partial
from itertools import accumulate
from typing import Final, TypeVar

from streamlog.errors import InvariantError
from streamlog.ports.disk import Buffer
from streamlog.ports.spare_files import SpareFiles, free_descriptors
from streamlog.ports.threads.off_loop import off_loop
from streamlog.ports.threads.syncs import Syncs, SyncsInTurn, new_syncs

T = TypeVar("T")

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
IOV_MAX: Final = 1024
"""Buffers that one pwritev takes (<limits.h> on Linux)."""
LARGE_BYTES: Final = 4 << 20
"""Removed files of this size are freed by a thread; a smaller one takes less than a millisecond."""
UNLINKED_OPEN_MAX: Final = 256
"""Removed files that wait to be freed. The page cache holds fewer segments, and uncached files are freed quickly."""

_FALLOC_FL_KEEP_SIZE: Final = 1
_NOT_SUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS})
_libc: Final = ctypes.CDLL(None, use_errno=True)


class _IoVector(ctypes.Structure):
    """struct iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_preadv2: Final = _libc.preadv2
_preadv2.argtypes = (ctypes.c_int, ctypes.POINTER(_IoVector), ctypes.c_int, ctypes.c_int64, ctypes.c_int)
_preadv2.restype = ctypes.c_ssize_t
_fallocate: Final = _libc.fallocate
_fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
_new_bytes: Final = ctypes.pythonapi.PyBytes_FromStringAndSize
_new_bytes.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t)
_new_bytes.restype = ctypes.py_object
_address_of: Final = ctypes.pythonapi.PyBytes_AsString
_address_of.argtypes = (ctypes.py_object,)
_address_of.restype = ctypes.c_void_p


class PosixMapping:
    """A read-only shared mapping; stays valid when its file is closed."""

    def __init__(self, file: PosixFile, descriptor: int, size: int) -> None:
        self._file = file
        self._size = size
        self._memory = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
        self.view = memoryview(self._memory)

    def close(self) -> None:
        """BufferError while a slice of the view is held. Idempotent."""
        if self._memory.closed:
            return
        self.view.release()
        self._memory.close()
        self._file.unmapped(self._size)


_KINDS: Final = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


class PosixFile:
    def __init__(self, system: PosixFileSystem, path: str, flags: int) -> None:
        """OSError as open(2)."""
        self._system = system
        self._path = path
        self._descriptor = system.spares.open(path, flags, FILE_MODE)
        self._mapped: list[int] = []  # sizes of the mappings that are open
        self._syncs: SyncsInTurn | None = None  # with the first one
        self._lock = threading.Lock()  # guards the two below
        self._uses = 0  # threads that use the descriptor
        self._closed = False

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        return os.fstat(self._open()).st_size

    def modified_ms(self) -> int:
        return os.fstat(self._open()).st_mtime_ns // 1_000_000

    def pread(self, size: int, offset: int) -> bytes:
        return _pread(self._open(), size, offset)

    def data_from(self, offset: int) -> int:
        descriptor = self._open()
        try:
            # The descriptor's position is not used by any read.
            return os.lseek(descriptor, offset, os.SEEK_DATA)
        except AttributeError:
            return offset  # a system without SEEK_DATA
        except OSError as error:
            if error.errno == errno.ENXIO:
                return max(offset, self.size())
            if error.errno == errno.EINVAL:
                return offset  # a file system that does not know its holes
            raise

    def try_pread(self, size: int, offset: int) -> bytes | None:
        descriptor = self._open()
        if size <= 0:
            return b""
        try:
            data = _pread_cached(descriptor, size, offset)
        except OSError as error:
            if error.errno == errno.EAGAIN or error.errno in _NOT_SUPPORTED:
                return None
            raise
        if len(data) < size and offset + len(data) < os.fstat(descriptor).st_size:
            return None  # the cache holds only a first part of it
        return data

    async def read(self, size: int, offset: int) -> bytes:
        descriptor = self._open()
        return await self._off_loop(self._threads.readers, lambda: _pread(descriptor, size, offset))

    async def read_with(self, size: int, offset: int, work: Callable[[bytes], T]) -> T:
        descriptor = self._open()
        return await self._off_loop(self._threads.readers, lambda: work(_pread(descriptor, size, offset)))

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        descriptor = self._open()
        for first in range(0, len(buffers), IOV_MAX):
            offset = _write_all(descriptor, buffers[first : first + IOV_MAX], offset)

    def truncate(self, size: int) -> None:
        if any(size < mapped for mapped in self._mapped):
            raise InvariantError(f"{self._path}: truncated to {size} below an open mapping")
        os.ftruncate(self._open(), size)

    def fallocate(self, size: int, *, keep_size: bool = False) -> None:
        descriptor = self._open()
        before = os.fstat(descriptor).st_size
        try:
            if keep_size:
                _reserve(descriptor, size)
            else:
                os.posix_fallocate(descriptor, 0, size)
        except OSError:
            os.ftruncate(descriptor, before)  # a full disk may have allocated a part of it
            raise

    def map(self, size: int) -> PosixMapping:
        if not 0 < size <= self.size():
            raise ValueError(f"{self._path}: {size} bytes of {self.size()} cannot be mapped")
        mapping = PosixMapping(self, self._open(), size)
        self._mapped.append(size)
        return mapping

    def unmapped(self, size: int) -> None:
        """A mapping of this size was closed."""
        self._mapped.remove(size)

    async def sync(self) -> None:
        descriptor = self._open()
        if self._syncs is None:
            self._syncs = SyncsInTurn(self._threads.syncs, descriptor, self._path, file_system=False)
        self._use()
        await self._syncs.sync(self._release)

    def close(self) -> None:
        with self._lock:
            closes = not self._closed and not self._uses
            self._closed = True
        if closes:
            os.close(self._descriptor)

    @cached_property
    def _threads(self) -> DeviceThreads:
        return self._system.threads_of(self._descriptor)

    def _open(self) -> int:
        if self._closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        return self._descriptor

    async def _off_loop(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        """Run `work` in the pool; the descriptor stays open until it has ended, cancelled or not."""
        self._use()
        return await off_loop(pool, work, self._release)

    def _use(self) -> None:
        with self._lock:
            self._uses += 1

    def _release(self) -> None:
        with self._lock:
            self._uses -= 1
            closes = self._closed and not self._uses
        if closes:
            with suppress(OSError):  # of an earlier write; its sync is what reports it
                os.close(self._descriptor)


class PosixLock:
    def __init__(self, spares: SpareFiles, path: str) -> None:
        """flock(2) belongs to the open file, so it excludes a second node in this process like another process."""
        self._descriptor: int | None = spares.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class DeviceThreads:
    """What works for the files of one device. Threads are begun when they are needed."""

    def __init__(self, sync_threads: int, read_threads: int) -> None:
        self._sync_threads = sync_threads
        self.directory_syncers = ThreadPoolExecutor(sync_threads, "disk-sync-dir")
        self.readers = ThreadPoolExecutor(read_threads, "disk-read")

    @cached_property
    def syncs(self) -> Syncs:
        """With the first sync: many a process only reads."""
        return new_syncs(self._sync_threads)

    def close(self) -> None:
        if "syncs" in self.__dict__:
            self.syncs.close()
        self.directory_syncers.shutdown()
        self.readers.shutdown()


class PosixFileSystem:
    """Close it after all of its files: `close` waits for the threads."""

    def __init__(self, *, sync_threads: int = 4, read_threads: int = 4) -> None:
        """For each device so many."""
        self._new_threads = partial(DeviceThreads, sync_threads, read_threads)
        self._threads: dict[int, DeviceThreads] = {}  # by device
        self._closers = ThreadPoolExecutor(1, "disk-free")
        self.spares = SpareFiles()
        self._unlinked_open = threading.Semaphore(UNLINKED_OPEN_MAX)  # descriptors that wait to be closed
        # One for each directory that `sync_all` was called for, kept open: syncfs reports a failed write only through
        # descriptors that were open when it failed.
        self._synced: dict[str, tuple[int, SyncsInTurn]] = {}

    def threads_of(self, descriptor: int) -> DeviceThreads:
        return self._threads_on(os.fstat(descriptor).st_dev)

    def _threads_on(self, device: int) -> DeviceThreads:
        if device not in self._threads:
            self._threads[device] = self._new_threads()
        return self._threads[device]

    def close(self) -> None:
        for threads in self._threads.values():
            threads.close()
        self._closers.shutdown()
        self.close_syncfs_descriptors()
        self.spares.close()

    def close_syncfs_descriptors(self) -> None:
        """Close the directories that `sync_all` holds open, so that their file system can be unmounted."""
        for descriptor, _ in self._synced.values():
            os.close(descriptor)
        self._synced.clear()

    def open(self, path: str, *, create: bool = False) -> PosixFile:
        return PosixFile(self, absolute(path), os.O_RDWR | (os.O_CREAT if create else 0))

    def free_descriptors(self) -> int:
        return free_descriptors()

    def open_readonly(self, path: str) -> PosixFile:
        mode = _mode(absolute(path))
        if mode is not None and not stat.S_ISREG(mode):
            # Opening a FIFO waits for its writer, and reading a device may have no end.
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            raise OSError(errno.EINVAL, f"is {_KINDS.get(stat.S_IFMT(mode), 'something else')}, not a file", path)
        return PosixFile(self, path, os.O_RDONLY)

    def exists(self, path: str) -> bool:
        return _mode(absolute(path)) is not None

    def is_dir(self, path: str) -> bool:
        mode = _mode(absolute(path))
        return mode is not None and stat.S_ISDIR(mode)

    def rename(self, source: str, target: str) -> None:
        os.rename(absolute(source), absolute(target))

    def unlink(self, path: str) -> None:
        descriptor = self._open_large(absolute(path))
        try:
            os.unlink(path)
        finally:
            if descriptor is not None:
                self._closers.submit(self._close_unlinked, descriptor)

    def _open_large(self, path: str) -> int | None:
        """A descriptor of a large file: the kernel frees a file's blocks when its last descriptor is closed."""
        if os.lstat(path).st_size < LARGE_BYTES or not self._unlinked_open.acquire(blocking=False):
            return None
        try:
            return os.open(path, os.O_PATH | os.O_NOFOLLOW)
        except OSError:  # no descriptor is free: unlink frees the blocks at once
            self._unlinked_open.release()
            return None

    def _close_unlinked(self, descriptor: int) -> None:
        os.close(descriptor)
        self._unlinked_open.release()

    def rmdir(self, path: str) -> None:
        os.rmdir(absolute(path))

    def mkdir(self, path: str, *, parents: bool = False) -> None:
        absolute(path)
        if not parents:
            os.mkdir(path, DIRECTORY_MODE)
            return
        for directory in accumulate(path.strip("/").split("/"), lambda above, name: f"{above}/{name}", initial=""):
            if not self.is_dir(directory or "/"):
                os.mkdir(directory, DIRECTORY_MODE)

    def list(self, directory: str) -> list[str]:
        return sorted(self.spares.attempt(lambda: os.listdir(absolute(directory))))

    async def sync_dir(self, directory: str) -> None:
        pool = self._threads_on(os.stat(absolute(directory)).st_dev).directory_syncers
        await off_loop(pool, partial(self._with_directory, directory, os.fsync))

    def _with_directory(self, path: str, work: Callable[[int], None]) -> None:
        descriptor = self.spares.open(path, os.O_RDONLY)
        try:
            work(descriptor)
        finally:
            os.close(descriptor)

    async def sync_all(self, path: str) -> None:
        if path not in self._synced:
            descriptor = self.spares.open(absolute(path), os.O_RDONLY | os.O_DIRECTORY)
            self._synced[path] = (
                descriptor,
                SyncsInTurn(self.threads_of(descriptor).syncs, descriptor, path, file_system=True),
            )
        await self._synced[path][1].sync()

    def free_bytes(self, path: str) -> int:
        status = os.statvfs(absolute(path))
        return status.f_bavail * status.f_frsize

    def total_bytes(self, path: str) -> int:
        status = os.statvfs(absolute(path))
        return status.f_blocks * status.f_frsize

    def lock(self, path: str) -> PosixLock:
        return PosixLock(self.spares, absolute(path))


def absolute(path: str) -> str:
    """ValueError for a path that is not absolute: node code builds its paths, they never come from a request."""
    if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise ValueError(f"not an absolute path: {path!r}")
    return path


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def _pread(descriptor: int, size: int, offset: int) -> bytes:
    """Reads until `size` bytes or the end: a single read returns at most 2 GiB and may be interrupted by a signal."""
    data = os.pread(descriptor, size, offset)
    if len(data) == size or not data:
        return data
    parts, got = [data], len(data)
    while data := os.pread(descriptor, size - got, offset + got):
        parts.append(data)
        got += len(data)
    return b"".join(parts)


def _pread_cached(descriptor: int, size: int, offset: int) -> bytes:
    """The part that the page cache holds, read directly into the returned bytes. BlockingIOError: it holds nothing.

    os.preadv reads into a bytearray, and converting that to bytes would copy everything that a node serves once more.
    """
    data: bytes = _new_bytes(None, size)
    vector = _IoVector(_address_of(data), size)
    got: int = _preadv2(descriptor, vector, 1, offset, os.RWF_NOWAIT)
    if got < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return data if got == size else data[:got]


def _write_all(descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
    """Writes at most IOV_MAX buffers. Returns the offset after them; OSError after a prefix was written."""
    left = sum(map(len, buffers))
    while left:
        written = os.pwritev(descriptor, buffers, offset)
        offset += written
        left -= written
        if left:  # short: the disk is almost full, or there are more than 2 GiB
            if not written:
                raise OSError(errno.EIO, "a write of no bytes")
            buffers = _without(buffers, written)
    return offset


def _without(buffers: Sequence[Buffer], size: int) -> list[Buffer]:
    """What follows the first `size` bytes."""
    rest: list[Buffer] = []
    for buffer in buffers:
        if size < len(buffer):
            rest.append(memoryview(buffer)[size:])
        size = max(0, size - len(buffer))
    return rest


def _reserve(descriptor: int, size: int) -> None:
    """fallocate(FALLOC_FL_KEEP_SIZE), or nothing if the file system cannot: it only avoids fragmentation."""
    if _fallocate(descriptor, _FALLOC_FL_KEEP_SIZE, 0, size):
        number = ctypes.get_errno()
        if number not in _NOT_SUPPORTED:
            raise OSError(number, os.strerror(number))
