"""Group commit: one sync at a time for a log directory, covering all that was written before it began.

    append -> mark(log) -> [queue of dirty logs] -> run(): begin all, sync, end all -> acknowledgements

Appends that arrive while a sync runs share the next one, so the number of syncs is bounded by the device and not by
the load. One dirty file is synced by itself; many by one `sync_all` of the file system, which costs about as much as
two or three single syncs however many files there are.

A failed sync is final. The kernel may have dropped the dirty pages and report success the next time, so it is never
retried: the directory goes offline, every waiter gets StorageError, `run` ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from streamlog.errors import StorageError
from streamlog.metrics.histogram import COUNT_BOUNDS, Histogram
from streamlog.ports import Clock, File, FileSystem
from streamlog.storage.log.durability import Durability, SyncTicket

SINGLE_SYNCS_MAX: Final = 2  # more dirty files than this: one sync of the whole file system


class Committed(Protocol):
    """A log, as group commit sees it."""

    @property
    def directory(self) -> str: ...

    @property
    def durability(self) -> Durability: ...


class GroupCommit:
    """One a log directory. `run` is a task of the directory's owner."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        *,
        on_failure: Callable[[OSError], StorageError],
        clock: Clock,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._on_failure = on_failure  # takes the directory offline, and every log of it
        self._dirty: dict[Committed, None] = {}
        self._wake = asyncio.Event()
        self._clock = clock
        self.syncs = 0
        self.covered = 0  # logs, over all syncs
        self.latency_s = Histogram()
        self.logs_at_once = Histogram(COUNT_BOUNDS)

    def mark(self, log: Committed) -> None:
        """`log` needs a sync. Cheap: called for each append."""
        self._dirty[log] = None
        self._wake.set()

    async def run(self) -> None:
        """Sync whenever something is dirty. Ends with StorageError when the disk fails."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.sync_now()

    async def sync_now(self) -> None:
        """One round: all that is dirty at this moment. Must not run beside `run`."""
        logs, self._dirty = list(self._dirty), {}
        if not logs:
            return
        tickets = [(log, log.durability.begin()) for log in logs]
        began_s = self._clock.monotonic()
        try:
            await self._sync(tickets)
        except OSError as e:
            raise self._on_failure(e) from e
        finally:
            for log, _ in tickets:
                log.durability.settle()
        self.syncs += 1
        self.covered += len(logs)
        self.latency_s.observe(self._clock.monotonic() - began_s)
        self.logs_at_once.observe(len(logs))
        for log, ticket in tickets:
            log.durability.end(ticket)

    async def _sync(self, tickets: list[tuple[Committed, SyncTicket]]) -> None:
        files: list[File] = []
        directories: list[str] = []
        for log, ticket in tickets:
            files += ticket.files
            if ticket.sync_names:
                directories.append(log.directory)
        if len(files) + len(directories) > SINGLE_SYNCS_MAX:
            await self._fs.sync_all(self._directory)
        else:
            for file in files:
                await file.sync()
            for directory in directories:
                await self._fs.sync_dir(directory)
