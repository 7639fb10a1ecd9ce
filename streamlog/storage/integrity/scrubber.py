"""The scrubber periodically reads everything in a log directory (`log.scrub.interval.ms`), so that damage is found
while other replicas can still repair it.

    resting --a round is due--> reading, log by log, segment by segment, at the rate --all read--> resting
               |                         |
               |                         +--> `scrub-checkpoint`: written periodically; the next start continues there
               +-- the first round: not before FIRST_AFTER_MS, so that a starting node has its disk to itself

Damage found is logged, repaired and counted by the log's owner (`damage.note_examination`). Reading is limited to
`log.scrub.max.bytes.per.second`, a chunk at a time, off the loop: other reads run between two chunks.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Final

from streamlog.errors import StorageError
from streamlog.model import Offset, TopicPartition
from streamlog.ports import Clock
from streamlog.ports.disk import FileSystem
from streamlog.storage.directories.directory import LogDirectory
from streamlog.storage.directories.scrub_progress import ScrubProgress
from streamlog.storage.files import names
from streamlog.storage.files.replace_file import read_file, replace_file
from streamlog.storage.log.damage import note_examination
from streamlog.storage.log.examination import examine
from streamlog.storage.log.log import Log

VERSION: Final = 0
FILE_BYTES_MAX: Final = 256 << 20
FIRST_AFTER_MS: Final = 3_600_000
SAVE_EVERY_S: Final = 60.0
LOOK_AGAIN_S: Final = 60.0
"""While no round is due: settings may change."""


class Scrubber:
    """Of one directory. `run` is a task of its maintenance; it ends with StorageError when the disk fails."""

    def __init__(
        self,
        fs: FileSystem,
        directory: LogDirectory,
        clock: Clock,
        *,
        interval_ms: Callable[[], int],
        bytes_per_second: Callable[[], int],
    ) -> None:
        """`interval_ms`: -1 for never."""
        self._fs = fs
        self._directory = directory
        self._clock = clock
        self._interval_ms = interval_ms
        self._bytes_per_second = bytes_per_second
        self._path = names.join(directory.path, names.SCRUB)
        self._done: dict[TopicPartition, Offset] = {}  # of the current round: examined up to there
        self._saved_at = clock.monotonic()
        self._begun_ms = clock.wall_ms()
        self.progress = directory.scrub = self._load()

    def _load(self) -> ScrubProgress:
        """Where it cannot be read, the next round starts from the beginning."""
        try:
            content = read_file(self._fs, self._path, FILE_BYTES_MAX)
            if content is None:
                return ScrubProgress()
            found = json.loads(content)
            if found["version"] != VERSION:
                return ScrubProgress()
            progress = ScrubProgress(**{name: int(found[name]) for name in ScrubProgress.__struct_fields__})
            for text, offset in found["done"].items():
                partition = names.parse_partition_directory(text)
                if partition is not None:
                    self._done[partition] = Offset(int(offset))
        except (OSError, ValueError, OverflowError, KeyError, TypeError, AttributeError):
            self._done.clear()
            return ScrubProgress()
        return progress

    async def run(self) -> None:
        while True:
            if self._is_due():
                await self.round()
            await asyncio.sleep(min(LOOK_AGAIN_S, max(1, self._interval_ms()) / 1000))

    def _is_due(self) -> bool:
        interval, now = self._interval_ms(), self._clock.wall_ms()
        if interval < 0:
            return False
        if self.progress.started_ms < 0:
            return now - self._begun_ms >= min(interval, FIRST_AFTER_MS)
        return self.progress.ended_ms < 0 or not 0 <= now - self.progress.started_ms < interval

    async def round(self) -> None:
        """One round, or the rest of an interrupted one."""
        progress = self.progress
        if progress.ended_ms >= 0 or progress.started_ms < 0:
            self._done.clear()
            progress.started_ms, progress.ended_ms = self._clock.wall_ms(), -1
            progress.read_bytes = progress.damaged_ranges = 0
            progress.total_bytes = sum(log.size_bytes for log in self._directory.logs.values())
        for log in list(self._directory.logs.values()):
            await self._scrub(log)
        progress.ended_ms = self._clock.wall_ms()
        await self._save()

    async def _scrub(self, log: Log) -> None:
        """Up to its current end, or until it is removed."""
        try:
            with log.in_use():
                while log.damage is None:
                    offset = max(self._done.get(log.partition, Offset(0)), log.log_start_offset)
                    if offset >= log.log_end_offset:
                        return
                    index = log.segments.index_of(offset)
                    segment, end = log.segments.at(index), log.segments.end_of(index, log.log_end_offset)
                    found = await examine(log, segment, pace=self._pace)
                    if found is None:
                        continue  # the log has changed: try again
                    await note_examination(log, segment, found)
                    self.progress.damaged_ranges += len(found.damages)
                    self._done[log.partition] = end
                    if self._clock.monotonic() - self._saved_at >= SAVE_EVERY_S:
                        await self._save()
                    if index + 1 >= len(log.segments):
                        return
        except StorageError:
            self._directory.check()  # raises if the disk failed; otherwise the log is being removed

    async def _pace(self, size: int) -> None:
        """Sleep as long as reading this much takes at the rate limit."""
        self.progress.read_bytes += size
        await asyncio.sleep(size / max(1, self._bytes_per_second()))

    async def _save(self) -> None:
        self._saved_at = self._clock.monotonic()
        progress = {name: getattr(self.progress, name) for name in ScrubProgress.__struct_fields__}
        done = {str(partition): offset for partition, offset in self._done.items()}
        content = json.dumps({"version": VERSION, **progress, "done": done}).encode()
        try:
            await replace_file(self._fs, self._path, content)
        except OSError as e:
            raise self._directory.fail(e) from e
