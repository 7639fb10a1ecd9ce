"""The scan of a log after an unclean stop: which of its batches are kept.

Segments that end at or below the recovery point are trusted: they, their indexes, epochs and snapshots were durable
when the recovery point was written. From the segment that contains it on (and the last one in any case), every batch
is read, its CRC checked, offsets and epochs must not fall, and indexes, epochs and producers are rebuilt. Producer
snapshots above the start of the scan are deleted: they may cover batches that a power cut has removed.

Offsets are contiguous (I20), unless this log or the one that it was copied from is or was compacted, which a file in
its directory records (`names.GAPS`). Where there may be gaps, the tail is compared with the leader's when the replica
follows (`replication.joining`).

The first corrupt batch ends the scan. It is one of two things:

    a torn tail   bytes that no sync had covered at the power cut: truncated, with all that follows, and reported.
                  Nothing acknowledged is in it.
    damage        bytes that had been synced: kept, reported with file and position, never truncated here. The log
                  opens with `damage` set; its replica repairs it from the leader.

It is damage where the recovery point is above it, and where intact batches of this log follow at a distance that
unsynced bytes cannot reach (`unsynced_bytes_max`, a limit on appends). That limit holds with flush.messages=1 only. The
topic's settings may not be known yet at this point: where it turns out to have another value, the replica has the log
truncated there after all. Otherwise the two look alike and are taken for a torn tail: a node that stopped uncleanly has
left the ISR, so it fetches again what it truncates. Until it has, the log is *incomplete*, and a file in its directory
says so: where no replica is in sync, its end proves nothing (`metadata.partitions.replica_states`).

What was read is rewritten and synced before it counts: kill -9 leaves dirty pages that a later power cut would lose,
and pages whose sync failed are marked clean by the kernel, so that another sync of them does nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from crc32c import crc32c
from msgspec import Struct

from streamlog.errors import CorruptMessageError, DamagedFileError
from streamlog.model import INT32_MAX, LeaderEpoch, Offset
from streamlog.ports import File, FileSystem, Probe
from streamlog.records import BatchHeader, read_header
from streamlog.records.header import CRC_START, HEADER_SIZE, MAGIC, MAGIC_POSITION
from streamlog.storage.files import names
from streamlog.storage.files.checkpoints import EpochEntry
from streamlog.storage.log.derived_state import follow_control
from streamlog.storage.log.epochs import LeaderEpochs
from streamlog.storage.log_config import LogConfig
from streamlog.storage.producers.producer_states import ProducerStates
from streamlog.storage.producers.snapshot_files import drop_snapshots_above, save_snapshot
from streamlog.storage.segments.batch_checks import epoch_in
from streamlog.storage.segments.header_scan import Scanned, scan_file
from streamlog.storage.segments.segment import Segment
from streamlog.storage.segments.verified import Verified

SEARCH_BYTES: Final = 1 << 20
REMEDY: Final = "the records from here on are fetched again from the partition's leader"


class Recovered(Struct):
    """The result of the scan. `segments` are those that remain, scanned or not."""

    segments: list[Segment]
    end_offset: Offset
    damage: DamagedFileError | None = None
    torn_unless_synced: bool = False
    cut_bytes: int = 0


class Recovery:
    """One unclean log. Construct, `run`, use the result; the objects passed in are changed by it."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        config: LogConfig,
        probe: Probe,
        *,
        segments: list[Segment],
        first: int,
        recovery_point: Offset,
        epochs: LeaderEpochs,
        producers: ProducerStates,
        table: Sequence[EpochEntry],
        may_have_gaps: bool,
        gaps_allowed: bool,
    ) -> None:
        """`segments[first:]` are scanned; `epochs` and `producers` are the state before them. `table`: the epochs as
        stored on disk, valid below the recovery point.

        `may_have_gaps`: offsets may be missing between batches, because the log was compacted.

        `gaps_allowed`: offsets may be missing between segments. Kafka's compaction leaves such logs, ours does not:
        here a gap means that a power cut removed the end of a segment and kept the next one's name.
        """
        self._fs = fs
        self._directory = directory
        self._config = config
        self._probe = probe
        self._segments = segments
        self._first = first
        self._recovery_point = recovery_point
        self._epochs = epochs
        self._producers = producers
        self._table = table
        self._may_have_gaps = may_have_gaps
        self._gaps_allowed = gaps_allowed
        self._expected = segments[first].base_offset
        self._epoch = epochs.latest
        self._is_at_first = first == 0 and recovery_point < segments[0].base_offset
        self._unsure: dict[Segment, int] = {}  # position from which on a segment may not have been synced
        self.producers_stale = False

    async def run(self) -> Recovered:
        drop_snapshots_above(self._fs, self._directory, self._expected)
        result = Recovered(self._segments, self._expected)
        for index in range(self._first, len(self._segments)):
            segment = self._segments[index]
            if segment.base_offset > self._expected and self._gaps_allowed:
                self._expected = segment.base_offset
            if segment.base_offset != self._expected:
                fault = CorruptMessageError(
                    f"the segment begins at {segment.base_offset}, the one before ends at {self._expected}",
                    path=segment.path(names.LOG),
                    position=0,
                )
                await self._end_at(index - 1, fault, result)
                break
            if index > self._first:
                save_snapshot(self._fs, self._directory, self._producers, self._expected)
            with segment.rebuilding():
                fault_here = await self._scan(segment)
            if fault_here is not None:
                await self._end_at(index, fault_here, result)
                break
        result.end_offset = self._expected
        if result.damage is None and self._expected < self._recovery_point:
            last = result.segments[-1]
            reason = f"the log ends at {self._expected}, but was durable up to {self._recovery_point}"
            result.damage = DamagedFileError(last.path(names.LOG), last.size_bytes, reason, REMEDY)
            self._probe("log_damaged", path=last.path(names.LOG), position=last.size_bytes, reason=reason)
        for segment in result.segments[self._first : -1]:
            segment.become_closed()
        await self._rewrite(result.segments[self._first :])
        for segment in result.segments[self._first :]:
            await segment.sync()
        await self._fs.sync_dir(self._directory)
        return result

    async def _scan(self, segment: Segment) -> CorruptMessageError | None:
        """Rebuild one segment from its batches. Returns what is wrong with the first corrupt one, if any is.

        Offset and epoch are not covered by the CRC. A batch whose offset jumps, followed by one that continues at the
        expected offset, is itself the corrupt one.
        """
        file_size = segment.file.size()
        segment.size_bytes = 0
        segment.verified = Verified(0)  # from here on what this scan finds intact
        segment.reset_indexes(preallocate=False)
        segment.transaction_index.clear()
        jump: tuple[int, Offset] | None = None  # last batch after a gap: its position, the expected offset
        try:
            async for batches in scan_file(segment.file, 0, file_size, check_crc=True):
                if self._is_at_first:
                    self._is_at_first = False
                    self._check_table(batches[0][1])
                self._note_unsure(segment, batches)
                for position, header in batches[self._follow_plain(segment, batches) :]:
                    if jump is not None and jump[1] <= header.base_offset < self._expected:
                        return await self._step_back(segment, *jump)
                    self._check(segment, position, header)
                    if header.base_offset > self._expected:
                        jump = (position, self._expected)
                    self._follow(segment, position, header)
        except CorruptMessageError as e:
            return e
        return None

    def _check_table(self, first: BatchHeader) -> None:
        """Forget a table of another log. One that was restarted (`Log.restart_at`) has the table of the log before it
        on disk until the next checkpoint, which also raises the recovery point. By that table, the records that were
        appended since could be of an older epoch than those before them, and would be taken for corrupt.
        """
        if first.base_offset == self._expected and first.leader_epoch < self._epochs.latest:
            self._epochs.clear()
            self._epoch = self._epochs.latest

    def _note_unsure(self, segment: Segment, batches: list[Scanned]) -> None:
        """Looks at each batch: the offset of a torn one proves nothing about those before it."""
        if segment not in self._unsure:
            for position, header in batches:
                if header.next_offset > self._recovery_point:
                    self._unsure[segment] = position
                    return

    async def _rewrite(self, segments: list[Segment]) -> None:
        """What may be unsynced: at most `unsynced_bytes_max`, since nothing is appended after a failed sync."""
        left = self._config.unsynced_bytes_max if self._config.syncs_each_append else INT32_MAX * len(segments)
        for segment in reversed(segments):
            end = segment.size_bytes
            position = max(self._unsure.get(segment, end), end - left)
            while position < end:
                data = await segment.file.read(min(SEARCH_BYTES, end - position), position)
                segment.file.pwritev([data], position)
                position += len(data)
            left = max(0, left - end)

    def _follow_plain(self, segment: Segment, batches: list[Scanned]) -> int:
        """Apply the first batches of a chunk while they have no gap, no new epoch and no producer; returns their
        number. Most batches are such, so the speed of recovery depends on this.
        """
        expected, epoch, count = self._expected, self._epoch, 0
        for _, header in batches:
            delta = header.last_offset_delta
            plain = header.base_offset == expected and header.leader_epoch == epoch and header.producer_id < 0
            if not plain or delta < 0 or expected + delta - segment.base_offset > INT32_MAX:
                break
            expected = Offset(expected + delta + 1)
            count += 1
        if count:
            segment.note_all(batches[:count])
            last = batches[count - 1]
            segment.size_bytes = last.position + last.header.size_bytes
            self._expected = self._producers.map_end_offset = expected
        return count

    def _check(self, segment: Segment, position: int, header: BatchHeader) -> None:
        reason = ""
        if header.base_offset < self._expected or header.last_offset_delta < 0:
            reason = f"offset {header.base_offset} where {self._expected} was expected"
        elif header.base_offset > self._expected and not self._may_have_gaps:
            reason = (
                f"offset {header.base_offset} where {self._expected} was expected, in a log that was never compacted"
            )
        elif header.last_offset - segment.base_offset > INT32_MAX:
            reason = f"offset {header.base_offset} in a segment that begins at {segment.base_offset}"
        elif header.leader_epoch < self._epoch:
            reason = f"leader epoch {header.leader_epoch} after {self._epoch}"
        elif self._differs_from_table(header):
            by_table = epoch_in(self._table, header.base_offset)
            reason = f"leader epoch {header.leader_epoch}, but the log's table says {by_table}"
        if reason:
            raise CorruptMessageError(reason, path=segment.file.path, position=position)

    def _differs_from_table(self, header: BatchHeader) -> bool:
        """Below the recovery point the table is durable: its entries were synced before the point passed them."""
        if not self._table or not self._table[0].start_offset <= header.base_offset:
            return False
        if header.next_offset > self._recovery_point:
            return False
        return header.leader_epoch != epoch_in(self._table, header.base_offset)

    def _follow(self, segment: Segment, position: int, header: BatchHeader) -> None:
        if header.leader_epoch > self._epoch:
            self._epoch = LeaderEpoch(header.leader_epoch)
            self._epochs.assign(self._epoch, header.base_offset)
        segment.note(position, header)
        segment.size_bytes = position + header.size_bytes
        if header.is_control:
            follow_control(self._producers, header, segment, position)
        else:
            self._producers.update(header)
        self._expected = header.next_offset

    async def _step_back(self, segment: Segment, position: int, expected: Offset) -> CorruptMessageError:
        """The log ends before the batch at `position`, which has been applied already."""
        wrong = self._expected
        segment.reset_indexes(preallocate=False)
        async for batches in scan_file(segment.file, 0, position, check_crc=False):
            for at, header in batches:
                segment.note(at, header)
        segment.size_bytes = position
        segment.transaction_index.truncate(expected)
        self._expected = expected
        self._epochs.truncate_end(expected)
        self._epoch = self._epochs.latest
        self.producers_stale = True
        reason = f"its offsets reach {wrong}, the next batch goes on at {expected} or soon after"
        return CorruptMessageError(reason, path=segment.file.path, position=position)

    async def _end_at(self, index: int, fault: CorruptMessageError, result: Recovered) -> None:
        """The log ends in segment `index`: by damage, which keeps all files, or by a torn tail, which is truncated."""
        segment = self._segments[index]
        later = self._segments[index + 1 :]
        result.segments = self._segments[: index + 1]
        rest = segment.file.size() - segment.size_bytes
        was_synced = self._expected < self._recovery_point
        if was_synced or await self._intact_beyond(segment, later):
            result.torn_unless_synced = not was_synced
            result.damage = DamagedFileError(segment.path(names.LOG), segment.size_bytes, fault.reason, REMEDY)
            self._probe("log_damaged", path=segment.path(names.LOG), position=segment.size_bytes, reason=fault.reason)
            return
        result.cut_bytes = rest + sum(s.file.size() for s in later)
        self._fs.open(names.join(self._directory, names.INCOMPLETE), create=True).close()
        await self._fs.sync_dir(self._directory)  # before anything is cut
        segment.file.truncate(segment.size_bytes)
        for removed in later:
            removed.close()
            removed.unlink()
        self._probe(
            "torn_tail_cut",
            path=segment.path(names.LOG),
            position=segment.size_bytes,
            cut_bytes=result.cut_bytes,
            reason=fault.reason,
        )

    async def _intact_beyond(self, segment: Segment, later: list[Segment]) -> bool:
        """Whether batches of this log are further from its intact end than unsynced bytes can reach."""
        if not self._config.syncs_each_append:
            return False
        reach = self._config.unsynced_bytes_max
        begin = segment.size_bytes + reach
        for candidate in [segment, *later]:
            size = candidate.file.size()
            if begin < size and await _find_intact_batch(candidate.file, max(0, begin), size, self._expected):
                return True
            begin -= size
        return False


_LENGTH = struct.Struct(">i")


async def _find_intact_batch(file: File, begin: int, end: int, offset_min: Offset) -> bool:
    """Whether a batch with a right CRC and an offset at or above `offset_min` begins anywhere in [begin, end)."""
    position = begin
    while position < end:
        data = await file.read(min(SEARCH_BYTES + HEADER_SIZE, end - position), position)
        at = data.find(MAGIC, MAGIC_POSITION)
        while 0 <= at <= SEARCH_BYTES + MAGIC_POSITION:
            start = at - MAGIC_POSITION
            if start + HEADER_SIZE <= len(data) and await _is_intact(file, data, start, position, end, offset_min):
                return True
            at = data.find(MAGIC, at + 1)
        position += SEARCH_BYTES
    return False


async def _is_intact(file: File, data: bytes, start: int, position: int, end: int, offset_min: Offset) -> bool:
    header = read_header(data, start)
    plausible = (
        offset_min <= header.base_offset < offset_min + 2**32
        and HEADER_SIZE <= header.size_bytes <= end - position - start
        and header.last_offset_delta >= 0
        and header.record_count >= 0
    )
    if not plausible:
        return False
    batch = await file.read(header.size_bytes, position + start)
    return crc32c(memoryview(batch)[CRC_START:]) == header.crc
