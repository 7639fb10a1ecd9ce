"""A file system in memory whose calls never wait: for tests that drive the core by hand, without a loop."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ParamSpec, TypeVar

from streamlog.ports import Buffer, DirectoryLock, Mapping

T = TypeVar("T")
P = ParamSpec("P")


def at_once(coro: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing but its turn."""
    try:
        while coro.send(None) is None:  # what sleep(0) yields
            pass
    except StopIteration as stop:
        result: T = stop.value
        return result
    coro.close()
    raise AssertionError(f"{coro!r} waits")


class InstantFile:
    def __init__(self, system: InstantFiles, path: str, data: bytearray) -> None:
        self._system = system
        self.path = path
        self._data = data

    def size(self) -> int:
        return len(self._data)

    def modified_ms(self) -> int:
        raise NotImplementedError

    def data_from(self, offset: int) -> int:
        return offset

    def pread(self, size: int, offset: int) -> bytes:
        return bytes(self._data[offset : offset + size])

    def try_pread(self, size: int, offset: int) -> bytes | None:
        return None if self._system.cold else self.pread(size, offset)

    async def read(self, size: int, offset: int) -> bytes:
        return self.pread(size, offset)

    async def read_with(self, size: int, offset: int, work: Callable[[bytes], T]) -> T:
        return work(self.pread(size, offset))

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        data = b"".join(buffers)
        self._data.extend(bytes(max(0, offset - len(self._data))))
        self._data[offset : offset + len(data)] = data

    def truncate(self, size: int) -> None:
        del self._data[size:]
        self._data.extend(bytes(size - len(self._data)))

    def fallocate(self, size: int, *, keep_size: bool = False) -> None:
        if not keep_size:
            self._data.extend(bytes(max(0, size - len(self._data))))

    def map(self, size: int) -> Mapping:
        raise NotImplementedError

    async def sync(self) -> None:
        self._system.syncs += 1

    def close(self) -> None:
        pass


class InstantFiles:
    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.syncs = 0
        self.cold = False  # nothing is in the page cache

    def open(self, path: str, *, create: bool = False) -> InstantFile:
        if path not in self.files:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self.files[path] = bytearray()
        return InstantFile(self, path, self.files[path])

    def free_descriptors(self) -> int:
        return 1 << 20

    def open_readonly(self, path: str) -> InstantFile:
        return self.open(path)

    def exists(self, path: str) -> bool:
        return path in self.files

    def is_dir(self, path: str) -> bool:
        return path not in self.files

    def rename(self, source: str, target: str) -> None:
        self.files[target] = self.files.pop(source)

    def unlink(self, path: str) -> None:
        del self.files[path]

    def rmdir(self, path: str) -> None:
        pass

    def mkdir(self, path: str, *, parents: bool = False) -> None:
        pass

    def list(self, directory: str) -> list[str]:
        return sorted(path.rpartition("/")[2] for path in self.files if path.startswith(f"{directory}/"))

    async def sync_dir(self, directory: str) -> None:
        pass

    async def sync_all(self, path: str) -> None:
        pass

    def free_bytes(self, path: str) -> int:
        return 1 << 40

    def total_bytes(self, path: str) -> int:
        return 1 << 40

    def lock(self, path: str) -> DirectoryLock:
        raise NotImplementedError


class InstantWorkers:
    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return work(*args, **kwargs)
