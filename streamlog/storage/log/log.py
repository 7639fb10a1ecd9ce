"""One partition's log: appending, truncating, reading. The order of its offsets:

    log_start <= ... <= log_end,   synced_end <= log_end,   ackable_end = synced_end, or log_end where nothing is synced

Appending is synchronous: bytes to the page cache, facts in memory, a mark for group commit. It promises nothing:
records may be acknowledged and replicated from once they are below `ackable_end`. Batches are opaque: the leader
rewrites the 16 bytes before the magic (and, with LogAppendTime, timestamp and CRC), a follower writes what it received.

Three things are derived from the batches: the table of leader epochs, the state of producers, the indexes.
`derived_state` keeps them, and makes them durable before the recovery point passes their batches.

A log that was found damaged in its middle at the start (`damage`) serves what is intact before it and refuses appends
until `discard_damage`, which the replica calls once it knows that the leader has the records. Damage found later is
noted for each segment (`damaged_segments`) and repaired while the log stays in use.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamlog.errors import (
    CorruptMessageError,
    FencedLeaderEpochError,
    InvalidRecordError,
    InvariantError,
    MessageTooLargeError,
    StorageError,
)
from streamlog.model import INT32_MAX, NO_TIMESTAMP, Appended, LeaderEpoch, Offset
from streamlog.ports import Buffer
from streamlog.records import BatchHeader, TimestampType, check_crc, scan_headers
from streamlog.records.header import CONTROL_BIT, LOG_OVERHEAD
from streamlog.storage.files import names
from streamlog.storage.log import damage, reading, segment_changes, time_lookup, truncation
from streamlog.storage.log.damaged_ranges import ExaminationResult
from streamlog.storage.log.stamping import Batches, split_by_space, stamped, with_append_time
from streamlog.storage.log.state import LogState
from streamlog.storage.log_config import NEVER
from streamlog.storage.producers.markers import marker_in
from streamlog.storage.segments.segment import Segment
from streamlog.storage.segments.transaction_index import AbortedTransaction


class Log(LogState):
    """Built by `open_log.open_log`. Lifecycle: open, (appends, reads, truncations)*, retire, close."""

    __slots__ = ()

    # -- appending

    def append_as_leader(self, buffer: Buffer, batches: Batches, leader_epoch: LeaderEpoch, now_ms: int) -> Appended:
        """Append what `records.validate` has found in `buffer`, stamped with offsets and epoch.

        A coordinator's marker comes alone. For one that repeats another the log's end is returned: the first one is
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

    def note_gaps(self) -> None:
        """Before the first gap: a later start must not take it for damage. Durable with the next sync. OSError."""
        if not self.gaps_noted:
            self.fs.open(names.join(self.directory, names.GAPS), create=True).close()
            self.gaps_noted = True
            self.durability.names_changed()

    async def note_gaps_durably(self) -> None:
        """As `note_gaps`, before files are renamed. OSError."""
        if not self.gaps_noted:
            self.note_gaps()
            await self.fs.sync_dir(self.directory)

    def note_complete(self) -> None:
        """It leads, or is in sync again: it has all that was committed. A power cut may undo this. StorageError."""
        if self.incomplete:
            try:
                self.fs.unlink(names.join(self.directory, names.INCOMPLETE))
            except OSError as e:
                raise self.owner.fail(e) from e
            self.incomplete = False
            self.durability.names_changed()

    async def note_incomplete(self) -> None:
        """Its end proves nothing (`recovery`). Durable when this returns. StorageError."""
        await truncation.note_incomplete(self)

    def append_as_follower(self, buffer: Buffer, epoch_max: int = INT32_MAX) -> Appended:
        """Append whole batches as the leader sent them. Offsets are contiguous, except for gaps in a compacted log
        (I20), and never fall; CRCs are checked. `epoch_max`: the leader's, which no batch of its log is above; the CRC
        does not cover a batch's.

        Raises CorruptMessageError where the bytes are not such batches, StorageError; nothing is written then.
        """
        self._check_writable(LeaderEpoch(INT32_MAX))
        batches = list(scan_headers(buffer, 0, len(buffer)))
        first, expected, epoch = self.log_end_offset, self.log_end_offset, self.last_record_epoch
        end, jumps = 0, False
        for position, header in batches:
            check_crc(buffer, position, header)
            if (header.base_offset != expected or header.last_offset_delta < 0) and not self._joins(header, expected):
                reason = f"batch {header.base_offset}..{header.last_offset} where {expected} was expected"
                raise CorruptMessageError(reason, position=position)
            if header.attributes & CONTROL_BIT and header.producer_id >= 0:  # a marker in the log must be readable
                marker_in(memoryview(buffer)[position : position + header.size_bytes], header)
            jumps = jumps or header.base_offset > expected
            if header.leader_epoch < epoch:
                raise CorruptMessageError(f"epoch {header.leader_epoch} after {epoch}", position=position)
            if header.leader_epoch > epoch_max:
                reason = f"epoch {header.leader_epoch} from the leader of epoch {epoch_max}"
                raise CorruptMessageError(reason, position=position)
            expected, epoch = Offset(header.base_offset + header.last_offset_delta + 1), header.leader_epoch
            end = position + LOG_OVERHEAD + header.length
        if not batches or end != len(buffer):
            raise CorruptMessageError("the last batch is incomplete", position=end)
        self.durability.check_unsynced(end, self.config.unsynced_limit)
        if self.derived.producers_stale:  # restoring failed: a batch below the truncation is damaged
            raise CorruptMessageError(f"{self.partition}: the state of producers was not restored after a truncation")
        if batches[0][1].leader_epoch < self.derived.epochs.latest:
            # A leadership of this replica that wrote nothing left an epoch that the leader's history lacks.
            self.epochs.truncate_end(first)
        if jumps:
            try:
                self.note_gaps()
            except OSError as e:
                raise self.owner.fail(e) from e
        space = self.config.segment_bytes - self.segments.active.size_bytes
        if end <= space:
            self._write((buffer,), batches, end, expected)
        else:
            self._write_by_segment(buffer, batches, space)
        return Appended(first, expected, NO_TIMESTAMP, end, (buffer,))

    def _write_by_segment(self, buffer: Buffer, batches: Batches, space: int) -> None:
        """What does not fit into the `space` of the active segment goes into further ones."""
        for group in split_by_space(batches, space, self.config.segment_bytes):
            begin, (last_position, last) = group[0][0], group[-1]
            stop = last_position + last.size_bytes
            moved = [(position - begin, header) for position, header in group]
            self._write((memoryview(buffer)[begin:stop],), moved, stop - begin, last.next_offset)

    def _joins(self, header: BatchHeader, expected: Offset) -> bool:
        """Whether a batch from a leader may follow, `expected` being the log's end."""
        gap = header.base_offset - expected
        if gap and not (gap > 0 and (self.has_gaps or self.leader_has_gaps)):
            return False
        return header.last_offset_delta >= 0 and header.last_offset - expected <= INT32_MAX

    def _write(self, buffers: Sequence[Buffer], batches: Batches, size: int, end_offset: Offset) -> None:
        """The bytes, then the facts. All of it goes to one segment."""
        active = self.segments.active
        active.config = self.config  # which may have changed
        try:
            if active.is_full_for(size, Offset(end_offset - 1), batches[0][1].max_timestamp):
                active = self.roll()
            start = active.append(buffers, batches, size)
            for position, header in batches:
                self.derived.follow(header, active, start + position)
        except OSError as e:
            raise self.owner.fail(e) from e
        active.appended_s = self.owner.monotonic()
        self.log_end_offset = end_offset
        durability = self.durability
        durability.wrote(active, size, end_offset)
        if self.config.syncs_each_append or end_offset - durability.synced_end >= self.config.flush_messages:
            durability.request()
        elif self.config.flush_ms < NEVER:
            durability.request_within(self.config.flush_ms / 1000)

    def _check_writable(self, leader_epoch: LeaderEpoch) -> None:
        self.durability.check()
        if self.damage is not None:
            raise self.damage
        latest = self.derived.epochs.latest
        if leader_epoch < latest:
            raise FencedLeaderEpochError(
                f"{self.partition}: stale leader epoch {leader_epoch}; current is {latest}",
                field="leader_epoch",
                limit=latest,
            )

    def _check_size(self, size: int) -> None:
        if size > self.config.segment_bytes:
            raise MessageTooLargeError(
                f"{size} bytes do not fit in a segment of {self.config.segment_bytes}",
                field="segment.bytes",
                limit=self.config.segment_bytes,
            )
        self.durability.check_unsynced(size, self.config.unsynced_limit)

    def _check_producers(self, buffer: Buffer, batches: Batches) -> Appended | None:
        """Check epoch and sequence; the result of the first append where the batch is a retry."""
        if self.derived.producers_stale:
            raise InvariantError(f"{self.partition}: append as leader before the producers' state was restored")
        if len(batches) > 1:
            if any(header.producer_id >= 0 for _, header in batches):
                raise InvalidRecordError("an idempotent producer sends one batch at a time for a partition")
            return None
        position, header = batches[0]
        if header.producer_id < 0:
            return None
        if header.attributes & CONTROL_BIT:
            return self._check_marker(memoryview(buffer)[position:], header)
        seen = self.derived.producers.check(header)
        if seen is None:
            return None
        next_offset = Offset(seen.last_offset + 1)
        return Appended(seen.first_offset, next_offset, NO_TIMESTAMP, 0, (), duplicate=True)

    def _check_marker(self, batch: Buffer, header: BatchHeader) -> Appended | None:
        marker = marker_in(batch, header)
        if marker is None:
            raise InvalidRecordError("the control batch of a producer is not a transaction marker")
        if not self.producers.check_marker(header, marker):
            return None
        end = self.log_end_offset
        return Appended(end, end, NO_TIMESTAMP, 0, (), duplicate=True)

    # -- segments

    def roll_if_due(self, now_ms: int, now_s: float) -> None:
        """`segment.ms` for a log without appends for that time: so that retention can reach its last records. Old
        timestamps alone, as in an import, close no segment that is being written.
        """
        active = self.segments.active
        active.config = self.config
        appended_s = active.appended_s
        if appended_s is not None and (now_s - appended_s) * 1000 <= self.config.segment_ms:
            return
        if active.size_bytes and active.is_full_for(0, Offset(self.log_end_offset - 1), now_ms):
            self.roll_now()

    def advance_log_start(self, offset: Offset) -> None:
        """Readers get no records below `offset` any more; retention deletes their segments later (delete-records).

        Raises OffsetOutOfRangeError beyond the log's end. The caller has bounded it by the high watermark.
        """
        segment_changes.advance_log_start(self, offset)

    def remove_oldest(self, count: int) -> None:
        """Delete the oldest `count` segments (retention): rename now, remove after the delay. The resulting log start
        must be in the checkpoint (`LogOwner.save_log_starts`), otherwise the next start takes them for lost ones.
        """
        segment_changes.remove_oldest(self, count)

    def are_adjacent(self, segments: list[Segment]) -> bool:
        """Whether these are still closed segments of this log, side by side."""
        closed = self.segments.closed()
        return segments[0] in closed and closed[(i := closed.index(segments[0])) : i + len(segments)] == segments

    def replace_segments(self, old: list[Segment], copy: Segment, further: Sequence[Segment] = ()) -> None:
        """Put a compacted (or repaired) copy, written and synced under the suffix `.cleaned`, in the place of `old`
        (see `swap`). `further`: segments with other base offsets that follow it. They are installed first, so that
        after a crash the log has no hole.
        """
        segment_changes.replace_segments(self, old, copy, further)

    # -- truncating

    async def truncate(self, offset: Offset) -> None:
        """Remove everything at and above `offset` (a batch that contains it is removed as a whole), and restore the
        producers' state.
        """
        await truncation.truncate(self, offset)

    async def restart_at(self, offset: Offset) -> None:
        """Remove everything; the next record gets `offset`."""
        await truncation.restart_at(self, offset)

    async def discard_damage(self) -> None:
        """Permanently truncate the log at the damage: the records from there on will be fetched from the leader."""
        await truncation.discard_damage(self)

    async def restore_producers(self) -> None:
        """After a truncation, before the next append: restore the producers' state from the last snapshot on.
        CorruptMessageError: a batch is damaged, and its segment has been examined; StorageError.
        """
        await truncation.restore_producers(self)

    # -- reading

    def try_read(
        self, offset: Offset, size_max: int, *, end_offset: Offset | None = None, at_least_one: bool = True
    ) -> bytes | None:
        """Whole batches of one segment, from the one that contains `offset` on, below `end_offset` (None: the log's
        end), at most `size_max` bytes; with `at_least_one`, the first even if it is larger. b"" where there are none
        yet. None where they are not in the page cache: use `read`.

        Raises OffsetOutOfRangeError, StorageError, CorruptMessageError.
        """
        try:
            return reading.try_read(self, offset, size_max, end_offset, at_least_one)
        except OSError as e:
            raise self.owner.fail(e) from e

    async def read(
        self, offset: Offset, size_max: int, *, end_offset: Offset | None = None, at_least_one: bool = True
    ) -> bytes:
        """As `try_read`, waiting for the disk off the loop where it must."""
        data = self.try_read(offset, size_max, end_offset=end_offset, at_least_one=at_least_one)
        if data is not None:
            return data
        with self.in_use():
            return await reading.read(self, offset, size_max, end_offset, at_least_one)

    def try_measure(self, offset: Offset, size_max: int, *, end_offset: Offset | None = None) -> int | None:
        """How many bytes `try_read` would return, without reading them. None where it takes a read to know. Raises
        OffsetOutOfRangeError, StorageError.
        """
        try:
            return reading.try_measure(self, offset, size_max, end_offset)
        except OSError as e:
            raise self.owner.fail(e) from e

    def aborted(self, start: Offset, end: Offset) -> list[AbortedTransaction]:
        """The aborted transactions that have offsets in [start, end), by rising first offset. For an `end` at or below
        the last stable offset the list is final. DamagedFileError.
        """
        try:
            return reading.aborted(self, start, end)
        except OSError as e:
            raise self.owner.fail(e) from e

    async def offset_for_timestamp(self, timestamp_ms: int) -> time_lookup.FoundOffset | None:
        """The first record whose timestamp is at or above `timestamp_ms`; None where there is none."""
        with self.in_use():
            return await time_lookup.offset_for_timestamp(self, timestamp_ms)

    async def largest_timestamp(self) -> int:
        """Of the records at or above the log start; -1: none has one."""
        with self.in_use():
            return await time_lookup.largest_timestamp(self)

    # -- damage

    async def examine(self, segment: Segment) -> ExaminationResult | None:
        """Read all of `segment`: damage is noted in `damaged_segments`, a wrong index is rebuilt. None where it was
        removed meanwhile. StorageError.
        """
        return await damage.examine_segment(self, segment)

    async def is_damaged_since(self, offset: Offset) -> bool:
        """Whether batches of offsets from `offset` on are damaged, or in doubt: their segments are examined.
        StorageError.
        """
        for segment in self.segments.since(offset):
            if segment in self.segments:
                await self.examine(segment)
        found = [self.damaged_segments[one] for one in self.segments.since(offset) if one in self.damaged_segments]
        return any(one.end_offset > offset for examined in found for one in examined.damages)

    async def repair_transaction_indexes(self) -> None:
        """Recompute the entries of each damaged index of aborted transactions. DamagedFileError, StorageError."""
        await damage.repair_transaction_indexes(self)

    # -- derived state, closing

    def assign_epoch(self, epoch: LeaderEpoch) -> None:
        """A new leader starts here, before its first batch."""
        self.epochs.assign(epoch, self.log_end_offset)

    def close_clean(self) -> None:
        """The last steps of a clean stop, after which the log is opened without a scan: the owner syncs before and
        after, and writes the clean-stop mark last.
        """
        self.derived.take_snapshot(self.log_end_offset)
        self.segments.active.become_closed()
        self.derived.note_transactions(self.segments.active)

    def release_idle(self) -> None:
        """Close the files that have not been used for a while. One with unsynced bytes stays open: the kernel reports
        a failed write only to file descriptors that were open at the time.
        """
        for segment in self.segments:
            if segment is not self.segments.active or not self.durability.unsynced_bytes:
                segment.release_if_idle()

    async def retire(self, reason: str = "the log is being removed") -> None:
        """Before the removal: new operations, and the next steps of running ones, fail with StorageError. Returns
        when none is running.
        """
        self.durability.fail(StorageError(f"{self.partition}: {reason}", partition=str(self.partition)))
        await self.wait_until_unused()
        await self.durability.wait_until_settled()

    def close(self) -> None:
        """Close the files; nothing is synced. Waiters get StorageError."""
        self.durability.fail(StorageError(f"{self.partition}: the log is closed", partition=str(self.partition)))
        for segment in self.segments:
            segment.close()
