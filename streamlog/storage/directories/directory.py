"""A log directory: the logs on one disk, their checkpoints, and their common state.

    opening --open--> online --close--> closed (clean: the mark is written last)
                        |
                        +--a write or sync fails--> offline until the node restarts: every log raises StorageError

The directory is locked against a second process. Start: lock, `meta.properties`, read and remove the clean-stop mark,
read the checkpoints, open the logs. While online, `run` runs group commit, the reaper and the checkpoints; it ends with
StorageError when the disk fails.

A recovery point is written after what it promises: epochs, snapshots and indexes are synced first (`checkpoint`).
"""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from streamlog.aio.group_tasks import unwrapped
from streamlog.errors import DamagedFileError, InvariantError, LogDirectoryLockedError, StorageError
from streamlog.model import BrokerEpoch, BrokerId, Offset, TopicPartition
from streamlog.ports import Clock, DirectoryLock, FileSystem, Probe, Random
from streamlog.storage.directories.moving_logs import MovingLogs
from streamlog.storage.directories.offset_checkpoints import OffsetCheckpoints
from streamlog.storage.directories.scrub_progress import ScrubProgress
from streamlog.storage.files import names
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
CHANGED_BY_HAND: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY})
"""A deleted directory was removed, or renamed, or contains directories."""
REMOVED_AT_ONCE: Final = 200
"""Files, in one step of the event loop."""
WRITTEN_AT_ONCE: Final = 32
"""Logs whose derived state is written, or installed, likewise."""
HOUSEKEEPING_INTERVAL_MS: Final = 30_000
LOG_STARTS_PAUSE_S: Final = 0.2
"""Between two writes of log starts that have moved: all that move meanwhile share the next one."""
_CLEAN_VERSION: Final = 0


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
        self.checkpoints = OffsetCheckpoints(fs, path)
        self.moving = MovingLogs(self, fs, probe)
        self._moved_starts: dict[TopicPartition, LogState] = {}  # not yet in the checkpoint; bounded by the logs
        self._starts_moved = asyncio.Event()
        self.indexes_rebuilt = 0  # of all logs, since the start
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
            directory = cls(fs, path, clock, random, probe, lock, meta, clean, checkpoint_interval_ms)
            directory.checkpoints.read(directory._on_damaged_checkpoint)
        except BaseException:
            lock.release()
            raise
        return directory

    def _on_damaged_checkpoint(self, error: DamagedFileError) -> None:
        """More is scanned than necessary then."""
        self._probe("checkpoint_ignored", path=error.path, position=error.position, reason=error.reason)
        self.clean_epoch = None

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
                    self.remove_later(names.join(self.path, name), 0)
                else:
                    self._probe("stray_directory", path=names.join(self.path, name))
                continue
            if names.is_future(name):
                self._probe("log_move_interrupted", path=names.join(self.path, name))
                self.remove_later(names.join(self.path, name), 0)
                continue
            partition = names.parse_partition_directory(name)
            if partition is None or partition in self.moving.kept or not self._fs.is_dir(names.join(self.path, name)):
                continue
            self.logs[partition] = await self._open(partition, config_of(partition))
        known, here = self.checkpoints, self.logs.keys() | self.moving.kept.keys()
        for partition, point in known.recovery_points.items():
            if point and partition not in here and self.clean_epoch is not None:
                # The node had this log at its clean stop: it must not register as if it still had it.
                self._probe("log_damaged", path=self.partition_path(partition), position=0, reason="the log is missing")
                self.clean_epoch = None
        await self._write_log_starts({p: self._bounded(p, o) for p, o in known.log_starts.items() if p in here})
        await known.write_recovery_points({p: self._bounded(p, o) for p, o in known.recovery_points.items()})

    def _bounded(self, partition: TopicPartition, checkpoint: Offset) -> Offset:
        """By the log's end, if it is intact: one that is shorter than its checkpoints (its last truncation was partly
        durable) needs lower ones. Otherwise they would apply to later appends: these would not be scanned after the
        next kill, or count as deleted.
        """
        log = self.logs.get(partition)
        return checkpoint if log is None or log.damage is not None else min(checkpoint, log.log_end_offset)

    async def _open(self, partition: TopicPartition, config: LogConfig) -> Log:
        checkpoints = self.checkpoints
        known = checkpoints.recovery_points.get(partition)
        at = OpenAt(
            recovery_point=Offset(0) if known is None else known,
            log_start=checkpoints.log_starts.get(partition, Offset(0)),
            clean=self.clean_epoch is not None and known is not None,
            starts_known=checkpoints.has_starts,
            foreign=not checkpoints.has_points,
            cleaned=partition in checkpoints.cleaned,
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
            await self.moving.replace_closed(partition)
            if partition in self.checkpoints.recovery_points:  # of a log whose removal was interrupted
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
        self.checkpoints.cleaned.pop(partition, None)
        renamed = self.removed_path(partition, names.STRAY_SUFFIX if stray else names.DELETE_SUFFIX)
        try:
            await self._checkpoint_without(partition)
            self._fs.rename(self.partition_path(partition), renamed)
            await self._fs.sync_dir(self.path)
        except OSError as e:
            raise self.fail(e) from e
        if not stray:
            self.remove_later(renamed, log.config.file_delete_delay_ms)

    def has_directory(self, partition: TopicPartition) -> bool:
        """Whether there is a directory of this partition, open or not."""
        return self._fs.exists(self.partition_path(partition))

    def removed_path(self, partition: TopicPartition, suffix: str) -> str:
        """A new name for the partition's directory."""
        token = self._random.getrandbits(128)
        return names.join(self.path, names.removed_directory_name(partition, token, suffix))

    def remove_later(self, path: str, delay_ms: int) -> None:
        """A directory with its files."""
        removal = self._removal(path)

        def remove() -> None:
            if next(removal, False):
                self.reaper.schedule(remove, 0)

        self.reaper.schedule(remove, delay_ms)

    def _removal(self, path: str) -> Iterator[bool]:
        """True: more is left. What is changed by hand meanwhile is no failure of the disk."""
        try:
            for number, name in enumerate(self._fs.list(path), 1):
                with suppress(FileNotFoundError):
                    self._fs.unlink(names.join(path, name))
                if not number % REMOVED_AT_ONCE:
                    yield True
            self._fs.rmdir(path)
        except OSError as e:
            if e.errno not in CHANGED_BY_HAND:
                raise
            self._probe("directory_not_removed", path=path, reason=str(e))

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
        checkpoints = self.checkpoints
        if checkpoints.cleaned.get(partition, Offset(0)) > recovery_point:
            checkpoints.set_cleaned(partition, recovery_point)
        async with checkpoints.writing:  # a running checkpoint may be about to write higher ones
            try:
                if checkpoints.recovery_points.get(partition, Offset(0)) > recovery_point:
                    await checkpoints.write_recovery_points({**checkpoints.recovery_points, partition: recovery_point})
                if checkpoints.log_starts.get(partition, Offset(0)) > log_start:
                    await self._write_log_starts({**checkpoints.log_starts, partition: log_start})
            except OSError as e:
                raise self.fail(e) from e

    async def save_log_starts(self, starts: Mapping[TopicPartition, Offset]) -> None:
        """Those of logs that are still here: an entry that outlives its log would apply to a later one of its name."""
        async with self.checkpoints.writing:
            known = {partition: offset for partition, offset in starts.items() if partition in self.logs}
            try:
                await self._write_log_starts(self.checkpoints.log_starts | known)
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
            async with self.checkpoints.writing:
                moved, self._moved_starts = self._moved_starts, {}
                moved = {partition: log for partition, log in moved.items() if self.logs.get(partition) is log}
                starts = {partition: self._log_start(log) for partition, log in moved.items()}
                await self._write_log_starts(self.checkpoints.log_starts | starts)
            await asyncio.sleep(LOG_STARTS_PAUSE_S)

    def saved_log_start(self, log: LogState) -> Offset:
        """As of the last checkpoint."""
        return self.checkpoints.log_starts.get(log.partition, Offset(0))

    async def checkpoint(self) -> None:
        """Write recovery points and log starts, after syncing what they promise."""
        self.check()
        async with self.checkpoints.writing:
            await self._write_checkpoints()

    async def _checkpoint_without(self, partition: TopicPartition) -> None:
        """As `checkpoint`, for a log that is not here any more. One is for all whose removal began before it."""
        async with self.checkpoints.writing:
            if self.checkpoints.may_have(partition):
                await self._write_checkpoints()

    async def _write_checkpoints(self) -> None:
        logs, kept = self.logs | self.moving.frozen, dict(self.moving.kept)
        points = {partition: self._recovery_point(log) for partition, log in logs.items()}
        points |= {partition: entry.recovery_point for partition, entry in kept.items()}
        await self._write_derived(logs)
        # A log that was removed meanwhile may be unwritten: its recovery point would promise what is not there.
        logs = {partition: log for partition, log in logs.items() if self._has(partition)}
        points = {partition: point for partition, point in points.items() if partition in kept or self._has(partition)}
        starts = {p: start for p, log in logs.items() if (start := self._log_start(log)) > 0}
        starts |= {p: entry.log_start for p, entry in kept.items() if entry.log_start > 0}
        await self._write_log_starts(starts)
        await self.checkpoints.write_cleaned(points)
        await self.checkpoints.write_recovery_points(points)

    def _has(self, partition: TopicPartition) -> bool:
        return partition in self.logs or partition in self.moving.frozen

    async def _write_derived(self, logs: dict[TopicPartition, Log]) -> None:
        """In steps: after a fail-over it is a file of each of thousands of logs. One may be removed meanwhile."""
        unsaved: list[Log] = []
        for partition, log in logs.items():
            is_here = log is self.logs.get(partition) or log is self.moving.frozen.get(partition)
            if is_here and log.derived.write():
                unsaved.append(log)
                if not len(unsaved) % WRITTEN_AT_ONCE:
                    await asyncio.sleep(0)
        if not unsaved:
            return
        await self._fs.sync_all(self.path)
        for number, log in enumerate(unsaved, 1):
            log.derived.install()
            if not number % WRITTEN_AT_ONCE:
                await asyncio.sleep(0)
        await self._fs.sync_all(self.path)

    def _recovery_point(self, log: Log) -> Offset:
        """A damaged log keeps its recovery point, so that the damage is found again at the next start."""
        if log.damage is not None:
            return self.recovery_point(log)
        return log.durability.synced_end

    @staticmethod
    def _log_start(log: LogState) -> Offset:
        """One whose first segments were lost keeps its log start, likewise."""
        return log.log_start_offset if log.lost_head is None else log.lost_head

    def recovery_point(self, log: Log) -> Offset:
        """As of the last checkpoint: everything below it is durable, with what is derived from it."""
        return self.checkpoints.recovery_points.get(log.partition, Offset(0))

    def cleaned_until(self, log: Log) -> Offset:
        """First offset of `log` that has not been compacted."""
        cleaned = self.checkpoints.cleaned.get(log.partition, Offset(0))
        return cleaned if log.log_start_offset <= cleaned <= log.log_end_offset else log.log_start_offset

    def was_cleaned(self, log: Log, end_offset: Offset) -> None:
        self.checkpoints.set_cleaned(log.partition, end_offset)

    async def _write_log_starts(self, starts: dict[TopicPartition, Offset]) -> None:
        before = await self.checkpoints.write_log_starts(starts)
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
        except BaseExceptionGroup as group:
            raise unwrapped(group, StorageError) from None

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
            now_ms, now_s = self._clock.wall_ms(), self._clock.monotonic()
            for log in list(self.logs.values()):
                log.roll_if_due(now_ms, now_s)
                log.release_idle()
                log.producers.expire(now_ms, now_s, log.config.producer_expiration_ms)

    async def close(self, broker_epoch: BrokerEpoch | None = None) -> None:
        """After `run` has been cancelled. With a broker epoch it is a clean stop: everything is synced, and the mark
        written last. Without one, or offline: files are closed without a sync.
        """
        if broker_epoch is not None and self.failure is None:
            await self._close_clean(broker_epoch)
        for log in (*self.logs.values(), *self.moving.frozen.values()):
            log.close()
        self._lock.release()

    async def _close_clean(self, broker_epoch: BrokerEpoch) -> None:
        try:
            for log in self.logs.values():
                if log.damage is None:
                    log.durability.request()
            await self.group_commit.sync_now()
            closed = [self._is_closed_clean(log) for log in (*self.logs.values(), *self.moving.frozen.values())]
            await self._fs.sync_all(self.path)
            await self.checkpoint()
            if all(closed):
                mark = json.dumps({"version": _CLEAN_VERSION, "brokerEpoch": broker_epoch}).encode()
                await replace_file(self._fs, names.join(self.path, names.CLEAN_SHUTDOWN), mark)
        except OSError as e:
            raise self.fail(e) from e

    def _is_closed_clean(self, log: Log) -> bool:
        if log.damage is None:
            try:
                log.close_clean()
                return True
            except DamagedFileError as e:  # an index: the next start rebuilds it
                self._probe("log_damaged", path=e.path, position=e.position, reason=e.reason)
        return False


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
