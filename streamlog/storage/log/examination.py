"""Reading a whole segment to find its intact and its corrupt ranges: after a read that met a corrupt batch, by the
scrubber, and by `partition repair --dry-run`.

    batch by batch (`segments.batch_checks`) --corrupt--> the next intact batch: where the corrupt one ends by its
                                                          length, or at a later index entry, or none in this segment
    all batches intact, an index entry wrong or missing > the indexes are rebuilt: they have no checksum
    a leader epoch that only the log's table contradicts> in doubt: another replica shows which of the two is wrong

Missing offsets are damage too in a log that has never been compacted: before a batch, or at the end of a segment (the
file was truncated, or the next one is missing). The CRC does not cover a base offset, so that of the first batch
behind missing offsets, or behind a corrupt batch, is in doubt: it alone shows how many offsets are missing. An entry of
the offset index for this batch, or for one that is contiguous with it, confirms it. Where the next batch, or the end of
the segment, is not contiguous with those that are not confirmed, the offsets of all of them are in doubt.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from msgspec.structs import replace

from streamlog.errors import CorruptMessageError, DamagedFileError
from streamlog.model import NO_LEADER_EPOCH, NO_TIMESTAMP, Offset
from streamlog.records import BatchHeader, read_header
from streamlog.records.header import HEADER_SIZE, LOG_OVERHEAD, MAGIC
from streamlog.storage.files import names
from streamlog.storage.log.damaged_ranges import ExaminationResult, SegmentDamage
from streamlog.storage.log.state import LogState
from streamlog.storage.segments.batch_checks import (
    BatchContext,
    IntactBatches,
    epoch_doubt,
    epoch_in,
    intact_prefix,
)
from streamlog.storage.segments.segment import Segment
from streamlog.storage.segments.verified import VerifiedRange

CHUNK_BYTES: Final = 1 << 20


async def examine(
    log: LogState, segment: Segment, *, pace: Callable[[int], Awaitable[None]] | None = None
) -> ExaminationResult | None:
    """All of `segment`; None where the log was truncated, or the segment replaced, meanwhile. `pace` is awaited after
    each read with its size. OSError, StorageError.
    """
    generation = log.durability.generation
    segment.pin()
    try:
        found = await _Examination(log, segment, pace).run()
    finally:
        segment.unpin()
    if generation != log.durability.generation or segment not in log.segments:
        return None
    return found


class _Examination:
    def __init__(self, log: LogState, segment: Segment, pace: Callable[[int], Awaitable[None]] | None) -> None:
        index = log.segments.index_of(segment.base_offset)
        self._log = log
        self._segment = segment
        self._pace = pace
        self._size = segment.size_bytes
        self._bound = log.segments.end_of(index, log.log_end_offset)
        self._damages: list[SegmentDamage] = []
        self._intact: list[VerifiedRange] = []
        # Position and base offset of the first batch behind missing offsets or a corrupt batch, while all since are
        # contiguous with it and none is in the offset index.
        self._unconfirmed: tuple[int, Offset] | None = None
        self._places: dict[int, BatchHeader] = {}  # of the batches that the offset index may name
        self._times: dict[Offset, int] = {}  # in the time index, of batches that were not found yet
        self._is_closed = segment is not log.segments.active
        self._last_position = 0
        self._max_timestamp_ms = NO_TIMESTAMP
        self._read_bytes = 0
        self._entries: dict[int, Offset] = {}
        self._index_fault = ""

    async def run(self) -> ExaminationResult:
        segment = self._segment
        try:
            self._entries = {entry.position: entry.offset for entry in segment.offset_index.entries()}
            self._times = {entry.offset: entry.timestamp_ms for entry in segment.time_index.entries()}
        except DamagedFileError as e:
            self._index_fault = str(e)
        position, expected, epoch = 0, segment.base_offset, NO_LEADER_EPOCH
        size = CHUNK_BYTES
        while position < self._size:
            context = BatchContext(
                path=segment.path(names.LOG),
                position=position,
                stop=self._size,
                expected=expected,
                bound=self._bound,
                epochs=self._log.epochs.entries,
                previous_epoch=epoch,
            )
            intact, fault, data = await self._read(context, size)
            moved = intact.end > position
            if moved:
                self._take(intact, expected)
            position, expected, epoch = intact.end, intact.next_offset, intact.last_epoch
            size = CHUNK_BYTES
            if fault is None and not moved:
                size = _needed(data, self._size - position)
                if not size:
                    fault = CorruptMessageError("the batch is incomplete", path=context.path, position=position)
                    size = CHUNK_BYTES
            if fault is not None:
                position, expected = await self._skip(fault, position, expected)
                epoch = NO_LEADER_EPOCH
        if expected < self._bound and not self._log.has_gaps:
            self._doubt_unconfirmed(self._size, expected)
            self._add(self._size, self._size, expected, self._bound, f"no batch before offset {self._bound}")
        if not self._damages:
            self._check_indexes()
        return ExaminationResult(
            damages=tuple(self._damages),
            intact=tuple(self._intact),
            index_fault=self._index_fault,
            read_bytes=self._read_bytes,
        )

    def _take(self, intact: IntactBatches, expected: Offset) -> None:
        """Intact by themselves; offsets may be missing between them, leader epochs in doubt."""
        epochs = self._log.epochs.entries
        begin = intact.batches[0][0]
        for place, header in intact.batches:
            missing = max(expected, self._log.log_start_offset)
            if header.base_offset > missing and not self._log.has_gaps:
                self._add_intact(begin, place, expected)
                self._doubt_unconfirmed(place, expected)
                self._add(place, place, missing, header.base_offset, f"no batch at offset {missing}")
                self._unconfirmed = place, header.base_offset
                begin = place
                doubt = f"no batch before offset {header.base_offset}, so that this offset may be wrong"
            else:
                doubt = epoch_doubt(header, epoch_in(epochs, header.last_offset))
            self._follow(place, header)
            if doubt:
                self._add_intact(begin, place, expected)
                begin = place + header.size_bytes
                self._add(place, begin, header.base_offset, header.next_offset, doubt, in_doubt=True)
            expected = header.next_offset
        self._add_intact(begin, intact.end, expected)

    def _add_intact(self, begin: int, end: int, next_offset: Offset) -> None:
        if begin < end:
            self._intact.append(VerifiedRange(begin, end, next_offset))

    async def _read(self, context: BatchContext, size: int) -> tuple[IntactBatches, CorruptMessageError | None, bytes]:
        self._log.durability.check()
        data_size = min(size + HEADER_SIZE, self._size - context.position)
        found = await self._segment.file.read_with(data_size, context.position, partial(_checked, context))
        self._read_bytes += data_size
        if self._pace is not None:
            await self._pace(data_size)
        if len(found[2]) < data_size and found[1] is None:
            fault = CorruptMessageError("the file is shorter than it was", path=context.path, position=found[0].end)
            return found[0], fault, found[2]
        return found

    def _follow(self, position: int, header: BatchHeader) -> None:
        if self._entries.get(position) == header.last_offset:
            self._unconfirmed = None  # the index has the same offset
        if position in self._entries:
            self._places[position] = header
        self._last_position = position
        self._max_timestamp_ms = max(self._max_timestamp_ms, header.max_timestamp)
        if self._times.get(header.last_offset) == header.max_timestamp:
            del self._times[header.last_offset]

    async def _skip(self, fault: CorruptMessageError, position: int, expected: Offset) -> tuple[int, Offset]:
        """Position and offset from which it is intact again."""
        candidates = [at for at in sorted(self._entries) if at > position]
        head = await self._segment.file.read(HEADER_SIZE, position)
        if len(head) == HEADER_SIZE:
            header = read_header(head, 0)
            if HEADER_SIZE <= header.size_bytes < self._size - position:
                candidates.insert(0, position + header.size_bytes)
            if header.base_offset != expected:
                self._doubt_unconfirmed(position, expected)
        self._unconfirmed = None
        last = self._damages[-1] if self._damages else None
        is_doubtful = last is not None and last.in_doubt and last.end_offset == expected
        least = expected if is_doubtful else expected + 1  # the corrupt batch has had an offset at least
        for candidate in candidates:
            found = await self._intact_batch_at(candidate, expected)
            if found is not None and found >= least:
                self._add(position, candidate, expected, found, fault.reason)
                if candidate not in self._entries and not self._log.has_gaps:
                    self._unconfirmed = candidate, found
                return candidate, found
        self._add(position, self._size, expected, self._bound, fault.reason)
        return self._size, self._bound

    def _doubt_unconfirmed(self, end: int, end_offset: Offset) -> None:
        """What is at `end` does not join the unconfirmed batches before it: the offsets of all of them may be wrong,
        not the first one's alone.
        """
        if self._unconfirmed is None:
            return
        begin, begin_offset = self._unconfirmed
        self._intact = [one for one in self._intact if one.begin < begin]
        self._damages = [one for one in self._damages if one.position < begin or one.end_offset <= begin_offset]
        reason = f"no intact batch before offset {begin_offset}, and none that begins at {end_offset} behind it"
        self._add(begin, end, begin_offset, end_offset, reason, in_doubt=True)

    async def _intact_batch_at(self, position: int, expected: Offset) -> Offset | None:
        """The base offset of the batch there, if it is intact and not below `expected`."""
        head = await self._segment.file.read(HEADER_SIZE, position)
        if len(head) < HEADER_SIZE:
            return None
        header = read_header(head, 0)
        if header.magic != MAGIC or not HEADER_SIZE <= header.size_bytes <= self._size - position:
            return None
        known = self._entries.get(position)
        context = BatchContext(
            path="",
            position=position,
            stop=position + header.size_bytes,
            expected=expected,
            first_last_offset=known,
            bound=self._bound,
            epochs=self._log.epochs.entries,
        )
        wanted = min(header.size_bytes + HEADER_SIZE, self._size - position)
        intact, fault, _ = await self._segment.file.read_with(wanted, position, partial(_checked, context))
        return None if fault is not None or not intact.batches else intact.batches[0][1].base_offset

    def _add(
        self, position: int, end_position: int, begin: Offset, end: Offset, reason: str, *, in_doubt: bool = False
    ) -> None:
        if begin >= end:
            return
        last = self._damages[-1] if in_doubt and self._damages else None
        if last is not None and last.in_doubt and last.end_position == position > end_position - CHUNK_BYTES:
            self._damages[-1] = replace(last, end_position=end_position, end_offset=end)  # neighbours, up to a limit
            return
        self._damages.append(
            SegmentDamage(
                path=self._segment.path(names.LOG),
                position=position,
                end_position=end_position,
                begin_offset=begin,
                end_offset=end,
                reason=reason,
                in_doubt=in_doubt,
            )
        )

    def _check_indexes(self) -> None:
        if self._index_fault:
            return
        segment = self._segment
        for position, offset in self._entries.items():
            header = self._places.get(position)
            if position < self._size and (header is None or header.last_offset != offset):
                self._index_fault = f"{segment.path(names.INDEX)}: offset {offset} is not at position {position}"
                return
        for offset in self._times:
            self._index_fault = f"{segment.path(names.TIME_INDEX)}: no batch {offset} of that time"
            return
        if self._is_closed:
            self._index_fault = self._missing_entries()

    def _missing_entries(self) -> str:
        """Of a closed segment, whose time index ends with the largest timestamp; "": none."""
        segment = self._segment
        if not self._entries and self._last_position > segment.config.index_interval_bytes:
            return f"{segment.path(names.INDEX)}: it has no entries"
        if segment.time_index.last().timestamp_ms < self._max_timestamp_ms and not segment.time_index.is_full:
            return (
                f"{segment.path(names.TIME_INDEX)}: it does not reach {self._max_timestamp_ms}, the largest timestamp"
            )
        return ""


def _checked(context: BatchContext, data: bytes) -> tuple[IntactBatches, CorruptMessageError | None, bytes]:
    intact, fault = intact_prefix(data, context)
    return intact, fault, data


def _needed(data: bytes, left: int) -> int:
    """How many bytes to read for the batch at the start of `data`; 0: more than there are."""
    if len(data) < HEADER_SIZE:
        return 0
    size = LOG_OVERHEAD + int.from_bytes(data[8:LOG_OVERHEAD], "big")
    return size if len(data) < size <= left else 0
