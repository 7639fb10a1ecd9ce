"""Maintenance of a running log directory: retention and compaction, at their intervals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from streamlog.errors import DamagedFileError, StorageError
from streamlog.model import Offset
from streamlog.ports import Clock
from streamlog.storage.cleaning.cleaner import Cleaner
from streamlog.storage.cleaning.retention import advance_start, examine_index, remove_below_start
from streamlog.storage.directories.directory import LogDirectory
from streamlog.storage.log.log import Log


class MaintenanceConfig(Struct, frozen=True, kw_only=True):
    retention_check_interval_ms: int = 300_000  # log.retention.check.interval.ms
    cleaner_backoff_ms: int = 15_000  # log.cleaner.backoff.ms: the pause after a round without work


class Maintenance:
    """`run` is a task of the node; it ends with StorageError when the disk fails.

    `bound_of(log)`: the high watermark; nothing at or above it is deleted or compacted. `on_deleted(log)`: called after
    retention has deleted segments. `may_delete_by_time`: whether the wall clock can be trusted.
    """

    def __init__(
        self,
        directory: LogDirectory,
        cleaner: Cleaner,
        clock: Clock,
        bound_of: Callable[[Log], Offset],
        config: MaintenanceConfig,
        *,
        on_deleted: Callable[[Log], None] = lambda _: None,
        may_delete_by_time: Callable[[], bool] = lambda: True,
    ) -> None:
        self._directory = directory
        self._cleaner = cleaner
        self._clock = clock
        self._bound_of = bound_of
        self._config = config
        self._on_deleted = on_deleted
        self._may_delete_by_time = may_delete_by_time

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_retention())
            tasks.create_task(self._keep_cleaning())

    async def _keep_retention(self) -> None:
        while True:
            await asyncio.sleep(self._config.retention_check_interval_ms / 1000)
            await self.retain()

    async def retain(self) -> int:
        """One round over all logs; number of segments deleted."""
        due = []
        for log in list(self._directory.logs.values()):
            if log.damage is None and await self._advance(log):
                due.append(log)
            await asyncio.sleep(0)  # thousands of logs: let other tasks run
        if not due:
            return 0
        logs = self._directory.logs
        due = [log for log in due if logs.get(log.partition) is log]  # not removed meanwhile
        await self._directory.save_log_starts({log.partition: log.log_start_offset for log in due})
        deleted = 0
        for log in due:
            if log.damage is None and logs.get(log.partition) is log:
                count = remove_below_start(log, self._directory.saved_log_start(log))
                if count:
                    deleted += count
                    self._on_deleted(log)
            await asyncio.sleep(0)
        return deleted

    async def _advance(self, log: Log) -> bool:
        """Whether `log` has segments to be deleted."""
        now_ms = self._clock.wall_ms() if self._may_delete_by_time() else None
        try:
            with log.in_use():
                try:
                    return await advance_start(log, now_ms, self._bound_of(log), self._clock.monotonic())
                except DamagedFileError as e:
                    await examine_index(log, e)  # it has its turn in the next round
        except StorageError:
            self._directory.check()  # raises if the disk failed; otherwise the log is being removed, or it moves
        return False

    async def _keep_cleaning(self) -> None:
        while True:
            if await self._cleaner.clean_filthiest(self._bound_of) is None:
                await asyncio.sleep(self._config.cleaner_backoff_ms / 1000)
