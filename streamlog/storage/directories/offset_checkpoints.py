"""The checkpoints of a log directory: an offset for each log, in three files.

    recovery-point-offset-checkpoint    below it a log is durable, with all that is derived; lowered before a truncation
    log-start-offset-checkpoint         where a log starts for readers; at least where its first segment starts, so that
                                        a missing first segment is not taken for one that retention has deleted
    cleaner-offset-checkpoint           up to where the log is compacted; a value that is too low costs only work

Each is replaced atomically and durably. A file that is missing or damaged counts as empty, and one whose replacement
was cancelled may have the new content or the old: each is written at the next opportunity, whatever memory says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from streamlog.errors import DamagedFileError
from streamlog.model import Offset, TopicPartition
from streamlog.ports import FileSystem
from streamlog.storage.files import names
from streamlog.storage.files.checkpoints import format_offsets, read_offsets
from streamlog.storage.files.replace_file import replace_file

Offsets = dict[TopicPartition, Offset]


class OffsetCheckpoints:
    """Owned by its `LogDirectory`. Methods that write raise OSError; callers hold `writing`."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._path = path
        self.writing = asyncio.Lock()
        self.recovery_points: Offsets = {}  # as on disk
        self.log_starts: Offsets = {}  # as on disk
        self.cleaned: Offsets = {}  # the file may lack the latest
        self._cleaned_dirty = False
        self._uncertain: set[str] = set()  # files whose content may be another one than memory's

    def read(self, on_damage: Callable[[DamagedFileError], None]) -> None:
        self.recovery_points = self._read(names.RECOVERY_POINTS, on_damage)
        self.log_starts = self._read(names.LOG_STARTS, on_damage)
        self.cleaned = self._read(names.CLEANER_OFFSETS, on_damage)

    def _read(self, name: str, on_damage: Callable[[DamagedFileError], None]) -> Offsets:
        path = names.join(self._path, name)
        try:
            if self._fs.exists(path):
                return read_offsets(self._fs, path)
        except DamagedFileError as e:
            on_damage(e)
        self._uncertain.add(name)
        return {}

    @property
    def has_points(self) -> bool:
        """Whether the recovery points were there, and intact, or have been written since."""
        return names.RECOVERY_POINTS not in self._uncertain

    @property
    def has_starts(self) -> bool:
        """Whether the log starts were, likewise."""
        return names.LOG_STARTS not in self._uncertain

    def may_have(self, partition: TopicPartition) -> bool:
        """Whether recovery points or log starts on disk may have it."""
        known = partition in self.recovery_points or partition in self.log_starts
        return known or not (self.has_points and self.has_starts)

    async def write_recovery_points(self, points: Offsets) -> None:
        """Unless the file has them."""
        if points != self.recovery_points or not self.has_points:
            await self._replace(names.RECOVERY_POINTS, points)
            self.recovery_points = points

    async def write_log_starts(self, starts: Offsets) -> Offsets:
        """Unless the file has them. Returns those before."""
        before = self.log_starts
        if starts != before or not self.has_starts:
            await self._replace(names.LOG_STARTS, starts)
            self.log_starts = starts
        return before

    def set_cleaned(self, partition: TopicPartition, offset: Offset) -> None:
        """To be written by the next `write_cleaned`."""
        self.cleaned[partition] = offset
        self._cleaned_dirty = True

    async def write_cleaned(self, known: Offsets) -> None:
        """Those of partitions in `known`, where one has changed."""
        if self._cleaned_dirty:
            self._cleaned_dirty = False
            try:
                await self._replace(names.CLEANER_OFFSETS, {p: o for p, o in self.cleaned.items() if p in known})
            except BaseException:
                self._cleaned_dirty = True
                raise

    async def forget(self, partition: TopicPartition) -> None:
        """A log that is not here any more."""
        if partition in self.log_starts:
            await self.write_log_starts({p: offset for p, offset in self.log_starts.items() if p != partition})
        if partition in self.recovery_points:
            points = {p: offset for p, offset in self.recovery_points.items() if p != partition}
            await self.write_recovery_points(points)

    async def _replace(self, name: str, offsets: Offsets) -> None:
        try:
            await replace_file(self._fs, names.join(self._path, name), format_offsets(offsets))
        except BaseException:
            self._uncertain.add(name)
            raise
        self._uncertain.discard(name)
