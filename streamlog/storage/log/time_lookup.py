"""Looking up offsets by timestamp: the first record that is no older, and the largest timestamp.

The time index says where to begin; from there headers are read on the event loop, and a batch that may hold the record
in the thread that reads it, since it may unpack to many. A lookup that is overtaken by a truncation begins again, and
one that meets damage has the segment examined (`reading`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final, NamedTuple, TypeVar

from streamlog.errors import (
    CorruptMessageError,
    DamagedFileError,
    InvalidRecordError,
    MessageTooLargeError,
    UnsupportedCompressionError,
)
from streamlog.model import NO_TIMESTAMP, LeaderEpoch, Offset
from streamlog.records import BatchHeader, check_crc, read_header
from streamlog.records.decode import Fields, iter_fields
from streamlog.records.header import HEADER_SIZE
from streamlog.storage.log.damage import damage_at, examine_segment, unreadable
from streamlog.storage.log.reading import read
from streamlog.storage.log.state import LogState
from streamlog.storage.segments.scan import ReadAt, Scan, run_async
from streamlog.storage.segments.segment import SCAN_BYTES, Segment

TIMES_BYTES: Final = 1 << 20
"""Read at a time where the timestamps of a whole segment are looked at."""
T = TypeVar("T")


class FoundOffset(NamedTuple):
    offset: Offset
    timestamp_ms: int
    leader_epoch: LeaderEpoch


async def offset_for_timestamp(log: LogState, timestamp_ms: int) -> FoundOffset | None:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        log.durability.check()
        index = log.segments.index_of(offset)
        segment, segment_end = log.segments.at(index), log.segments.end_of(index, log.log_end_offset)
        if segment.max_timestamp.timestamp_ms >= timestamp_ms:
            try:
                search = partial(_find_timestamp, segment, timestamp_ms, log.log_start_offset)
                found = await _search(log, segment, search)
            except _OvertakenError:
                continue
            if found is not None:
                await read(log, found.offset, 1, None, True)  # raises where it is corrupt
                return found
        offset = segment_end
    return None


async def largest_timestamp(log: LogState) -> int:
    while True:
        log.durability.check()
        start = log.log_start_offset
        segments = list(log.segments)[log.segments.index_of(start) :]
        times = [segment.max_timestamp.timestamp_ms for segment in segments]
        if segments[0].base_offset >= start or times[0] <= max(times[1:], default=NO_TIMESTAMP):
            return max(times)
        try:  # it may be that of a record below the log start
            times[0] = await _search(log, segments[0], partial(_largest_timestamp, segments[0], start))
        except _OvertakenError:
            continue
        return max(times)


class _OvertakenError(Exception):
    """By a truncation, or the segment's removal: search again. Never leaves this module."""


async def _search(log: LogState, segment: Segment, search: Callable[[], Awaitable[T]]) -> T:
    """`search` reads `segment`. Where it finds damage, the segment is examined, and searched again if it was the
    index. DamagedFileError, _OvertakenError.
    """
    generation, suspected = log.durability.generation, False
    segment.pin()
    try:
        while True:
            try:
                found = await search()
            except (CorruptMessageError, DamagedFileError):
                if generation != log.durability.generation or segment not in log.segments:
                    raise _OvertakenError from None
                if suspected:
                    raise
                suspected = True
                await examine_segment(log, segment)
                damaged = damage_at(log, segment, segment.base_offset)
                if damaged is not None:
                    raise unreadable(log, damaged) from None
                continue
            if generation != log.durability.generation:
                raise _OvertakenError
            return found
    finally:
        segment.unpin()


async def _find_timestamp(segment: Segment, timestamp_ms: int, start: Offset) -> FoundOffset | None:
    """The first record at or above `start` that is no older. Every record before the floor entry of the time index is
    older: the search begins there.
    """
    floor = segment.time_index.lookup(timestamp_ms - 1).offset
    position = await run_async(segment.file, segment.seek(max(floor, start)))
    while (place := await run_async(segment.file, _batch_from(segment, position, timestamp_ms))) is not None:
        position, header = place
        work = partial(_record_from, header, timestamp_ms, start)
        found = await segment.file.read_with(header.size_bytes, position, work)
        if found is not None:
            return found
        position += header.size_bytes
    return None


def _batch_from(segment: Segment, position: int, timestamp_ms: int) -> Scan[tuple[int, BatchHeader] | None]:
    """The first batch from `position` on whose largest timestamp is `timestamp_ms` or later, by its header."""
    while position < segment.size_bytes:
        data = yield ReadAt(min(SCAN_BYTES, segment.size_bytes - position), position)
        at = 0
        while at + HEADER_SIZE <= len(data):
            header = read_header(data, at)
            size = segment.checked_size(header, position + at)
            if header.max_timestamp >= timestamp_ms:
                return position + at, header
            at += size
        position = segment.further(position, at)
    return None


def _record_from(header: BatchHeader, timestamp_ms: int, start: Offset, batch: bytes) -> FoundOffset | None:
    """In the thread that read `batch`, because it may unpack to many records."""
    check_crc(batch, 0, header)
    for offset, time_ms, _, _, _ in _fields_of(batch, header):
        if time_ms >= timestamp_ms and offset >= start:
            return FoundOffset(Offset(offset), time_ms, header.leader_epoch)
    return None


async def _largest_timestamp(segment: Segment, start: Offset) -> int:
    """Of its records at or above `start`; -1: none has one."""
    newest, largest, file = segment.max_timestamp, NO_TIMESTAMP, segment.file
    position = await run_async(file, segment.seek(start))
    if position >= segment.size_bytes:
        return largest
    header = read_header(await file.read(HEADER_SIZE, position), 0)
    if newest.offset >= (start if header.base_offset >= start else header.next_offset):
        return newest.timestamp_ms
    if header.base_offset < start:
        size = segment.checked_size(header, position)
        largest = await file.read_with(size, position, partial(_largest_in_batch, header, start))
        position += size
    while position < segment.size_bytes:
        size = min(TIMES_BYTES, segment.size_bytes - position)
        here, position = await file.read_with(size, position, partial(_largest_in, segment, position))
        largest = max(largest, here)
    return largest


def _largest_in_batch(header: BatchHeader, start: Offset, batch: bytes) -> int:
    check_crc(batch, 0, header)
    times = (time_ms for offset, time_ms, _, _, _ in _fields_of(batch, header) if offset >= start)
    return max(times, default=NO_TIMESTAMP)


def _largest_in(segment: Segment, position: int, data: bytes) -> tuple[int, int]:
    """By the headers in `data`, read from `position` on; and where the next one is."""
    largest, at = NO_TIMESTAMP, 0
    while at + HEADER_SIZE <= len(data):
        header = read_header(data, at)
        largest = max(largest, header.max_timestamp)
        at += segment.checked_size(header, position + at)
    return largest, segment.further(position, at)


def _fields_of(batch: bytes, header: BatchHeader) -> Iterator[Fields]:
    """Of a batch whose CRC is right. A batch that cannot be decoded counts as one record at its base offset: a read
    from there reports it.
    """
    try:
        return iter_fields(batch)
    except (CorruptMessageError, InvalidRecordError, MessageTooLargeError, UnsupportedCompressionError):
        return iter([(header.base_offset, header.max_timestamp, None, None, ())])
