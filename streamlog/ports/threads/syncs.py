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


def syncfs(descriptor: int) -> None:
    """OSError."""
    if _libc.syncfs(descriptor):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
