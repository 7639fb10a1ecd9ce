"""Which segments of a log are deleted (SEMANTICS 11). Whole segments, oldest first, never past the high watermark.

    below the log start      always: readers cannot reach them
    by time                  largest timestamp + retention.ms < now, with cleanup.policy=delete; segments appended to
                             since the start must also be that old by the monotonic clock, and of others the batches
                             must have that timestamp: it is known from an index, which has no checksum. Where no
                             record has a timestamp: the time when the file was last written
    by size                  while at least retention.bytes remain, with cleanup.policy=delete

Nothing is deleted by time while the node's wall clock is in doubt: a clock that is wrong by the retention would delete
everything. The active segment is deleted too when it is due: it is rolled first, so that the log keeps its end offset.

In two steps, with the checkpoint of log starts written between them: `advance_start` moves the log start past what is
due, `remove_below_start` deletes the segments below it. So after a kill at any point a first segment that is missing
was lost, not deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile

from streamlog.errors import CorruptMessageError, DamagedFileError
from streamlog.model import NO_TIMESTAMP, Offset
from streamlog.storage.files import names
from streamlog.storage.log.log import Log
from streamlog.storage.segments.header_scan import scan_file
from streamlog.storage.segments.index_rebuild import rebuild_indexes
from streamlog.storage.segments.scan import run_async
from streamlog.storage.segments.segment import Segment


async def advance_start(log: Log, now_ms: int | None, deletable_end: Offset, now_s: float | None = None) -> bool:
    """Move the log start past the segments that are due; whether there are segments below it. `deletable_end`: the high
    watermark. `now_ms`: wall time; None: not known well enough to delete by. `now_s`: monotonic. StorageError,
    DamagedFileError.
    """
    due = 0
    if now_ms is not None:
        due = await _confirmed(log, lambda: _expired(log, now_ms, deletable_end, now_s))
    if due == len(log.segments):
        log.roll_now()
    due = max(due, _oversized(log, deletable_end))
    if due:
        log.advance_log_start(log.segments.end_of(due - 1, log.log_end_offset))
    return _below(log, log.log_start_offset) > 0


def remove_below_start(log: Log, saved_start: Offset) -> int:
    """Delete the segments below the log start that is in the checkpoint; their number. StorageError."""
    count = _below(log, min(log.log_start_offset, saved_start))
    if count:
        log.remove_oldest(count)
    return count


def _below(log: Log, start: Offset) -> int:
    count = 0
    while count < len(log.segments) - 1 and log.segments.end_of(count, log.log_end_offset) <= start:
        count += 1
    return count


async def examine_index(log: Log, fault: DamagedFileError) -> None:
    """Of one that cannot be read: the examination of its segment rebuilds it. StorageError."""
    for segment in list(log.segments):
        if fault.path in (segment.path(names.INDEX), segment.path(names.TIME_INDEX)):
            await log.examine(segment)


async def _confirmed(log: Log, expired: Callable[[], list[Segment]]) -> int:
    """How many of the oldest segments have expired, by their batches too."""
    confirmed = []
    for segment in expired():
        if segment.appended_s is None and not await _has_its_time(log, segment):
            break
        confirmed.append(segment)
    pairs = zip(confirmed, expired(), strict=False)  # the log may have changed meanwhile
    return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))


async def _has_its_time(log: Log, segment: Segment) -> bool:
    """Whether the largest timestamp is that of the batches from the indexed one on. If not, the segment is examined."""
    if segment in log.damaged_segments:
        return True  # there may be no replica to repair it from
    entry, newest = segment.max_timestamp, NO_TIMESTAMP
    segment.pin()
    try:
        begin = await run_async(segment.file, segment.seek(entry.offset))
        async for batches in scan_file(segment.file, begin, segment.size_bytes, check_crc=False):
            newest = max(newest, *(header.max_timestamp for _, header in batches))
        if newest == entry.timestamp_ms:
            return True
        if segment is log.segments.active:
            log.roll_now()  # what is appended meanwhile goes to another one
    except CorruptMessageError:
        pass
    finally:
        segment.unpin()
    if segment in log.segments:
        found = await log.examine(segment)  # a header that was only scanned may be wrong, and not the index
        if found is not None and not found.damages and not found.index_fault:
            # The index is full and ends before: what is rebuilt says so, and memory has the rest.
            await rebuild_indexes(segment)
    return False


def _expired(log: Log, now_ms: int, deletable_end: Offset, now_s: float | None) -> list[Segment]:
    config = log.config
    if not config.cleanup_delete or config.retention_ms < 0:
        return []
    found = []
    for index, segment in enumerate(log.segments):
        newest = segment.max_timestamp.timestamp_ms
        if log.segments.end_of(index, log.log_end_offset) > deletable_end:
            break
        if segment is log.segments.active and not segment.size_bytes:
            break  # nothing to delete, and the files of thousands of empty logs are not opened
        if newest < 0:  # records without timestamps
            newest = segment.file.modified_ms()
        if newest + config.retention_ms >= now_ms:
            break
        appended_s = segment.appended_s
        if now_s is not None and appended_s is not None and (now_s - appended_s) * 1000 <= config.retention_ms:
            break
        found.append(segment)
    return found


def _oversized(log: Log, deletable_end: Offset) -> int:
    config = log.config
    if not config.cleanup_delete or config.retention_bytes < 0:
        return 0
    surplus = log.size_bytes - config.retention_bytes
    count = 0
    for index, segment in enumerate(log.segments.closed()):
        if segment.size_bytes > surplus or log.segments.end_of(index, log.log_end_offset) > deletable_end:
            break
        surplus -= segment.size_bytes
        count += 1
    return count
