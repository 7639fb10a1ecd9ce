"""Compaction of a log directory's logs, one at a time, the filthiest first (SEMANTICS 11).

    [log start ......... first dirty ............ first uncleanable ....... log end]
      cleaned before       -> key map               the active segment, what is not committed and durable,
                                                    what is younger than min.compaction.lag.ms

A cleaning reads the dirty part into the key map (as much as fits), then copies every segment from the start up to
there without overwritten records, and installs the copies (`swap`: the steps, and recovery from a crash). It runs
beside appends and reads: it touches closed segments only, reads off the loop, and processes batches in workers.
Whether the log has changed is checked again in the single step that replaces the segments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from streamlog.errors import (
    CorruptMessageError,
    DamagedFileError,
    InvalidRecordError,
    MessageTooLargeError,
    StorageError,
    UnsupportedCompressionError,
)
from streamlog.model import INT32_MAX, Offset
from streamlog.ports import Clock, FileSystem, Probe, Workers
from streamlog.records import BatchHeader, scan_headers
from streamlog.storage.cleaning.cleaned_transactions import CleanedTransactions
from streamlog.storage.cleaning.compaction import Rules, clean_chunk, map_chunk
from streamlog.storage.cleaning.key_map import KeyMap
from streamlog.storage.cleaning.retention import examine_index
from streamlog.storage.directories.directory import LogDirectory
from streamlog.storage.files import names
from streamlog.storage.log.log import Log
from streamlog.storage.segments.segment import Segment

CHUNK_BYTES: Final = 1 << 20
UNREADABLE: Final = (
    CorruptMessageError,
    DamagedFileError,
    InvalidRecordError,
    MessageTooLargeError,
    UnsupportedCompressionError,
)
FREE_BYTES_MIN: Final = 16 << 20
"""Compaction leaves at least this much free: a full disk goes offline."""
SPACE_WAIT_MS_MAX: Final = 60_000  # for a topic with a longer file.delete.delay.ms other logs do not wait
DEDUPE_BUFFER_BYTES: Final = 128 << 20  # Kafka's log.cleaner.dedupe.buffer.size


class CleaningStats(Struct, frozen=True, kw_only=True):
    """One cleaning of one log."""

    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int
    end_offset: Offset  # cleaned up to here


class Filth(Struct, frozen=True):
    """How much could be cleaned in a log."""

    first_dirty: Offset
    first_uncleanable: Offset
    ratio: float  # dirty bytes of all cleanable bytes
    overdue: bool  # max.compaction.lag.ms has passed for its oldest dirty record


class Cleaner:
    """Owned by the directory's owner, who calls `clean_filthiest` from time to time, never twice at once.

    `bound_of(log)`: the high watermark. Offsets at and above the last stable one are left alone.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: LogDirectory,
        clock: Clock,
        workers: Workers,
        probe: Probe,
        *,
        dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._clock = clock
        self._workers = workers
        self._probe = probe
        self._dedupe_buffer_bytes = dedupe_buffer_bytes
        self._uncleanable: set[Log] = set()  # with a corrupt batch: not cleaned until the restart
        self._short_of_space: set[Log] = set()  # gave up: the others come first
        self._others_are_due = False  # when the cleaning began

    async def clean_filthiest(self, bound_of: Callable[[Log], Offset]) -> CleaningStats | None:
        """Clean the dirtiest log; None where none needs it. StorageError when the disk fails."""
        worst: tuple[bool, bool, float, Log, Filth] | None = None
        faults: list[tuple[Log, DamagedFileError]] = []
        due = 0
        for logs in (self._uncleanable, self._short_of_space):
            logs.intersection_update(self._directory.logs.values())  # drop removed ones
        for log in self._directory.logs.values():
            if (
                not log.config.cleanup_compact
                or log.damage is not None
                or log.damaged_segments
                or log in self._uncleanable
            ):
                continue
            try:
                filth = self.filth(log, bound_of(log))
                is_due = filth.overdue or filth.ratio > log.config.min_cleanable_dirty_ratio
                if not is_due or not self._has_space(log, _copy_bytes_max(log)):
                    continue
            except DamagedFileError as e:
                faults.append((log, e))
                continue
            except OSError as e:
                raise log.owner.fail(e) from e
            due += 1
            rank = (log not in self._short_of_space, filth.overdue, filth.ratio)
            if worst is None or rank > worst[:3]:
                worst = (*rank, log, filth)
        if worst is None or not worst[0]:  # all have had their turn
            self._short_of_space.clear()
        self._others_are_due = due > 1
        done = None if worst is None else await self.clean(*worst[3:])
        for log, fault in faults:
            await self._examine_index(log, fault)
        return done

    async def _examine_index(self, log: Log, fault: DamagedFileError) -> None:
        try:
            await examine_index(log, fault)
        except StorageError:
            self._directory.check()  # as below

    def _has_space(self, log: Log, size: int) -> bool:
        return self._fs.free_bytes(log.directory) >= size + FREE_BYTES_MIN

    def filth(self, log: Log, bound: Offset) -> Filth:
        """Of `log` now. Ratio 0 where nothing is dirty."""
        config, now_ms = log.config, self._clock.wall_ms()
        first_dirty = self._directory.cleaned_until(log)
        # Not above the recovery point: below it a snapshot of the producers is durable. A start that had to read their
        # batches would find only the last of each in a cleaned segment, and take a retry of another for a new batch.
        recovery_point = self._directory.recovery_point(log)
        limit = min(log.last_stable_offset(bound), recovery_point, log.segments.active.base_offset)
        clean_bytes = dirty_bytes = 0
        first_uncleanable, overdue = first_dirty, False
        for index, segment in enumerate(log.segments.closed()):
            end = log.segments.end_of(index, log.log_end_offset)
            if end <= first_dirty:
                clean_bytes += segment.size_bytes
                continue
            newest = segment.max_timestamp.timestamp_ms
            if end > limit or (config.min_compaction_lag_ms and newest > now_ms - config.min_compaction_lag_ms):
                break
            dirty_bytes += segment.size_bytes
            first_uncleanable = end
            overdue = overdue or (newest >= 0 and newest < now_ms - config.max_compaction_lag_ms)
        ratio = dirty_bytes / (clean_bytes + dirty_bytes) if dirty_bytes else 0.0
        return Filth(first_dirty, first_uncleanable, ratio, overdue)

    async def clean(self, log: Log, filth: Filth) -> CleaningStats | None:
        """Clean `log`; None where it changed meanwhile (truncated, removed) or is damaged, and was left unchanged."""
        try:
            with log.in_use():
                return await self._clean(log, filth)
        except UNREADABLE as e:
            if not log.damaged_segments:  # otherwise it is cleaned after its repair
                self._uncleanable.add(log)
            self._probe("cleaning_gave_up", path=log.directory, reason=str(e))
        except StorageError:
            self._directory.check()  # raises if the disk failed; otherwise the log is being removed
        return None

    async def _clean(self, log: Log, filth: Filth) -> CleaningStats | None:
        generation = log.durability.generation  # after a truncation the map names records that are gone
        if not await self._all_sound(log, filth):
            return None
        await log.repair_transaction_indexes()
        key_map = await self._map(log, filth)
        end = key_map.end_offset
        segments = [s for s in log.segments.closed() if s.base_offset < end]
        # The last of them is copied as a whole, above `end` too.
        transactions = CleanedTransactions(log.aborted(log.segments.first.base_offset, filth.first_uncleanable))
        before = after = records_before = records_after = 0
        wait_s = min(log.config.file_delete_delay_ms, SPACE_WAIT_MS_MAX) / 1000 + 1
        space_until_s = self._clock.monotonic() + wait_s
        for group in _groups(segments, log):
            if not self._others_are_due:
                space_until_s = self._clock.monotonic() + wait_s
            done = await self._clean_group(log, group, key_map, transactions, generation, space_until_s)
            if done is None:
                return None
            before += sum(s.size_bytes for s in group)
            after += done[0]
            records_before += done[1]
            records_after += done[2]
        if generation != log.durability.generation:
            return None
        self._directory.was_cleaned(log, end)
        return CleaningStats(
            bytes_before=before,
            bytes_after=after,
            records_before=records_before,
            records_after=records_after,
            end_offset=end,
        )

    async def _all_sound(self, log: Log, filth: Filth) -> bool:
        """Damage must not be copied to a new segment. CorruptMessageError; False: the log has changed."""
        for segment in log.segments.closed():
            if segment.base_offset >= filth.first_uncleanable:
                break
            if segment.verified.covers(0, segment.size_bytes):
                continue
            found = await log.examine(segment)
            if found is None:
                return False
            if found.damages:
                raise CorruptMessageError(str(found.damages[0]))
        return True

    async def _map(self, log: Log, filth: Filth) -> KeyMap:
        key_map = KeyMap(self._dedupe_buffer_bytes, filth.first_dirty)
        segments = log.segments.since(filth.first_dirty)
        transactions = CleanedTransactions(log.aborted(segments[0].base_offset, filth.first_uncleanable))
        for segment in segments:
            if segment.base_offset >= filth.first_uncleanable:
                break
            position, size = 0, CHUNK_BYTES
            while position < segment.size_bytes:
                data = await self._read(log, segment, size, position)
                taken, full = await self._workers.run(map_chunk, data, key_map, filth.first_uncleanable, transactions)
                if full:
                    return key_map
                position, size = position + taken, _next_size(data, taken, size)
        return key_map

    async def _clean_group(
        self,
        log: Log,
        group: list[Segment],
        key_map: KeyMap,
        transactions: CleanedTransactions,
        generation: int,
        space_until_s: float,
    ) -> tuple[int, int, int] | None:
        """Replace adjacent segments by one with what remains of them. Returns (its size, records read, records kept);
        None where the log has changed since `generation`.
        """
        last = log.segments.end_of(log.segments.index_of(group[-1].base_offset), log.log_end_offset) - 1
        rules = Rules(
            key_map, self._clock.wall_ms(), log.config.delete_retention_ms, _producers_last(log), Offset(last)
        )
        if not await self._wait_for_space(log, sum(one.size_bytes for one in group), generation, space_until_s):
            return None
        copy = Segment.create(self._fs, log.directory, group[0].base_offset, log.config, suffix=names.CLEANED)
        read = kept = 0
        try:
            for segment in group:
                counts = await self._copy(log, segment, copy, rules, transactions)
                read, kept = read + counts[0], kept + counts[1]
            for aborted in transactions.take_kept():
                copy.transaction_index.append(aborted)
        except (*UNREADABLE, StorageError):
            copy.close()
            copy.unlink()
            raise
        copy.become_closed()
        await copy.sync()
        if generation != log.durability.generation or not log.are_adjacent(group):
            copy.close()
            copy.unlink()
            return None
        await log.note_gaps_durably()
        if generation != log.durability.generation or not log.are_adjacent(group):
            copy.close()
            copy.unlink()
            return None
        log.replace_segments(group, copy)
        return copy.size_bytes, read, kept

    async def _wait_for_space(self, log: Log, size: int, generation: int, until_s: float) -> bool:
        """For that of the segments replaced before, which are deleted after a delay. False: there is none, or the log
        has changed. StorageError. `until_s`: of all groups together where other logs wait for their cleaning.
        """
        while not self._has_space(log, size):
            if self._clock.monotonic() >= until_s:
                self._short_of_space.add(log)
                reason = "too little free space for another segment"
                self._probe("cleaning_gave_up", path=log.directory, reason=reason)
                return False
            await asyncio.sleep(1)
            log.durability.check()
            if generation != log.durability.generation:
                return False
        return True

    async def _copy(
        self, log: Log, segment: Segment, copy: Segment, rules: Rules, transactions: CleanedTransactions
    ) -> tuple[int, int]:
        """Append to `copy` what remains of `segment`; records (read, kept)."""
        read = kept = 0
        position, size = 0, CHUNK_BYTES
        while position < segment.size_bytes:
            data = await self._read(log, segment, size, position)
            cleaned = await self._workers.run(clean_chunk, data, rules, transactions)
            if cleaned.data:
                batches = list(scan_headers(cleaned.data, 0, len(cleaned.data)))
                copy.append((cleaned.data,), batches, len(cleaned.data))
            read += cleaned.records_read
            kept += cleaned.records_kept
            position, size = position + cleaned.read_bytes, _next_size(data, cleaned.read_bytes, size)
        return read, kept

    async def _read(self, log: Log, segment: Segment, size: int, position: int) -> bytes:
        log.durability.check()
        if segment not in log.segments:  # retention has removed it: its files may be gone
            raise StorageError(f"{log.partition}: a segment was removed while the log was being compacted")
        segment.pin()
        try:
            return await segment.file.read(min(size, segment.size_bytes - position), position)
        finally:
            segment.unpin()


def _next_size(data: bytes, taken: int, size: int) -> int:
    """How much to read next: a whole batch where the last chunk did not contain one."""
    if taken:
        return CHUNK_BYTES
    needed = 12 + int.from_bytes(data[8:12], "big") if len(data) >= 12 else 0
    if needed <= size:
        raise CorruptMessageError("incomplete batch", position=0)
    return needed


def _copy_bytes_max(log: Log) -> int:
    """No group of segments is larger."""
    closed = log.segments.closed()
    return min(log.size_bytes, max([log.config.segment_bytes, *(segment.size_bytes for segment in closed)]))


def _producers_last(log: Log) -> Callable[[BatchHeader], bool]:
    """Whether a producer's state depends on the batch: it has the last sequence, or, as a marker, the epoch."""

    def is_last(header: BatchHeader) -> bool:
        producer = log.producers.get(header.producer_id)
        if producer is None:
            return False
        if producer.batches:
            return producer.last_offset == header.last_offset
        return header.is_control and header.producer_epoch == producer.epoch

    return is_last


def _groups(segments: list[Segment], log: Log) -> list[list[Segment]]:
    """Adjacent segments that fit in one, by size, index and offsets."""
    groups: list[list[Segment]] = []
    size = 0
    for segment in segments:
        end = log.segments.end_of(log.segments.index_of(segment.base_offset), log.log_end_offset)
        fits = (
            groups
            and size + segment.size_bytes <= log.config.segment_bytes
            and end - groups[-1][0].base_offset <= INT32_MAX
            and sum(s.offset_index.file.count for s in [*groups[-1], segment]) < log.config.segment_index_bytes // 12
        )
        if fits:
            groups[-1].append(segment)
            size += segment.size_bytes
        else:
            groups.append([segment])
            size = segment.size_bytes
    return groups
