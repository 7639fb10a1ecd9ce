"""The last batches of a log, and those at given offsets, as their headers describe them (`records.held_batch`).

Only headers are read: of the last segment, and of the one before where the last one has too few.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from streamlog.errors import CorruptMessageError
from streamlog.model import Offset
from streamlog.records import BatchHeader, read_header
from streamlog.records.header import HEADER_SIZE, MAGIC
from streamlog.records.held_batch import HeldBatch
from streamlog.storage.files import names
from streamlog.storage.log.state import LogState
from streamlog.storage.segments.scan import ReadAt, Scan, WouldBlockError, run_async, try_run
from streamlog.storage.segments.segment import Segment

READ_BYTES: Final = 4096
SEGMENTS_MAX: Final = 2


async def last_batches(log: LogState, count: int) -> list[HeldBatch]:
    """At most `count`, rising, the last one at the log's end. CorruptMessageError, DamagedFileError, StorageError."""
    found: list[HeldBatch] = []
    with log.in_use():
        for segment in list(log.segments)[: -SEGMENTS_MAX - 1 : -1]:
            if len(found) >= count or segment not in log.segments:  # removed while later ones were read: these suffice
                break
            found = await _read(segment, partial(_last_of, segment, count - len(found))) + found
    return found


async def batches_between(log: LogState, begin: Offset, end: Offset, count_max: int) -> list[HeldBatch]:
    """Those that have offsets in [begin, end), at most `count_max`. Errors as above."""
    found: list[HeldBatch] = []
    with log.in_use():
        offset = max(begin, log.segments.first.base_offset)
        end = min(end, log.log_end_offset)
        while offset < end and len(found) < count_max:
            index = log.segments.index_of(offset)
            segment, offset = log.segments.at(index), log.segments.end_of(index, log.log_end_offset)
            scan = partial(_from, segment, max(begin, segment.base_offset), end, count_max - len(found))
            found += await _read(segment, scan)
    return found


async def _read(segment: Segment, scan: Callable[[], Scan[list[HeldBatch]]]) -> list[HeldBatch]:
    segment.pin()
    try:
        try:
            return try_run(segment.file, scan())
        except WouldBlockError:
            return await run_async(segment.file, scan())
    finally:
        segment.unpin()


def _last_of(segment: Segment, count: int) -> Scan[list[HeldBatch]]:
    """Backwards from index entry to index entry, until `count` are found."""
    found: list[HeldBatch] = []
    stop = segment.size_bytes
    while stop > 0 and len(found) < count:
        begin = segment.offset_index.lookup_position(stop - 1).position
        if not 0 < begin < stop:
            begin = 0
        here: list[HeldBatch] = []
        position = begin
        while position < stop:
            headers = yield from _headers(segment, position, stop)
            here += [HeldBatch.of(header) for _, header in headers]
            position = headers[-1][0] + headers[-1][1].size_bytes
        found = here + found
        stop = begin
    return found[-count:]


def _from(segment: Segment, begin: Offset, end: Offset, count_max: int) -> Scan[list[HeldBatch]]:
    position = yield from segment.seek(begin)
    found: list[HeldBatch] = []
    while position < segment.size_bytes and len(found) < count_max:
        headers = yield from _headers(segment, position, segment.size_bytes)
        for _, header in headers:
            if header.base_offset >= end:
                return found
            found.append(HeldBatch.of(header))
        position = headers[-1][0] + headers[-1][1].size_bytes
    return found


def _headers(segment: Segment, position: int, stop: int) -> Scan[list[tuple[int, BatchHeader]]]:
    """Those of the next batches, at least one."""
    data = yield ReadAt(min(READ_BYTES, stop - position), position)
    found: list[tuple[int, BatchHeader]] = []
    at = 0
    while at + HEADER_SIZE <= len(data):
        header = read_header(data, at)
        if header.magic != MAGIC or header.size_bytes < HEADER_SIZE or position + at + header.size_bytes > stop:
            break
        found.append((position + at, header))
        at += header.size_bytes
    if not found:
        raise CorruptMessageError("no batch", path=segment.path(names.LOG), position=position)
    return found
