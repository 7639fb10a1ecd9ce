"""A log directory: the logs on one disk, their checkpoints, and their common state.

    opening --open--> online --close--> closed (clean: the mark is written last)
                        |
                        +--a write or sync fails--> offline until the node restarts: every log raises StorageError

The directory is locked against a second process. Start: lock, `meta.properties`, read and remove the clean-stop mark,
read the checkpoints, open the logs. While online, `run` runs group commit, the reaper and the checkpoints; it ends with
StorageError when the disk fails. The checkpoints:

    recovery-point-offset-checkpoint    below it a log is durable, with all that is derived; lowered before a truncation
    log-start-offset-checkpoint         where a log starts for readers; at least where its first segment starts, so that
                                        a missing first segment is not taken for one that retention has deleted
    cleaner-offset-checkpoint           up to where the log is compacted; a value that is too low costs only work

All are replaced atomically and durably. A recovery point is written after what it promises: epochs, snapshots and
indexes are synced first (`checkpoint`).

A log that moves to another directory (`log_move`) is frozen at the end of the move: out of `logs`, but with its entries
in the checkpoints, because the next start may need it again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from streamlog.errors import DamagedFileError, InvariantError, LogDirectoryLockedError, StorageError
from streamlog.model import BrokerEpoch, BrokerId, Offset, TopicPartition
from streamlog.ports import Clock, DirectoryLock, FileSystem, Probe, Random
from streamlog.storage.directories.scrub_progress import ScrubProgress
from streamlog.storage.files import names
from streamlog.storage.files.checkpoints import format_offsets, read_offsets
from streamlog.storage.files.meta_properties import MetaProperties, claim
from streamlog.storage.files.reaper import Reaper
from streamlog.storage.files.replace_file import read_file, replace_file
from streamlog.storage.log.damaged_ranges import SegmentDamage
from streamlog.storage.log.group_commit import GroupCommit
from streamlog.storage.log.log import Log
from streamlog.storage.log.state import LogState
from streamlog.storage.log_config import LogConfig
from streamlog.storage.recovery.open_log import OpenAt, open_log
from streamlog.storage.segments.segment import Segment

# How often the recovery points are written. Kafka: log.flush.offset.checkpoint.interval.ms = 60 s. Ours is shorter,
# because batches above the recovery point are scanned after an unclean stop, and may be taken for a torn tail.
CHECKPOINT_INTERVAL_MS: Final = 5_000
DAMAGES_LOGGED_MAX: Final = 10
"""Of one segment at a time."""
HOUSEKEEPING_INTERVAL_MS: Final = 30_000
LOG_STARTS_PAUSE_S: Final = 0.2
"""Between two writes of log starts that have moved: all that move meanwhile share the next one."""
_CLEAN_VERSION: Final = 0
_MOVING_TO_BYTES_MAX: Final = 256


class KeptEntry(NamedTuple):
    """What the checkpoints say of a log that is not open."""

    recovery_point: Offset
    log_start: Offset


class LogDirectory:
    """Owned by the node. One event loop; `run` is a task of the owner. Construct with `open`."""

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        clock: Clock,
        random: Random,
        probe: Probe,
        lock: DirectoryLock,
        meta: MetaProperties,
        clean_epoch: BrokerEpoch | None,
        checkpoint_interval_ms: int = CHECKPOINT_INTERVAL_MS,
    ) -> None:
        self._fs = fs
        self.path = path
        self._clock = clock
        self._random = random
        self._probe = probe
        self._lock = lock
        self._checkpoint_interval_ms = checkpoint_interval_ms
        self.meta = meta
        self.clean_epoch = clean_epoch  # broker epoch at the clean stop before this start; None: it was not clean
        self.failure: StorageError | None = None
        self.logs: dict[TopicPartition, Log] = {}
        self.scrub = ScrubProgress()  # the scrubber's, while there is one
        self.on_damage: Callable[[Log], None] | None = None  # something below a log's end cannot be read
        self.found_ranges = 0  # damaged ones, since the start
        self._recovery_points: dict[TopicPartition, Offset] = {}  # as on disk
        self._log_starts: dict[TopicPartition, Offset] = {}  # as on disk
        self._moved_starts: dict[TopicPartition, LogState] = {}  # not yet in the checkpoint; bounded by the logs
        self._starts_moved = asyncio.Event()
        self._cleaned: dict[TopicPartition, Offset] = {}
        self._cleaned_dirty = False
        self._points_found = True  # the recovery points were there, and intact
        self._starts_found = True  # the log starts likewise
        self._uncertain: set[str] = set()  # checkpoints whose last write was cancelled: the file may have it or not
        self.frozen: dict[TopicPartition, Log] = {}  # they move to another directory
        self._kept: dict[TopicPartition, KeptEntry] = {}  # of logs that arrive, or that may have moved away
        self.indexes_rebuilt = 0  # of all logs, since the start
        self._checkpointing = asyncio.Lock()
        self._failed = asyncio.Event()
        self.group_commit = GroupCommit(fs, path, on_failure=self.fail, clock=clock)
        self.mark = self.group_commit.mark  # these two of `LogOwner` are called for each append: no method in between
        self.monotonic = clock.monotonic
        self.reaper = Reaper(clock)

    @classmethod
    async def open(
        cls,
        fs: FileSystem,
        path: str,
        *,
        clock: Clock,
        random: Random,
        probe: Probe,
        node_id: BrokerId,
        cluster_id: str | None = None,
        checkpoint_interval_ms: int = CHECKPOINT_INTERVAL_MS,
    ) -> LogDirectory:
        """Create the directory if missing, lock it, check its node and cluster. `open_logs` opens the logs.

        Raises LogDirectoryLockedError, InconsistentClusterError, DamagedFileError, OSError.
        """
        fs.mkdir(path, parents=True)
        await fs.sync_all(path)  # a file is only as durable as the directories above it
        try:
            lock = fs.lock(names.join(path, names.LOCK))
        except BlockingIOError:
            raise LogDirectoryLockedError(
                f"{path} is in use by another process: stop it, or give this node other log.dirs", path=path
            ) from None
        try:
            meta = await claim(fs, path, node_id, cluster_id, random)
            clean = await _take_clean_mark(fs, path)
        except BaseException:
            lock.release()
            raise
        directory = cls(fs, path, clock, random, probe, lock, meta, clean, checkpoint_interval_ms)
        directory._points_found = fs.exists(names.join(path, names.RECOVERY_POINTS))
        directory._starts_found = fs.exists(names.join(path, names.LOG_STARTS))
        directory._recovery_points = directory._read_checkpoint(names.RECOVERY_POINTS)
        directory._log_starts = directory._read_checkpoint(names.LOG_STARTS)
        directory._cleaned = directory._read_checkpoint(names.CLEANER_OFFSETS)
        return directory

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, Offset]:
        """A damaged checkpoint counts as missing: more is scanned than necessary then."""
        try:
            return read_offsets(self._fs, names.join(self.path, name))
        except DamagedFileError as e:
            self._probe("checkpoint_ignored", path=e.path, position=e.position, reason=e.reason)
            self.clean_epoch = None
            self._points_found = self._points_found and name != names.RECOVERY_POINTS
            self._starts_found = self._starts_found and name != names.LOG_STARTS
            return {}

    async def join(self, cluster_id: str) -> None:
        """Belong to this cluster from now on, durably. InconsistentClusterError, DamagedFileError, StorageError."""
        self.check()
        try:
            self.meta = await claim(self._fs, self.path, self.meta.node_id, cluster_id, self._random)
        except OSError as e:
            raise self.fail(e) from e

    # -- logs

    async def open_logs(self, config_of: Callable[[TopicPartition], LogConfig]) -> None:
        """Open every partition that has a directory here; remove those whose deletion has started."""
        for name in self._fs.list(self.path):
            if names.is_deleted_or_stray(name):
                if name.endswith(names.DELETE_SUFFIX):
                    self.reaper.schedule(self._remover(names.join(self.path, name)), 0)
                else:
                    self._probe("stray_directory", path=names.join(self.path, name))
                continue
            if names.is_future(name):
                self._probe("log_move_interrupted", path=names.join(self.path, name))
                self.reaper.schedule(self._remover(names.join(self.path, name)), 0)
                continue
            partition = names.parse_partition_directory(name)
            if partition is None or partition in self._kept or not self._fs.is_dir(names.join(self.path, name)):
                continue
            self.logs[partition] = await self._open(partition, config_of(partition))
        here = self.logs.keys() | self._kept.keys()
        for partition, point in self._recovery_points.items():
            if point and partition not in here and self.clean_epoch is not None:
                # The node had this log at its clean stop: it must not register as if it still had it.
                self._probe("log_damaged", path=self.partition_path(partition), position=0, reason="the log is missing")
                self.clean_epoch = None
        starts = {p: min(offset, self._end_of(p, offset)) for p, offset in self._log_starts.items() if p in here}
        if starts != self._log_starts or not self._starts_found:
            await self._write_log_starts(starts)
            self._starts_found = True
        points = {p: min(offset, self._end_of(p, offset)) for p, offset in self._recovery_points.items()}
        if points != self._recovery_points or not self._points_found:
            await self._write_recovery_points(points)
            self._points_found = True

    def _end_of(self, partition: TopicPartition, checkpoint: Offset) -> Offset:
        """The log's end, if it is intact: one that is shorter than its checkpoints (its last truncation was partly
        durable) needs lower ones. Otherwise they would apply to later appends: these would not be scanned after the
        next kill, or count as deleted.
        """
        log = self.logs.get(partition)
        return checkpoint if log is None or log.damage is not None else log.log_end_offset

    async def _open(self, partition: TopicPartition, config: LogConfig) -> Log:
        known = self._recovery_points.get(partition)
        at = OpenAt(
            recovery_point=Offset(0) if known is None else known,
            log_start=self._log_starts.get(partition, Offset(0)),
            clean=self.clean_epoch is not None and known is not None,
            starts_known=self._starts_found,
            foreign=not self._points_found,
            cleaned=partition in self._cleaned,
        )
        return await open_log(self._fs, self, partition, self.partition_path(partition), config, at, self._probe)

    def partition_path(self, partition: TopicPartition) -> str:
        return names.join(self.path, str(partition))

    async def create_log(self, partition: TopicPartition, config: LogConfig) -> Log:
        """An empty log. Its directory is durable when this returns."""
        self.check()
        if partition in self.logs:
            raise InvariantError(f"{partition} already exists")
        try:
            if partition in self._kept:  # it may have moved to a directory that is offline; this one is another
                await self._set_aside(partition, names.STRAY_SUFFIX)
            if partition in self._recovery_points:  # of a log whose removal was interrupted
                await self.checkpoint()
            self._fs.mkdir(self.partition_path(partition))
            log = await self._open(partition, config)
            await self._fs.sync_dir(self.path)
        except OSError as e:
            raise self.fail(e) from e
        self.logs[partition] = log
        return log

    async def remove_log(self, partition: TopicPartition, *, stray: bool = False) -> None:
        """Rename the partition's directory to `-delete`, durably, and remove it later; to `-stray`, and keep it.

        It is removed from the checkpoints first: a later log of the same name must not start with its offsets.
        """
        self.check()
        log = self.logs.pop(partition)
        await log.retire()
        log.close()
        self._cleaned.pop(partition, None)
        suffix = names.STRAY_SUFFIX if stray else names.DELETE_SUFFIX
        renamed = names.join(self.path, names.removed_directory_name(partition, self._random.getrandbits(128), suffix))
        try:
            await self.checkpoint()
            self._fs.rename(self.partition_path(partition), renamed)
            await self._fs.sync_dir(self.path)
        except OSError as e:
            raise self.fail(e) from e
        if not stray:
            self.reaper.schedule(self._remover(renamed), log.config.file_delete_delay_ms)

    # -- moves to and from other directories

    def has_directory(self, partition: TopicPartition) -> bool:
        """Whether there is a directory of this partition, open or not."""
        return self._fs.exists(self.partition_path(partition))

    def may_have_moved(self) -> dict[TopicPartition, str]:
        """Before `open_logs`: the partitions whose move to another directory was not completed, and the `directory.id`
        of that one; "" where the file does not say.
        """
        found: dict[TopicPartition, str] = {}
        for name in self._fs.list(self.path):
            partition = names.parse_partition_directory(name)
            path = names.join(names.join(self.path, name), names.MOVING_TO)
            if partition is not None and self._fs.exists(path):
                try:
                    found[partition] = (read_file(self._fs, path, _MOVING_TO_BYTES_MAX) or b"").decode("ascii").strip()
                except ValueError:
                    found[partition] = ""
        return found

    async def has_moved(self, partition: TopicPartition) -> None:
        """Before `open_logs`: it is in another directory, and what is here is removed. OSError."""
        self._probe("log_move_completed", path=self.partition_path(partition))
        await self._set_aside(partition, names.DELETE_SUFFIX)

    async def has_not_moved(self, partition: TopicPartition, *, incomplete: bool) -> None:
        """Before `open_logs`: it is only here. `incomplete`: the directory to which it may have moved is gone, and
        may have had more of it. OSError.
        """
        path = self.partition_path(partition)
        if incomplete:
            self._fs.open(names.join(path, names.INCOMPLETE), create=True).close()
            await self._fs.sync_dir(path)
        self._fs.unlink(names.join(path, names.MOVING_TO))
        await self._fs.sync_dir(path)

    def leave_closed(self, partition: TopicPartition) -> None:
        """Before `open_logs`: it may be in a directory that is offline, so it is not opened here."""
        self._probe("log_move_undecided", path=self.partition_path(partition))
        point, start = self._recovery_points.get(partition), self._log_starts.get(partition)
        self._kept[partition] = KeptEntry(point or Offset(0), start or Offset(0))

    async def _set_aside(self, partition: TopicPartition, suffix: str) -> None:
        """Rename a directory that is not open, durably; then its entries leave the checkpoints."""
        token = self._random.getrandbits(128)
        renamed = names.join(self.path, names.removed_directory_name(partition, token, suffix))
        self._fs.rename(self.partition_path(partition), renamed)
        await self._fs.sync_dir(self.path)
        self._kept.pop(partition, None)
        async with self._checkpointing:
            if partition in self._log_starts:
                await self._write_log_starts({p: o for p, o in self._log_starts.items() if p != partition})
            if partition in self._recovery_points:
                await self._write_recovery_points({p: o for p, o in self._recovery_points.items() if p != partition})

    async def freeze(self, log: Log) -> None:
        """It moves to another directory; all of it is synced. When this returns its files are as after a clean stop,
        and nothing uses them; the checkpoints keep its entries. StorageError.
        """
        self.check()
        self.frozen[log.partition] = self.logs.pop(log.partition)
        await log.retire("the log moves to another log directory now: retry later")
        try:
            log.close_clean()
            await self._fs.sync_all(self.path)
            await self.checkpoint()
        except OSError as e:
            raise self.fail(e) from e
        log.close()

    async def note_moving(self, partition: TopicPartition, directory_id: str) -> None:
        """Before the copy in that directory takes the partition's name. Durable. StorageError."""
        path = names.join(self.partition_path(partition), names.MOVING_TO)
        try:
            await replace_file(self._fs, path, f"{directory_id}\n".encode())
        except OSError as e:
            raise self.fail(e) from e

    async def thaw(self, partition: TopicPartition, config: LogConfig) -> Log:
        """The move has failed: open the frozen log again. StorageError."""
        self.check()
        frozen, path = self.frozen[partition], self.partition_path(partition)
        try:
            if self._fs.exists(names.join(path, names.MOVING_TO)):
                self._fs.unlink(names.join(path, names.MOVING_TO))
                await self._fs.sync_dir(path)
            log = await self.open_copy(frozen, path, config)
        except OSError as e:
            raise self.fail(e) from e
        self.logs[partition] = log
        del self.frozen[partition]
        return log

    async def drop_frozen(self, partition: TopicPartition) -> None:
        """The move is complete: as `remove_log`. StorageError."""
        self.check()
        log = self.frozen[partition]
        token = self._random.getrandbits(128)
        renamed = names.join(self.path, names.removed_directory_name(partition, token, names.DELETE_SUFFIX))
        try:
            self._fs.rename(self.partition_path(partition), renamed)
            del self.frozen[partition]
            self._cleaned.pop(partition, None)
            await self._fs.sync_dir(self.path)
            await self.checkpoint()
        except OSError as e:
            raise self.fail(e) from e
        self.reaper.schedule(self._remover(renamed), log.config.file_delete_delay_ms)

    async def expect(self, frozen: Log, compacted_until: Offset) -> None:
        """Before the copy of this frozen log takes the partition's name here: the checkpoints get its entries, durably.
        StorageError.
        """
        partition = frozen.partition
        self._kept[partition] = KeptEntry(frozen.log_end_offset, frozen.log_start_offset)
        if compacted_until:
            self._cleaned[partition] = compacted_until
            self._cleaned_dirty = True
        try:
            await self.checkpoint()
        except OSError as e:
            raise self.fail(e) from e

    def expect_no_more(self, partition: TopicPartition) -> None:
        """The copy does not come; the next checkpoint is without its entries."""
        self._kept.pop(partition, None)
        self._cleaned.pop(partition, None)

    async def adopt(self, frozen: Log, config: LogConfig) -> Log:
        """The copy of the frozen log has the partition's name: open it. StorageError."""
        partition = frozen.partition
        try:
            log = await self.open_copy(frozen, self.partition_path(partition), config)
        except OSError as e:
            raise self.fail(e) from e
        self.logs[partition] = log
        self._kept.pop(partition, None)
        return log

    async def open_copy(self, frozen: Log, path: str, config: LogConfig) -> Log:
        """The log in `path`, with the files of the frozen one, as after a clean stop. OSError."""
        at = OpenAt(
            recovery_point=frozen.log_end_offset,
            log_start=frozen.log_start_offset,
            clean=True,
            cleaned=frozen.gaps_noted,
        )
        return await open_log(self._fs, self, frozen.partition, path, config, at, self._probe)

    def compacted_until(self, partition: TopicPartition) -> Offset:
        """As in the checkpoint; 0: it has never been compacted."""
        return self._cleaned.get(partition, Offset(0))

    def _remover(self, path: str) -> Callable[[], None]:
        def remove() -> None:
            for name in self._fs.list(path):
                self._fs.unlink(names.join(path, name))
            self._fs.rmdir(path)

        return remove

    # -- LogOwner

    def schedule_deletion(self, segments: Sequence[Segment], paths: Sequence[str], delay_ms: int) -> None:
        def remove() -> None:
            for segment in segments:
                segment.close()  # first: the last close of an unlinked file waits until its blocks are freed
                segment.unlink()
            for path in paths:
                if self._fs.exists(path):
                    self._fs.unlink(path)

        self.reaper.schedule(remove, delay_ms)

    def fail(self, error: OSError) -> StorageError:
        if self.failure is None:
            self.failure = StorageError(
                f"log directory {self.path} is offline: {error}", path=self.path, errno=error.errno
            )
            self._probe("log_directory_offline", path=self.path, errno=error.errno or 0, reason=str(error))
            for log in self.logs.values():
                log.durability.fail(self.failure)
            self._failed.set()
        return self.failure

    def on_damage_found(self, partition: TopicPartition, damages: Sequence[SegmentDamage]) -> None:
        self.found_ranges += len(damages)
        for damaged in damages[:DAMAGES_LOGGED_MAX]:
            self._probe(
                "damage_found",
                partition=str(partition),
                path=damaged.path,
                position=damaged.position,
                reason=damaged.reason,
                begin=damaged.begin_offset,
                end=damaged.end_offset,
            )
        log = self.logs.get(partition)
        if self.on_damage is not None and log is not None:
            self.on_damage(log)

    def on_index_rebuilt(self, path: str, reason: str) -> None:
        self.indexes_rebuilt += 1
        self._probe("index_rebuilt", path=path, reason=reason)

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    # -- checkpoints

    async def lower_checkpoints(self, partition: TopicPartition, recovery_point: Offset, log_start: Offset) -> None:
        if self._cleaned.get(partition, Offset(0)) > recovery_point:
            self._cleaned[partition] = recovery_point
            self._cleaned_dirty = True
        async with self._checkpointing:  # a running checkpoint may be about to write higher ones
            try:
                if self._recovery_points.get(partition, Offset(0)) > recovery_point:
                    await self._write_recovery_points({**self._recovery_points, partition: recovery_point})
                if self._log_starts.get(partition, Offset(0)) > log_start:
                    await self._write_log_starts({**self._log_starts, partition: log_start})
            except OSError as e:
                raise self.fail(e) from e

    async def save_log_starts(self, starts: Mapping[TopicPartition, Offset]) -> None:
        """Those of logs that are still here: an entry that outlives its log would apply to a later one of its name."""
        async with self._checkpointing:
            wanted = self._log_starts | {p: offset for p, offset in starts.items() if p in self.logs}
            if wanted != self._log_starts:
                try:
                    await self._write_log_starts(wanted)
                except OSError as e:
                    raise self.fail(e) from e

    def log_start_moved(self, log: LogState) -> None:
        self._moved_starts[log.partition] = log
        self._starts_moved.set()

    async def _keep_log_starts(self) -> None:
        """What a follower takes over from its leader is durable a moment later, not at the next checkpoint."""
        while True:
            await self._starts_moved.wait()
            self._starts_moved.clear()
            async with self._checkpointing:
                moved, self._moved_starts = self._moved_starts, {}
                moved = {partition: log for partition, log in moved.items() if self.logs.get(partition) is log}
                starts = self._log_starts | {partition: self._log_start(log) for partition, log in moved.items()}
                if starts != self._log_starts:
                    await self._write_log_starts(starts)
            await asyncio.sleep(LOG_STARTS_PAUSE_S)

    def saved_log_start(self, log: LogState) -> Offset:
        """As of the last checkpoint."""
        return self._log_starts.get(log.partition, Offset(0))

    async def checkpoint(self) -> None:
        """Write recovery points and log starts, after syncing what they promise."""
        self.check()
        async with self._checkpointing:
            logs, kept = self.logs | self.frozen, dict(self._kept)
            points = {partition: self._recovery_point(log) for partition, log in logs.items()}
            points |= {partition: entry.recovery_point for partition, entry in kept.items()}
            unsaved = [log for log in logs.values() if log.derived.write()]
            if unsaved:
                await self._fs.sync_all(self.path)
                for log in unsaved:
                    log.derived.install()
                await self._fs.sync_all(self.path)
            starts = {p: start for p, log in logs.items() if (start := self._log_start(log)) > 0}
            starts |= {p: entry.log_start for p, entry in kept.items() if entry.log_start > 0}
            if starts != self._log_starts or names.LOG_STARTS in self._uncertain:
                await self._write_log_starts(starts)
            if self._cleaned_dirty or names.CLEANER_OFFSETS in self._uncertain:
                self._cleaned_dirty = False
                await self._replace(names.CLEANER_OFFSETS, {p: o for p, o in self._cleaned.items() if p in points})
            if points != self._recovery_points or names.RECOVERY_POINTS in self._uncertain:
                await self._write_recovery_points(points)

    def _recovery_point(self, log: Log) -> Offset:
        """A damaged log keeps its recovery point, so that the damage is found again at the next start."""
        if log.damage is not None:
            return self._recovery_points.get(log.partition, Offset(0))
        return log.durability.synced_end

    @staticmethod
    def _log_start(log: LogState) -> Offset:
        """One whose first segments were lost keeps its log start, likewise."""
        return log.log_start_offset if log.lost_head is None else log.lost_head

    async def _write_recovery_points(self, points: dict[TopicPartition, Offset]) -> None:
        await self._replace(names.RECOVERY_POINTS, points)
        self._recovery_points = points

    async def _replace(self, name: str, offsets: dict[TopicPartition, Offset]) -> None:
        self._uncertain.add(name)
        await replace_file(self._fs, names.join(self.path, name), format_offsets(offsets))
        self._uncertain.discard(name)

    def recovery_point(self, log: Log) -> Offset:
        """As of the last checkpoint: everything below it is durable, with what is derived from it."""
        return self._recovery_points.get(log.partition, Offset(0))

    def cleaned_until(self, log: Log) -> Offset:
        """First offset of `log` that has not been compacted."""
        cleaned = self._cleaned.get(log.partition, Offset(0))
        return cleaned if log.log_start_offset <= cleaned <= log.log_end_offset else log.log_start_offset

    def was_cleaned(self, log: Log, end_offset: Offset) -> None:
        self._cleaned[log.partition] = end_offset
        self._cleaned_dirty = True

    async def _write_log_starts(self, starts: dict[TopicPartition, Offset]) -> None:
        await self._replace(names.LOG_STARTS, starts)
        before, self._log_starts = self._log_starts, starts
        for partition, start in starts.items():
            log = self.logs.get(partition)
            if log is not None and log.start_saved is not None and start > before.get(partition, Offset(0)):
                log.start_saved()

    # -- running and closing

    async def run(self) -> None:
        """Group commit, reaper, checkpoints. Ends with StorageError when the disk fails."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.group_commit.run())
                tasks.create_task(self._guard(self.reaper.run))
                tasks.create_task(self._guard(self._keep_checkpointing))
                tasks.create_task(self._guard(self._keep_log_starts))
                tasks.create_task(self._guard(self._keep_house))
                tasks.create_task(self._until_failed())
        except* StorageError as group:
            raise group.exceptions[0] from None

    async def _until_failed(self) -> None:
        await self._failed.wait()
        self.check()

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except OSError as e:
            raise self.fail(e) from e

    async def _keep_checkpointing(self) -> None:
        while True:
            await asyncio.sleep(self._checkpoint_interval_ms / 1000)
            await self.checkpoint()

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_INTERVAL_MS / 1000)
            now_ms = self._clock.wall_ms()
            for log in list(self.logs.values()):
                log.roll_if_due(now_ms)
                log.release_idle()
                log.producers.expire(now_ms, log.config.producer_expiration_ms)

    async def close(self, broker_epoch: BrokerEpoch | None = None) -> None:
        """After `run` has been cancelled. With a broker epoch it is a clean stop: everything is synced, and the mark
        written last. Without one, or offline: files are closed without a sync.
        """
        if broker_epoch is not None and self.failure is None:
            await self._close_clean(broker_epoch)
        for log in (*self.logs.values(), *self.frozen.values()):
            log.close()
        self._lock.release()

    async def _close_clean(self, broker_epoch: BrokerEpoch) -> None:
        try:
            for log in self.logs.values():
                if log.damage is None:
                    log.durability.request()
            await self.group_commit.sync_now()
            for log in (*self.logs.values(), *self.frozen.values()):
                if log.damage is None:
                    log.close_clean()
            await self._fs.sync_all(self.path)
            await self.checkpoint()
            if all(log.damage is None for log in self.logs.values()):
                mark = json.dumps({"version": _CLEAN_VERSION, "brokerEpoch": broker_epoch}).encode()
                await replace_file(self._fs, names.join(self.path, names.CLEAN_SHUTDOWN), mark)
        except OSError as e:
            raise self.fail(e) from e


async def _take_clean_mark(fs: FileSystem, path: str) -> BrokerEpoch | None:
    """The broker epoch in the clean-stop mark, or None. The mark is removed durably before anything is written."""
    mark = names.join(path, names.CLEAN_SHUTDOWN)
    try:
        content = read_file(fs, mark, 4096)
    except ValueError:
        content = b""
    if content is None:
        return None
    fs.unlink(mark)
    await fs.sync_dir(path)
    try:
        epoch = json.loads(content)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return None
    return BrokerEpoch(epoch) if isinstance(epoch, int) else None
