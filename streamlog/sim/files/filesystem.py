"""SimFileSystem: the disk port of one process. The model behind it: disk.py.

Every call asks the process first: code of a dead one gets Killed. A call that changes something burns the process's
fuse (process.py), and so does the end of a sync, so a test can cut the power before each of them.
"""

from __future__ import annotations

import asyncio
import errno
import mmap
from collections.abc import Callable, Sequence
from typing import TypeVar

from streamlog.errors import InvariantError
from streamlog.ports.disk import Buffer
from streamlog.sim.clock import SimClock
from streamlog.sim.files.disk import SimDisk, os_error, split
from streamlog.sim.files.inode import DirectoryNode, FileNode, Window
from streamlog.sim.process import Process

T = TypeVar("T")


class SimMapping:
    """A read-only view of a private copy that follows the file's writes."""

    def __init__(self, process: Process, node: FileNode, size: int) -> None:
        self._process = process
        self._node = node
        self._memory = mmap.mmap(-1, size)  # anonymous: untouched pages take no memory
        self._writable = memoryview(self._memory)
        self._window = Window(self._writable, process)
        self._window.fill(node.cache)
        node.windows.append(self._window)
        self.view = self._writable.toreadonly()

    def close(self) -> None:
        """BufferError while a slice of the view is held, as on a real mapping. Idempotent."""
        if self._memory.closed:
            return
        if self._window in self._node.windows:
            self._node.windows.remove(self._window)
        self.view.release()
        self._writable.release()
        self._memory.close()


class SimFile:
    """An open file of one process."""

    def __init__(
        self, process: Process, disk: SimDisk, clock: SimClock, node: FileNode, path: str, *, writable: bool
    ) -> None:
        self._process = process
        self._disk = disk
        self._clock = clock
        self._node = node
        self._path = path
        self._writable = writable
        self._open = True

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        self._enter()
        return self._node.cache.size

    def modified_ms(self) -> int:
        self._enter()
        return self._node.modified_ms

    def data_from(self, offset: int) -> int:
        self._enter()
        return offset  # the simulated disk has no holes

    def pread(self, size: int, offset: int) -> bytes:
        self._enter()
        self._disk.check_readable()
        return self._node.cache.read(size, offset)

    def try_pread(self, size: int, offset: int) -> bytes | None:
        self._enter()
        if self._disk.rng.random() < self._disk.faults.cold:
            return None
        return self.pread(size, offset)

    async def read(self, size: int, offset: int) -> bytes:
        self._enter()
        await asyncio.sleep(self._disk.sync_s())
        return self.pread(size, offset)

    async def read_with(self, size: int, offset: int, work: Callable[[bytes], T]) -> T:
        return work(await self.read(size, offset))

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        self._change()
        self._disk.write(self._node, b"".join(buffers), offset)

    def truncate(self, size: int) -> None:
        self._change()
        if any(size < window.size for window in self._node.live_windows()):
            raise InvariantError(f"{self._path}: truncated to {size} below an open mapping")
        self._disk.resize(self._node, size)

    def fallocate(self, size: int, *, keep_size: bool = False) -> None:
        self._change()
        self._disk.allocate(self._node, size, keep_size=keep_size)

    def map(self, size: int) -> SimMapping:
        self._enter()
        if not 0 < size <= self._node.cache.size:
            raise ValueError(f"{self._path}: {size} bytes of {self._node.cache.size} cannot be mapped")
        return SimMapping(self._process, self._node, size)

    async def sync(self) -> None:
        self._enter()
        self._process.change()
        upto = self._node.changes
        await asyncio.sleep(self._disk.sync_s())
        self._process.change()
        self._disk.sync_file(self._node, upto)

    def close(self) -> None:
        self._open = False

    def _enter(self) -> None:
        self._process.enter()
        if not self._open:
            raise os_error(errno.EBADF, self._path)

    def _change(self) -> None:
        self._enter()
        if not self._writable:
            raise os_error(errno.EBADF, self._path)
        self._process.change()
        self._node.modified_ms = self._clock.wall_ms()


class SimLock:
    def __init__(self, disk: SimDisk, path: str, process: Process) -> None:
        self._disk = disk
        self._path = path
        self._process = process
        disk.locks[path] = self

    def held(self) -> bool:
        return self._process.alive

    def release(self) -> None:
        if self._disk.locks.get(self._path) is self:
            del self._disk.locks[self._path]


class SimFileSystem:
    """The access of one process to one disk."""

    def __init__(self, disk: SimDisk, process: Process, clock: SimClock) -> None:
        self._disk = disk
        self._process = process
        self._clock = clock

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self._process.enter()
        if create and not self.exists(path):
            self._process.change()
            self._disk.make_file(path)
        return SimFile(self._process, self._disk, self._clock, self._file(path), path, writable=True)

    def free_descriptors(self) -> int:
        return self._disk.faults.free_descriptors

    def open_readonly(self, path: str) -> SimFile:
        self._process.enter()
        return SimFile(self._process, self._disk, self._clock, self._file(path), path, writable=False)

    def exists(self, path: str) -> bool:
        self._process.enter()
        try:
            self._disk.find(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_dir(self, path: str) -> bool:
        return self.exists(path) and isinstance(self._disk.find(path), DirectoryNode)

    def rename(self, source: str, target: str) -> None:
        self._process.change()
        self._disk.move(source, target)

    def unlink(self, path: str) -> None:
        self._process.change()
        self._file(path)
        self._disk.remove(path)

    def rmdir(self, path: str) -> None:
        self._process.change()
        if self._disk.directory(path).entries:
            raise os_error(errno.ENOTEMPTY, path)
        self._disk.remove(path)

    def mkdir(self, path: str, *, parents: bool = False) -> None:
        self._process.enter()
        if parents:
            names = split(path)
            for depth in range(1, len(names)):
                self._make_directory("/" + "/".join(names[:depth]), may_exist=True)
        self._make_directory(path, may_exist=parents)

    def _make_directory(self, path: str, *, may_exist: bool) -> None:
        if self.exists(path):
            if may_exist and self.is_dir(path):
                return
            raise os_error(errno.EEXIST, path)
        self._process.change()
        self._disk.make_directory(path)

    def list(self, directory: str) -> list[str]:
        self._process.enter()
        return sorted(self._disk.directory(directory).entries)

    async def sync_dir(self, directory: str) -> None:
        self._process.change()
        node = self._disk.directory(directory)
        last = node.pending[-1] if node.pending else None
        await asyncio.sleep(self._disk.sync_s())
        self._process.change()
        self._disk.sync_directory(node, last)

    async def sync_all(self, path: str) -> None:
        self._process.change()
        self._disk.find(path)
        files, names = self._disk.unsynced()
        await asyncio.sleep(self._disk.sync_s())
        self._process.change()
        self._disk.sync_everything(files, names)

    def free_bytes(self, path: str) -> int:
        self._process.enter()
        self._disk.find(path)
        return self._disk.free_bytes()

    def total_bytes(self, path: str) -> int:
        self._process.enter()
        self._disk.find(path)
        return self._disk.faults.capacity_bytes

    def lock(self, path: str) -> SimLock:
        held = self._disk.locks.get(path)
        self.open(path, create=True).close()
        if held is not None and held.held():
            raise os_error(errno.EWOULDBLOCK, path)
        return SimLock(self._disk, path, self._process)

    def _file(self, path: str) -> FileNode:
        node = self._disk.find(path)
        if isinstance(node, DirectoryNode):
            raise os_error(errno.EISDIR, path)
        return node
