"""Reading a log: batches from an offset, offsets from a timestamp.

`try_read` stays on the event loop and in the page cache; `read` waits for the device off the loop. Between its steps
the log may be cut or its segments removed: the segment is pinned while it is read, and a read that a truncation has
overtaken begins again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streamlog.model import LeaderEpoch, Offset
from streamlog.records import check_crc, read_header
from streamlog.records.decode import decode_batch
from streamlog.records.header import HEADER_SIZE
from streamlog.storage.scan import ReadAt, Scan, WouldBlockError, run_async, try_run
from streamlog.storage.segment import SCAN_BYTES, Segment
from streamlog.storage.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from streamlog.storage.log import Log


class FoundOffset(NamedTuple):
    offset: Offset
    timestamp_ms: int
    leader_epoch: LeaderEpoch


def try_read(log: Log, offset: Offset, size_max: int, end_offset: Offset | None, at_least_one: bool) -> bytes | None:
    index, end = _begin(log, offset, end_offset)
    while index < len(log.segments):
        segment = log.segments.at(index)
        bound = _bound(log, index, end)
        try:
            data = try_run(segment.file, segment.read(offset, bound, size_max, at_least_one=at_least_one))
        except WouldBlockError:
            return None
        if data is not None:
            return data
        if log.segments.end_of(index, log.log_end_offset) >= end:
            return b""
        index += 1
    return b""


async def read(log: Log, offset: Offset, size_max: int, end_offset: Offset | None, at_least_one: bool) -> bytes:
    while True:
        generation = log.durability.generation
        index, end = _begin(log, offset, end_offset)
        segment = log.segments.at(index)
        segment_end = log.segments.end_of(index, log.log_end_offset)
        segment.pin()
        try:
            scan = segment.read(offset, _bound(log, index, end), size_max, at_least_one=at_least_one)
            data = await run_async(segment.file, scan)
        finally:
            segment.unpin()
        if generation != log.durability.generation:
            continue
        if data is not None:
            return data
        if segment_end >= end:
            return b""
        offset = segment_end  # nothing left in this segment (compaction): go on in the next


async def offset_for_timestamp(log: Log, timestamp_ms: int) -> FoundOffset | None:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        log.durability.check()
        generation = log.durability.generation
        index = log.segments.index_of(offset)
        segment, segment_end = log.segments.at(index), log.segments.end_of(index, log.log_end_offset)
        if segment.max_timestamp.timestamp_ms >= timestamp_ms:
            segment.pin()
            try:
                found = await run_async(segment.file, _find_timestamp(segment, timestamp_ms, log.log_start_offset))
            finally:
                segment.unpin()
            if generation != log.durability.generation:
                continue
            if found is not None:
                return found
        offset = segment_end
    return None


def aborted(log: Log, start: Offset, end: Offset) -> list[AbortedTransaction]:
    """As `Log.aborted`. The markers may stand in later segments than the records."""
    found: list[AbortedTransaction] = []
    for index in range(log.segments.index_of(start), len(log.segments)):
        here = log.segments.at(index).transaction_index
        if here.count:
            some, is_all = here.touching(start, end)
            found += some
            if is_all:
                break
    found.sort(key=lambda one: one.first_offset)
    return found


def _begin(log: Log, offset: Offset, end_offset: Offset | None) -> tuple[int, Offset]:
    log.durability.check()
    if not log.log_start_offset <= offset <= log.log_end_offset:
        raise log.out_of_range(offset)
    end = log.log_end_offset if end_offset is None else min(end_offset, log.log_end_offset)
    return log.segments.index_of(offset), end


def _bound(log: Log, index: int, end: Offset) -> Offset | None:
    """The bound for one segment: None where all of the segment is below `end`, which saves a search."""
    return None if log.segments.end_of(index, log.log_end_offset) <= end else end


def _find_timestamp(segment: Segment, timestamp_ms: int, log_start: Offset) -> Scan[FoundOffset | None]:
    """Every record before the floor entry of the time index is older: scan from there, batch by batch."""
    floor = segment.time_index.lookup(timestamp_ms - 1).offset
    position = yield from segment.seek(max(floor, log_start))
    while position < segment.size_bytes:
        data = yield ReadAt(min(SCAN_BYTES, segment.size_bytes - position), position)
        at = 0
        while at + HEADER_SIZE <= len(data):
            header = read_header(data, at)
            size = segment.checked_size(header, position + at)
            if header.max_timestamp >= timestamp_ms:
                batch = yield ReadAt(size, position + at)
                check_crc(batch, 0, header)
                for record in decode_batch(batch):
                    if record.timestamp >= timestamp_ms and record.offset >= log_start:
                        return FoundOffset(Offset(record.offset), record.timestamp, header.leader_epoch)
            at += size
        position = segment.further(position, at)
    return None
