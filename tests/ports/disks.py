"""The same disk in two worlds, for the conformance suite: simulated, and the file system that the tests run on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

from streamlog.ports import FileSystem
from streamlog.ports.posix_disk import PosixFileSystem
from streamlog.sim import DiskFaults, Machine

T = TypeVar("T")


class Disk(Protocol):
    root: str  # an empty directory, without a slash at its end

    @property
    def fs(self) -> FileSystem: ...

    def run(self, coro: Coroutine[Any, Any, T]) -> T: ...

    def close(self) -> None: ...


class SimulatedDisk:
    root = "/root"

    def __init__(self, seed: int = 0) -> None:
        self.machine = Machine(seed, faults=DiskFaults(cold=0.3))
        self.fs.mkdir(self.root)
        self.run(self.fs.sync_dir("/"))

    @property
    def fs(self) -> FileSystem:
        return self.machine.fs

    def run(self, coro: Coroutine[Any, Any, T]) -> T:
        return self.machine.run(coro)

    def power_cut(self) -> None:
        self.machine.power_cut()

    def close(self) -> None:
        self.machine.close()


class PosixDisk:
    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self._system = PosixFileSystem(sync_threads=2, read_threads=2)
        self._runner = asyncio.Runner()

    @property
    def fs(self) -> FileSystem:
        return self._system

    def run(self, coro: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(coro)

    def close(self) -> None:
        self._runner.close()
        self._system.close()
