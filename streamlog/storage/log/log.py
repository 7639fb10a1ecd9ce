"""One partition's log: appending, cutting, reading. The order of its facts:

    log_start <= ... <= log_end,   synced_end <= log_end,   ackable_end = synced_end, or log_end where nothing is synced

Appending is synchronous: bytes to the page cache, facts in memory, a mark for group commit. Nothing is claimed by it;
what may be acknowledged or replicated from is `ackable_end`. Batches are opaque: the leader rewrites the 16
bytes before the magic (and, with LogAppendTime, timestamp and CRC), a follower writes what it got.

The log is followed by three things derived from its batches: the table of leader epochs, the state of producers, the
indexes. `derived` keeps them, and makes them durable before the recovery point moves on.

A log whose middle is damaged (`damage`) serves what is intact before it and refuses appends until
`discard_damage`, which the replica's owner calls once it knows that the records are to be had from the leader.
Not safe for use from several threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

from streamlog.errors import (
    CorruptMessageError,
    DamagedFileError,
    FencedLeaderEpochError,
    InvalidRecordError,
    InvariantError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    StorageError,
)
from streamlog.model import (
    INT32_MAX,
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_TIMESTAMP,
    Appended,
    EpochEnd,
    LeaderEpoch,
    Offset,
    TopicPartition,
)
from streamlog.ports import Buffer, FileSystem
from streamlog.records import BatchHeader, TimestampType, check_crc, read_header, scan_headers
from streamlog.records.header import HEADER_SIZE
from streamlog.storage.files import names
from streamlog.storage.log import reading
from streamlog.storage.log.derived_state import DerivedState
from streamlog.storage.log.durability import Durability
from streamlog.storage.log.epochs import LeaderEpochs
from streamlog.storage.log.examination import ExaminationResult, SegmentDamage, examine
from streamlog.storage.log.stamping import Batches, split_by_room, stamped, with_append_time
from streamlog.storage.log_config import NEVER, LogConfig
from streamlog.storage.producers.markers import marker_in
from streamlog.storage.producers.producer_states import ProducerStates
from streamlog.storage.producers.state_replay import restore_producers
from streamlog.storage.producers.transaction_replay import aborted_in
from streamlog.storage.segments.index_rebuild import rebuild_indexes
from streamlog.storage.segments.scan import run
from streamlog.storage.segments.segment import Segment
from streamlog.storage.segments.segment_list import Segments
from streamlog.storage.segments.transaction_index import AbortedTransaction


class Home(Protocol):
    """The log directory, as a log sees it."""

    def monotonic(self) -> float:
        """Seconds, as `ports.Clock` has it."""

    def mark(self, log: Log) -> None:
        """`log` wants a sync."""

    def schedule_deletion(self, segments: Sequence[Segment], paths: Sequence[str], delay_ms: int) -> None:
        """Remove these renamed segments and files after the delay."""

    def fail(self, error: OSError) -> StorageError:
        """A write failed: take the directory offline. Returns what to raise."""

    def found_damage(self, log: Log, damages: Sequence[SegmentDamage]) -> None:
        """Something below the log's end cannot be read; it is in `log.damaged_segments`."""

    def rebuilt_index(self, path: str, reason: str) -> None:
        """An index was wrong, and is right again."""

    async def lower_checkpoints(self, partition: TopicPartition, recovery_point: Offset, log_start: Offset) -> None:
        """Make what the checkpoints say of a log at most this, durably: before it is cut."""

    async def save_log_starts(self, starts: Mapping[TopicPartition, Offset]) -> None:
        """Make these the log starts in the checkpoint, durably: before the segments below them are removed."""


class Log:
    """Built by `open_log.open_log`, owned by its directory. Lifecycle: open, (appends, reads, cuts)*, close."""

    __slots__ = (
        "_fs",
        "_home",
        "_unused",
        "_users",
        "config",
        "damage",
        "damaged_segments",
        "derived",
        "directory",
        "durability",
        "gaps_noted",
        "leader_has_gaps",
        "log_end_offset",
        "log_start_offset",
        "lost_head",
        "partition",
        "segments",
    )

    def __init__(
        self,
        fs: FileSystem,
        home: Home,
        partition: TopicPartition,
        directory: str,
        config: LogConfig,
        *,
        segments: Segments,
        epochs: LeaderEpochs,
        producers: ProducerStates,
        log_start_offset: Offset,
        log_end_offset: Offset,
        damage: DamagedFileError | None = None,
        gaps_noted: bool = False,
    ) -> None:
        self._fs = fs
        self._home = home
        self.partition = partition
        self.directory = directory
        self.config = config  # may be replaced while running
        self.segments = segments
        self.derived = DerivedState(fs, directory, epochs, producers)
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.damage = damage
        self.gaps_noted = gaps_noted  # offsets may be missing between batches, and the disk says so
        self.leader_has_gaps = False  # what is followed may have them
        self.lost_head: Offset | None = None  # with damage: where the log began before its first records were lost
        self.damaged_segments: dict[Segment, ExaminationResult] = {}  # those in which damage was found since the start
        self.durability = Durability(self._mark, log_end_offset)
        self._users = 0  # of `in_use`
        self._unused = asyncio.Event()
        self._unused.set()

    def _mark(self) -> None:
        self._home.mark(self)

    # -- facts

    @property
    def epochs(self) -> LeaderEpochs:
        return self.derived.epochs

    @property
    def producers(self) -> ProducerStates:
        return self.derived.producers

    @property
    def ackable_end(self) -> Offset:
        """Records below it may be acknowledged, and it is what a follower reports to its leader (SEMANTICS 1 and 5)."""
        return self.durability.synced_end if self.config.syncs_each_append else self.log_end_offset

    @property
    def last_record_epoch(self) -> LeaderEpoch:
        """Leader epoch of the last record; -1 where there is none."""
        if self.log_end_offset == self.log_start_offset:
            return NO_LEADER_EPOCH
        return self.derived.epochs.epoch_of(Offset(self.log_end_offset - 1))

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    def end_offset_for(self, epoch: LeaderEpoch) -> EpochEnd:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # -- appending

    def append_as_leader(self, buffer: Buffer, batches: Batches, leader_epoch: LeaderEpoch, now_ms: int) -> Appended:
        """Append what `records.validate` has found in `buffer`, stamped with offsets and epoch.

        A coordinator's marker comes alone. One that repeats another is answered with the log's end: the first one is
        below it.

        Raises OutOfOrderSequenceError, ProducerFencedError, InvalidTransactionStateError,
        TransactionCoordinatorFencedError, FencedLeaderEpochError, MessageTooLargeError, InvalidRecordError,
        ThrottledError, StorageError, DamagedFileError; nothing is written then. A failed write is a StorageError and
        takes the directory offline.
        """
        self._check_writable(leader_epoch)
        repeated = self._check_producers(buffer, batches)
        if repeated is not None:
            return repeated
        append_time_ms = NO_TIMESTAMP
        if self.config.timestamp_type is TimestampType.LOG_APPEND_TIME:
            buffer, batches = with_append_time(buffer, batches, now_ms)
            append_time_ms = now_ms
        first = self.log_end_offset
        ready = stamped(buffer, batches, first, leader_epoch)
        self._check_size(ready.size_bytes)
        self._write(ready.buffers, ready.batches, ready.size_bytes, ready.next_offset)
        return Appended(first, ready.next_offset, append_time_ms, ready.size_bytes, ready.buffers)

    @property
    def has_gaps(self) -> bool:
        """Whether offsets may be missing between batches, because compaction is or was at work here or where the log
        was copied from (I20).
        """
        return self.gaps_noted or self.config.cleanup_compact

    def note_gaps(self) -> None:
        """Before the first gap: a later start must not take it for damage. Durable with the next sync. OSError."""
        if not self.gaps_noted:
            self._fs.open(names.join(self.directory, names.GAPS), create=True).close()
            self.gaps_noted = True
            self.durability.names_changed()

    async def note_gaps_durably(self) -> None:
        """As `note_gaps`, for who renames files next. OSError."""
        if not self.gaps_noted:
            self.note_gaps()
            await self._fs.sync_dir(self.directory)

    def append_as_follower(self, buffer: Buffer) -> Appended:
        """Append whole batches as the leader sent them. Offsets join, but for gaps where compaction is or was at work
        (I20), and never go back; CRCs are checked.

        Raises CorruptMessageError where the bytes are not such batches, StorageError; nothing is written then.
        """
        self._check_writable(LeaderEpoch(INT32_MAX))
        batches = list(scan_headers(buffer, 0, len(buffer)))
        first, expected, epoch = self.log_end_offset, self.log_end_offset, self.last_record_epoch
        end, jumps = 0, False
        for position, header in batches:
            check_crc(buffer, position, header)
            if not self._joins(header, expected):
                reason = f"batch {header.base_offset}..{header.last_offset} where {expected} was expected"
                raise CorruptMessageError(reason, position=position)
            if header.is_control and header.has_producer:  # what it says must be readable once it is in the log
                marker_in(memoryview(buffer)[position : position + header.size_bytes], header)
            jumps = jumps or header.base_offset > expected
            if header.leader_epoch < epoch:
                raise CorruptMessageError(f"epoch {header.leader_epoch} after {epoch}", position=position)
            expected, epoch, end = header.next_offset, header.leader_epoch, position + header.size_bytes
        if not batches or end != len(buffer):
            raise CorruptMessageError("the last batch is cut off", position=end)
        self.durability.check_room(len(buffer), self._unsynced_limit)
        if self.derived.producers_stale:  # restoring them failed: a damaged batch, below what was cut
            raise StorageError(f"{self.partition}: the producers' state could not be restored after a cut")
        if batches[0][1].leader_epoch < self.epochs.latest:
            # An own leadership that wrote nothing left an epoch at the log's end, which the leader's history lacks.
            self.epochs.truncate_end(first)
        if jumps:
            try:
                self.note_gaps()
            except OSError as e:
                raise self._home.fail(e) from e
        room = self.config.segment_bytes - self.segments.active.size_bytes
        for group in split_by_room(batches, room, self.config.segment_bytes):
            begin, (last_position, last) = group[0][0], group[-1]
            stop = last_position + last.size_bytes
            moved = [(position - begin, header) for position, header in group]
            self._write((memoryview(buffer)[begin:stop],), moved, stop - begin, last.next_offset)
        return Appended(first, expected, NO_TIMESTAMP, len(buffer), (buffer,))

    def _joins(self, header: BatchHeader, expected: Offset) -> bool:
        """Whether a batch from a leader may stand where `expected` is the log's end."""
        gap = header.base_offset - expected
        if gap and not (gap > 0 and (self.has_gaps or self.leader_has_gaps)):
            return False
        return header.last_offset_delta >= 0 and header.last_offset - expected <= INT32_MAX

    def _write(self, buffers: Sequence[Buffer], batches: Batches, size: int, end_offset: Offset) -> None:
        """The bytes, then the facts. All of it lands in one segment."""
        active = self.segments.active
        try:
            if active.is_full_for(size, Offset(end_offset - 1), batches[0][1].max_timestamp):
                active = self.roll()
            start = active.size_bytes
            active.append(buffers, batches, size)
            for position, header in batches:
                self.derived.follow(header, active, start + position)
        except OSError as e:
            raise self._home.fail(e) from e
        active.appended_s = self._home.monotonic()
        self.log_end_offset = end_offset
        durability = self.durability
        durability.wrote(active, size, end_offset)
        if self.config.syncs_each_append or end_offset - durability.synced_end >= self.config.flush_messages:
            durability.request()
        elif self.config.flush_ms < NEVER:
            durability.request_within(self.config.flush_ms / 1000)

    def roll(self) -> Segment:
        """Close the active segment and begin another at the log's end. Its names are durable with the next sync."""
        active = self.segments.active
        active.become_closed()
        self.derived.segment_closed(active, self.log_end_offset)
        segment = Segment.create(self._fs, self.directory, self.log_end_offset, self.config)
        self.segments.append(segment)
        self.durability.names_changed()
        self.durability.request()
        return segment

    def roll_if_due(self, now_ms: int) -> None:
        """`segment.ms` for a log that gets no appends any more: so that retention can reach its last records."""
        active = self.segments.active
        if active.size_bytes and active.is_full_for(0, Offset(self.log_end_offset - 1), now_ms):
            self.roll_now()

    def roll_now(self) -> None:
        """`roll`, for callers outside of an append; an empty active segment stays. A failure is a StorageError."""
        self.durability.check()
        if not self.segments.active.size_bytes:
            return
        try:
            self.roll()
        except OSError as e:
            raise self._home.fail(e) from e

    @property
    def _unsynced_limit(self) -> int:
        return self.config.unsynced_bytes_max if self.config.syncs_each_append else 2**63

    def _check_writable(self, leader_epoch: LeaderEpoch) -> None:
        self.durability.check()
        if self.damage is not None:
            raise self.damage
        if leader_epoch < self.epochs.latest:
            raise FencedLeaderEpochError(
                f"{self.partition}: leader epoch {leader_epoch} is over, {self.epochs.latest} has begun",
                field="leader_epoch",
                limit=self.epochs.latest,
            )

    def _check_size(self, size: int) -> None:
        if size > self.config.segment_bytes:
            raise MessageTooLargeError(
                f"{size} bytes do not fit a segment of {self.config.segment_bytes}",
                field="segment.bytes",
                limit=self.config.segment_bytes,
            )
        self.durability.check_room(size, self._unsynced_limit)

    def _check_producers(self, buffer: Buffer, batches: Batches) -> Appended | None:
        """Decide on sequences; the answer of the first time where the batch is a retry."""
        if self.derived.producers_stale:
            raise InvariantError(f"{self.partition}: leading before the producers' state was restored")
        if all(header.producer_id < 0 for _, header in batches):
            return None
        if len(batches) > 1:
            raise InvalidRecordError("an idempotent producer sends one batch at a time for a partition")
        position, header = batches[0]
        if header.is_control:
            return self._check_marker(memoryview(buffer)[position:], header)
        seen = self.producers.check(header)
        if seen is None:
            return None
        next_offset = Offset(seen.last_offset + 1)
        return Appended(seen.first_offset, next_offset, NO_TIMESTAMP, 0, (), duplicate=True)

    def _check_marker(self, batch: Buffer, header: BatchHeader) -> Appended | None:
        marker = marker_in(batch, header)
        if marker is None:
            raise InvalidRecordError("a control batch of a producer that ends no transaction")
        if not self.producers.check_marker(header, marker):
            return None
        end = self.log_end_offset
        return Appended(end, end, NO_TIMESTAMP, 0, (), duplicate=True)

    # -- cutting

    async def truncate(self, offset: Offset) -> None:
        """Drop everything at and above `offset` (a batch that straddles it goes as a whole), and restore the
        producers' state.

        The cut itself is one step. The wait before it is for the checkpoints: were the recovery point left above the
        new end, the next start would take the missing records for lost ones.
        """
        self.durability.check()
        if offset >= self.log_end_offset:
            return
        end, _ = self._cut_point(offset)
        await self._home.lower_checkpoints(self.partition, end, end)
        if offset < self.log_end_offset:  # else cut by somebody else meanwhile
            self._cut(offset)
        await self.restore_producers()

    def _cut(self, offset: Offset) -> None:
        if offset <= self.segments.first.base_offset:
            self._restart_at(offset)
            return
        removed = self.segments.remove_from(offset)
        active = self.segments.active
        try:
            end, position = self._cut_point(offset)
            self._schedule_deletion(removed[::-1])
            active.truncate(position, end)
            active.become_active(end)
            self._was_cut(end, active, removed)
        except OSError as e:
            raise self._home.fail(e) from e

    def _cut_point(self, offset: Offset) -> tuple[Offset, int]:
        """Where a log that is cut at `offset` ends, and at which position of that segment."""
        segment = self.segments.at(self.segments.index_of(offset))
        position = run(segment.file, segment.seek(offset))
        if position == segment.size_bytes:
            return offset, position
        header = read_header(segment.file.pread(HEADER_SIZE, position), 0)
        return min(offset, header.base_offset), position

    async def restart_at(self, offset: Offset) -> None:
        """Drop everything; the next record gets `offset`."""
        self.durability.check()
        await self._home.lower_checkpoints(self.partition, Offset(0), offset)
        await self._home.save_log_starts({self.partition: offset})
        self._restart_at(offset)

    def _restart_at(self, offset: Offset) -> None:
        old = list(self.segments)
        try:
            self._schedule_deletion(old[::-1])
            segment = Segment.create(self._fs, self.directory, offset, self.config)
            self.segments.replace_all(segment)
            self.log_start_offset = offset
            self.damage = self.lost_head = None
            self._was_cut(offset, segment, old, restarted=True)
        except OSError as e:
            raise self._home.fail(e) from e
        self.epochs.clear()  # those below `offset` too: their records are gone
        self.derived.producers = ProducerStates((), offset)
        self.derived.producers_stale = False

    def _was_cut(self, end: Offset, active: Segment, removed: list[Segment], *, restarted: bool = False) -> None:
        self.log_end_offset = end
        self.log_start_offset = min(self.log_start_offset, end)
        self.derived.segments_gone([active, *removed])
        for segment in [active, *removed]:
            self.damaged_segments.pop(segment, None)  # what is damaged still is found again
        self.derived.was_cut(end)
        self.durability.truncated(end, active, removed, restarted=restarted)

    def advance_log_start(self, offset: Offset) -> None:
        """Records below `offset` are gone for readers; retention takes their segments later (delete-records).

        Raises OffsetOutOfRangeError beyond the log's end. The caller has bounded it by the high watermark.
        """
        if offset > self.log_end_offset:
            raise self.out_of_range(offset)
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_start(offset)

    def remove_oldest(self, count: int) -> None:
        """Delete the oldest `count` segments (retention): rename now, remove after the delay. The log start that
        this makes is in the checkpoint (`Home.save_log_starts`), or the next start takes them for lost ones.
        """
        self.durability.check()
        removed = self.segments.remove_first(count)
        self.advance_log_start(self.segments.first.base_offset)
        try:
            self._schedule_deletion(removed)
        except OSError as e:
            raise self._home.fail(e) from e
        self.derived.segments_gone(removed)
        for segment in removed:
            self.damaged_segments.pop(segment, None)
        self.durability.names_changed()

    def has_neighbours(self, segments: list[Segment]) -> bool:
        """Whether these are still closed segments of this log, side by side."""
        closed = self.segments.closed()
        return segments[0] in closed and closed[(i := closed.index(segments[0])) : i + len(segments)] == segments

    def replace_segments(self, old: list[Segment], copy: Segment, further: Sequence[Segment] = ()) -> None:
        """Put a compacted (or repaired) copy, written and synced under the suffix `.cleaned`, in the place of `old`
        (see `swap`). `further`: segments with names of their own that follow it, installed before it: so whatever a
        crash leaves joins what was there.
        """
        self.durability.check()
        try:
            for segment in reversed(further):
                segment.rename("", log_last=True)
            copy.rename(names.SWAP, log_last=True)
            self._schedule_deletion(old, keep_snapshot_of=copy.base_offset)
            copy.rename("", log_last=True)
        except OSError as e:
            raise self._home.fail(e) from e
        appended = [segment.appended_s for segment in old if segment.appended_s is not None]
        for segment in (copy, *further):
            segment.appended_s = max(appended, default=None)
        self.segments.replace(old, [copy, *further])
        self.derived.segments_gone(old)
        for segment in (copy, *further):
            self.derived.note_transactions(segment)
        for segment in old:
            self.damaged_segments.pop(segment, None)
        self.durability.names_changed()
        self.durability.request()

    async def discard_damage(self) -> None:
        """Cut the log at the damage, for good: the records from there on will be fetched from the leader."""
        if self.damage is None:
            return
        if self.lost_head is not None:
            await self.restart_at(self.lost_head)
            return
        await self._home.lower_checkpoints(self.partition, self.log_end_offset, self.log_end_offset)
        self.damage = None
        active = self.segments.active
        try:
            active.file.truncate(active.size_bytes)
            for name in self._fs.list(self.directory):
                parsed = names.parse_file_name(name)
                if parsed is not None and parsed[0] > active.base_offset:
                    self._fs.unlink(names.join(self.directory, name))
        except OSError as e:
            raise self._home.fail(e) from e
        self._was_cut(self.log_end_offset, active, [])
        await self.restore_producers()

    def _schedule_deletion(self, segments: list[Segment], *, keep_snapshot_of: Offset = NO_OFFSET) -> None:
        """Rename them in this order, of which a power cut may keep a part: a cut takes the newest first, retention the
        oldest, so that what is left is a log without a hole either way.
        """
        paths = []
        for segment in segments:
            segment.rename(names.DELETED, log_last=False)
            snapshot = segment.snapshot_path
            if segment.base_offset != keep_snapshot_of and self._fs.exists(snapshot):
                self._fs.rename(snapshot, snapshot + names.DELETED)
                paths.append(snapshot + names.DELETED)
        if segments:
            self._home.schedule_deletion(segments, paths, self.config.file_delete_delay_ms)

    # -- reading

    def out_of_range(self, offset: Offset) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            f"{self.partition}: offset {offset} is not in {self.log_start_offset}..{self.log_end_offset}",
            field="offset",
            log_start=self.log_start_offset,
            log_end=self.log_end_offset,
        )

    def try_read(
        self, offset: Offset, size_max: int, *, end_offset: Offset | None = None, at_least_one: bool = True
    ) -> bytes | None:
        """Whole batches from the one that holds `offset` on, below `end_offset` (None: the log's end), of one
        segment, at most `size_max` bytes; `at_least_one`: the first even if larger. b"" where there are none yet.
        None where the page cache lacks them: go by `read`.

        Raises OffsetOutOfRangeError, StorageError, CorruptMessageError.
        """
        try:
            return reading.try_read(self, offset, size_max, end_offset, at_least_one)
        except OSError as e:
            raise self._home.fail(e) from e

    async def read(
        self, offset: Offset, size_max: int, *, end_offset: Offset | None = None, at_least_one: bool = True
    ) -> bytes:
        """As `try_read`, waiting for the disk off the loop where it must."""
        data = self.try_read(offset, size_max, end_offset=end_offset, at_least_one=at_least_one)
        if data is not None:
            return data
        with self.in_use():
            return await reading.read(self, offset, size_max, end_offset, at_least_one)

    async def examine(self, segment: Segment) -> ExaminationResult | None:
        """Read all of `segment`: damage is noted in `damaged_segments`, a wrong index is rebuilt. None where it was
        removed meanwhile. StorageError.
        """
        with self.in_use():
            found = await examine(self, segment)
            if found is not None:
                await self.examined(segment, found)
            return found

    async def examined(self, segment: Segment, found: ExaminationResult) -> None:
        """What the examination of a segment that is still there has found."""
        if not found.damages and segment is not self.segments.active and not segment.transaction_index.checked:
            with suppress(DamagedFileError):  # damage elsewhere: once that is repaired
                await self._repair_transaction_index(segment)
        known = self.damaged_segments.pop(segment, None)
        if found.damages:
            segment.verified.forget()
        for known_intact in found.intact:
            segment.verified.add(*known_intact)
        if found.damages:
            self.damaged_segments[segment] = found
            if known is None or found.damages != known.damages:
                self._home.found_damage(self, found.damages)
        elif found.index_fault:
            if segment is self.segments.active:
                self.roll_now()  # what is appended meanwhile goes to another one
            await rebuild_indexes(segment)
            self._home.rebuilt_index(segment.path(names.INDEX), found.index_fault)

    def check_transactions(self, segment: Segment) -> None:
        """DamagedFileError where the index of aborted transactions is not the one that was closed."""
        index = segment.transaction_index
        expected = self.derived.transaction_sums.get(segment.base_offset)
        if expected is not None and segment is not self.segments.active and index.checksum() != expected:
            raise DamagedFileError(index.file.path, 0, "it does not match its checksum", "it is found again")
        index.checked = True

    async def repair_transaction_indexes(self) -> None:
        """Find the entries of each damaged index of aborted transactions again. DamagedFileError, StorageError."""
        with self.in_use():
            for segment in self.segments.closed():
                if not segment.transaction_index.checked:
                    await self._repair_transaction_index(segment)

    async def _repair_transaction_index(self, segment: Segment) -> None:
        try:
            self.check_transactions(segment)
        except DamagedFileError as error:
            found = await aborted_in(self._fs, self.directory, self.segments, segment)
            if segment not in self.segments:
                return
            if found is None:
                raise
            segment.transaction_index.clear()
            for aborted in found:
                segment.transaction_index.append(aborted)
            await segment.transaction_index.sync()
            self.derived.note_transactions(segment)
            self._home.rebuilt_index(error.path, error.reason)

    def damage_at(self, segment: Segment, offset: Offset) -> SegmentDamage | None:
        """The first damage of `segment` that is not below `offset`."""
        found = self.damaged_segments.get(segment)
        for damaged in () if found is None else found.damages:
            if damaged.end_offset > offset:
                return damaged
        return None

    def unreadable(self, damaged: SegmentDamage) -> DamagedFileError:
        """For whoever wants to read there."""
        return DamagedFileError(
            damaged.path,
            damaged.position,
            f"{damaged.reason}: {self.partition} cannot be read at offset {damaged.begin_offset}",
            f"it is repaired from another replica that is in sync, if there is one ('streamlogctl partition repair"
            f" {self.partition}'); a reader that shall do without these records goes on at offset {damaged.end_offset}",
        )

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """Up to where all transactions are settled: the end for readers of committed records. At most
        `high_watermark`, which must not be below that of an earlier call.
        """
        first = self.producers.first_unstable_offset(high_watermark)
        return high_watermark if first is None else min(high_watermark, max(first, self.log_start_offset))

    def aborted(self, start: Offset, end: Offset) -> list[AbortedTransaction]:
        """The aborted transactions that have offsets in [start, end), by rising first offset. For an `end` at or below
        the last stable offset these are all that there will be. DamagedFileError.
        """
        try:
            return reading.aborted(self, start, end)
        except OSError as e:
            raise self._home.fail(e) from e

    async def offset_for_timestamp(self, timestamp_ms: int) -> reading.FoundOffset | None:
        """The first record whose timestamp is at or above `timestamp_ms`; None where there is none."""
        with self.in_use():
            return await reading.offset_for_timestamp(self, timestamp_ms)

    # -- derived state

    def assign_epoch(self, epoch: LeaderEpoch) -> None:
        """A new leader begins here, before its first batch."""
        self.epochs.assign(epoch, self.log_end_offset)

    async def restore_producers(self) -> None:
        """After a cut: read the producers' state again, from the last snapshot on. Before the next append."""
        while self.derived.producers_stale:
            generation = self.durability.generation
            with self.in_use():
                producers = await restore_producers(self._fs, self.directory, self.segments, self.log_end_offset)
            if generation == self.durability.generation and producers.map_end_offset >= self.log_end_offset:
                self.derived.producers = producers
                self.derived.producers_stale = False

    def close_clean(self) -> None:
        """The last steps of an orderly stop, after which the log is opened without a scan: the owner syncs before
        and after, and marks the clean stop last.
        """
        self.derived.take_snapshot(self.log_end_offset)
        self.segments.active.become_closed()
        self.derived.note_transactions(self.segments.active)

    def release_idle(self) -> None:
        """Close the files that nobody has used for a while. One with unsynced bytes stays open: the kernel tells of a
        failed write only who had the file open at the time.
        """
        for segment in self.segments:
            if segment is not self.segments.active or not self.durability.unsynced_bytes:
                segment.release_if_idle()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Around work on the files that waits in between: the log is not removed under it. An OSError in it takes the
        directory offline.
        """
        self._users += 1
        self._unused.clear()
        try:
            yield
        except OSError as e:
            raise self._home.fail(e) from e
        finally:
            self._users -= 1
            if not self._users:
                self._unused.set()

    async def retire(self) -> None:
        """Before the removal: from now on all that is begun is refused with StorageError, and so is the next step of
        what is under way. Returns when nothing is.
        """
        self.durability.fail(StorageError(f"{self.partition}: the log is being removed", partition=str(self.partition)))
        await self._unused.wait()
        await self.durability.wait_until_settled()

    def close(self) -> None:
        """Close the files; no promise of any kind. Waiters get StorageError."""
        self.durability.fail(StorageError(f"{self.partition}: the log is closed", partition=str(self.partition)))
        for segment in self.segments:
            segment.close()
