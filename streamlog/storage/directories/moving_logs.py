"""The logs of one log directory that are between it and another one (`log_move` has the order of the steps).

    the directory that a log leaves    freeze -> note_moving -> drop_frozen; or thaw, where the move fails
    the one where it arrives           expect -> adopt; or expect_no_more
    at a start                         may_have_moved -> has_moved, has_not_moved, or leave_closed (`LogDirectories`)

A frozen log is not in `logs`, but has its entries in the checkpoints, because the next start may need it again. So
has one that is expected, and one that is left closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from streamlog.model import Offset, TopicPartition
from streamlog.ports import FileSystem, Probe
from streamlog.storage.files import names
from streamlog.storage.files.replace_file import read_file, replace_file
from streamlog.storage.log.log import Log
from streamlog.storage.log_config import LogConfig
from streamlog.storage.recovery.open_log import OpenAt, open_log

if TYPE_CHECKING:
    from streamlog.storage.directories.directory import LogDirectory

_NOTE_BYTES_MAX: Final = 256


class KeptEntry(NamedTuple):
    """What the checkpoints say of a log that is not open."""

    recovery_point: Offset
    log_start: Offset


class MovingLogs:
    """Owned by its `LogDirectory`, whose disk is offline where a method raises StorageError."""

    def __init__(self, directory: LogDirectory, fs: FileSystem, probe: Probe) -> None:
        self._directory = directory
        self._fs = fs
        self._probe = probe
        self.frozen: dict[TopicPartition, Log] = {}
        self.kept: dict[TopicPartition, KeptEntry] = {}  # logs that are expected, or left closed

    # -- the directory that a log leaves

    async def freeze(self, log: Log) -> None:
        """All of it is synced. When this returns its files are as after a clean stop, and nothing uses them."""
        directory = self._directory
        directory.check()
        self.frozen[log.partition] = directory.logs.pop(log.partition)
        await log.retire("the log moves to another log directory now: retry later")
        try:
            log.close_clean()
            await self._fs.sync_all(directory.path)
            await directory.checkpoint()
        except OSError as e:
            raise directory.fail(e) from e
        log.close()

    async def note_moving(self, partition: TopicPartition, directory_id: str) -> None:
        """Before the copy in that directory takes the partition's name. Durable."""
        path = names.join(self._directory.partition_path(partition), names.MOVING_TO)
        try:
            await replace_file(self._fs, path, f"{directory_id}\n".encode())
        except OSError as e:
            raise self._directory.fail(e) from e

    async def thaw(self, partition: TopicPartition, config: LogConfig) -> Log:
        """The move has failed: open the frozen log again."""
        directory = self._directory
        directory.check()
        frozen, path = self.frozen[partition], directory.partition_path(partition)
        try:
            if self._fs.exists(names.join(path, names.MOVING_TO)):
                self._fs.unlink(names.join(path, names.MOVING_TO))
                await self._fs.sync_dir(path)
            log = await self.open_copy(frozen, path, config)
        except OSError as e:
            raise directory.fail(e) from e
        directory.logs[partition] = log
        del self.frozen[partition]
        return log

    async def drop_frozen(self, partition: TopicPartition) -> None:
        """The move is complete: as `LogDirectory.remove_log`."""
        directory = self._directory
        directory.check()
        log, renamed = self.frozen[partition], directory.removed_path(partition, names.DELETE_SUFFIX)
        try:
            self._fs.rename(directory.partition_path(partition), renamed)
            del self.frozen[partition]
            directory.checkpoints.cleaned.pop(partition, None)
            await self._fs.sync_dir(directory.path)
            await directory.checkpoint()
        except OSError as e:
            raise directory.fail(e) from e
        directory.remove_later(renamed, log.config.file_delete_delay_ms)

    # -- the one where it arrives

    async def expect(self, frozen: Log, compacted_until: Offset) -> None:
        """Before the copy of this frozen log takes the partition's name here: the checkpoints get its entries,
        durably. `compacted_until`: 0 where it has never been compacted.
        """
        partition = frozen.partition
        self.kept[partition] = KeptEntry(frozen.log_end_offset, frozen.log_start_offset)
        if compacted_until:
            self._directory.checkpoints.set_cleaned(partition, compacted_until)
        try:
            await self._directory.checkpoint()
        except OSError as e:
            raise self._directory.fail(e) from e

    def expect_no_more(self, partition: TopicPartition) -> None:
        """The copy does not come; the next checkpoint is without its entries."""
        self.kept.pop(partition, None)
        self._directory.checkpoints.cleaned.pop(partition, None)

    async def adopt(self, frozen: Log, config: LogConfig) -> Log:
        """The copy of the frozen log has the partition's name: open it."""
        partition = frozen.partition
        try:
            log = await self.open_copy(frozen, self._directory.partition_path(partition), config)
        except OSError as e:
            raise self._directory.fail(e) from e
        self._directory.logs[partition] = log
        self.kept.pop(partition, None)
        return log

    async def open_copy(self, frozen: Log, path: str, config: LogConfig) -> Log:
        """The log in `path`, with the files of the frozen one, as after a clean stop. OSError."""
        at = OpenAt(
            recovery_point=frozen.log_end_offset,
            log_start=frozen.log_start_offset,
            clean=True,
            cleaned=frozen.gaps_noted,
        )
        return await open_log(self._fs, self._directory, frozen.partition, path, config, at, self._probe)

    # -- at a start, before the logs are opened; these raise OSError

    def may_have_moved(self) -> Mapping[TopicPartition, str]:
        """The partitions whose move to another directory was not completed, and the `directory.id` of that one; ""
        where the file does not say.
        """
        found: dict[TopicPartition, str] = {}
        for name in self._fs.list(self._directory.path):
            partition = names.parse_partition_directory(name)
            path = names.join(names.join(self._directory.path, name), names.MOVING_TO)
            if partition is not None and self._fs.exists(path):
                try:
                    found[partition] = (read_file(self._fs, path, _NOTE_BYTES_MAX) or b"").decode("ascii").strip()
                except ValueError:
                    found[partition] = ""
        return found

    async def has_moved(self, partition: TopicPartition) -> None:
        """It is in another directory, and what is here is removed."""
        self._probe("log_move_completed", path=self._directory.partition_path(partition))
        await self._set_aside(partition, names.DELETE_SUFFIX)

    async def has_not_moved(self, partition: TopicPartition, *, incomplete: bool) -> None:
        """It is only here. `incomplete`: the directory to which it may have moved is gone, and may have had more."""
        path = self._directory.partition_path(partition)
        if incomplete:
            self._fs.open(names.join(path, names.INCOMPLETE), create=True).close()
            await self._fs.sync_dir(path)
        self._fs.unlink(names.join(path, names.MOVING_TO))
        await self._fs.sync_dir(path)

    def leave_closed(self, partition: TopicPartition) -> None:
        """It may be in a directory that is offline, so it is not opened here."""
        self._probe("log_move_undecided", path=self._directory.partition_path(partition))
        checkpoints = self._directory.checkpoints
        point, start = checkpoints.recovery_points.get(partition), checkpoints.log_starts.get(partition)
        self.kept[partition] = KeptEntry(point or Offset(0), start or Offset(0))

    async def replace_closed(self, partition: TopicPartition) -> None:
        """A log is made here in place of one that was left closed, which is kept aside. OSError."""
        if partition in self.kept:
            await self._set_aside(partition, names.STRAY_SUFFIX)

    async def _set_aside(self, partition: TopicPartition, suffix: str) -> None:
        """Rename a directory that is not open, durably; then its entries leave the checkpoints."""
        directory = self._directory
        self._fs.rename(directory.partition_path(partition), directory.removed_path(partition, suffix))
        await self._fs.sync_dir(directory.path)
        self.kept.pop(partition, None)
        async with directory.checkpoints.writing:
            await directory.checkpoints.forget(partition)
