"""Syncs of open files and of whole file systems, off the event loop.

    loop --start--> a thread: fdatasync or syncfs --> loop: ended(error)

`ended` is called on the event loop, once for each sync, also if its caller was cancelled: until then the descriptor is
in use. Two kinds:

- `CompiledSyncs`, where the optional package streamlog-kernel is installed (kernel/streamlog_syncs.c): threads in C,
  which begin a sync and report its end without the interpreter's lock. A node takes a tenth less CPU for a record that
  is produced alone (docs/performance.md).
- `ThreadSyncs` everywhere else: threads of Python.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import ModuleType
from typing import Any, Final, Protocol, TypeAlias

try:
    import streamlog_syncs
except ImportError:
    streamlog_syncs = None

Ended: TypeAlias = Callable[[OSError | None], None]
"""Called with why the sync failed, or None. Must not raise."""

_INTERFACE: Final = 1
_libc: Final = ctypes.CDLL(None, use_errno=True)


class Syncs(Protocol):
    """Used from one event loop at a time."""

    def start(self, descriptor: int, ended: Ended, *, file_system: bool = False) -> None:
        """Begin fdatasync of the file, or syncfs of the file system that it is in. The descriptor must stay open until
        `ended` is called. RuntimeError after `close`.
        """
        ...

    def close(self) -> None:
        """Wait for all that have begun, and call their `ended`. Idempotent."""
        ...


def new_syncs(threads: int, compiled: ModuleType | None = streamlog_syncs) -> Syncs:
    """With so many at a time. `compiled`: the module of streamlog-kernel, None without it."""
    if compiled is not None and compiled.INTERFACE == _INTERFACE:
        try:
            return CompiledSyncs(compiled.Syncs(threads))
        except OSError:  # no thread or no descriptor is left for it: as without the package
            pass
    return ThreadSyncs(threads)


class CompiledSyncs:
    def __init__(self, syncs: Any) -> None:
        """`syncs`: a `streamlog_syncs.Syncs`, owned by this object."""
        self._syncs = syncs
        self._started: dict[int, Ended] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, descriptor: int, ended: Ended, *, file_system: bool = False) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._leave_loop()
            loop.add_reader(self._syncs.fileno(), self._collect)
            self._loop = loop
        self._started[self._syncs.start(descriptor, file_system)] = ended

    def _leave_loop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None and not loop.is_closed():
            loop.remove_reader(self._syncs.fileno())

    def _collect(self) -> None:
        for number, code in self._syncs.collect():
            self._started.pop(number)(OSError(code, os.strerror(code)) if code else None)

    def close(self) -> None:
        self._leave_loop()
        self._syncs.close()
        self._collect()


class ThreadSyncs:
    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, "disk-sync")
        self._over: deque[tuple[Ended, OSError | None]] = deque()

    def start(self, descriptor: int, ended: Ended, *, file_system: bool = False) -> None:
        work = syncfs if file_system else os.fdatasync
        self._pool.submit(self._run, work, descriptor, ended, asyncio.get_running_loop())

    def _run(self, work: Callable[[int], None], descriptor: int, ended: Ended, loop: asyncio.AbstractEventLoop) -> None:
        error: OSError | None = None
        try:
            work(descriptor)
        except OSError as failed:
            error = failed
        self._over.append((ended, error))
        try:
            loop.call_soon_threadsafe(self._collect)
        except RuntimeError:
            pass  # the loop has been closed: the next end on another one collects it, or `close`

    def _collect(self) -> None:
        while self._over:
            ended, error = self._over.popleft()
            ended(error)

    def close(self) -> None:
        self._pool.shutdown()
        self._collect()


class SyncsInTurn:
    """Of one file, or of one file system. The kernel reports a failed write to one sync only, so that a second one
    beside it would succeed, and what was lost be acknowledged: there is one at a time, and none after one that failed.
    """

    __slots__ = ("_descriptor", "_failure", "_file_system", "_is_running", "_path", "_syncs", "_waiting")

    def __init__(self, syncs: Syncs, descriptor: int, path: str, *, file_system: bool) -> None:
        self._syncs = syncs
        self._descriptor = descriptor
        self._path = path
        self._file_system = file_system
        self._is_running = False
        self._waiting: list[asyncio.Future[None]] = []  # for their turn
        self._failure: OSError | None = None

    async def sync(self, released: Callable[[], None] = lambda: None) -> None:
        """OSError. `released`: called once the descriptor is not used for this any more, cancelled or not."""
        loop = asyncio.get_running_loop()
        try:
            while self._is_running:
                turn: asyncio.Future[None] = loop.create_future()
                self._waiting.append(turn)
                await turn
            if self._failure is not None:
                reason = f"an earlier sync failed: {self._failure.strerror}"
                raise OSError(self._failure.errno, reason, self._path)
            synced: asyncio.Future[None] = loop.create_future()
            ended = partial(self._on_ended, synced, released)
            self._syncs.start(self._descriptor, ended, file_system=self._file_system)
        except BaseException:
            released()
            raise
        self._is_running = True  # also if this caller is cancelled
        await synced

    def _on_ended(self, synced: asyncio.Future[None], released: Callable[[], None], error: OSError | None) -> None:
        self._is_running = False
        if error is not None:
            self._failure = error
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            _settle(turn, None)
        _settle(synced, error)
        released()


def _settle(future: asyncio.Future[None], error: OSError | None) -> None:
    """Unless its waiter was cancelled, or its loop closed."""
    if future.done() or future.get_loop().is_closed():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def syncfs(descriptor: int) -> None:
    """OSError."""
    if _libc.syncfs(descriptor):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
