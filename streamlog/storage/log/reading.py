"""Reading a log: batches from an offset.

`try_read` stays on the event loop and in the page cache; `read` waits for the device off the loop. Between its steps
the log may be truncated or its segments removed: the segment is pinned while it is read, and a read overtaken by a
truncation is restarted.

Only verified bytes are served (`batch_checks`): written by this process, or checked since it started. `try_read`
returns only bytes known to be intact, at no extra cost; `read` checks what it reads in the thread that reads it. Where
that fails the whole segment is examined (`examination`): damage is noted in `damaged_segments`, the owner is notified,
and the batches before and after it are served; so are those in doubt, if the log `serves_doubtful`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from typing import Final, TypeVar

from streamlog.errors import (
    CorruptMessageError,
    DamagedFileError,
)
from streamlog.model import Offset
from streamlog.records import check_crc, read_header, stamp
from streamlog.records.header import HEADER_SIZE, PREFIX_SIZE
from streamlog.storage.files import names
from streamlog.storage.files.checkpoints import EpochEntry
from streamlog.storage.log.damage import check_transaction_index, damage_at, examine_segment, unreadable
from streamlog.storage.log.state import LogState
from streamlog.storage.segments.batch_checks import BatchContext, check_batches, epoch_doubt, epoch_in
from streamlog.storage.segments.plain_run import plain_run
from streamlog.storage.segments.scan import WouldBlockError, run_async, try_run
from streamlog.storage.segments.segment import Segment
from streamlog.storage.segments.transaction_index import AbortedTransaction
from streamlog.storage.segments.verified import VerifiedRange

_BASE_OFFSET: Final = struct.Struct(">q")
T = TypeVar("T")


def try_read(
    log: LogState, offset: Offset, size_max: int, end_offset: Offset | None, at_least_one: bool
) -> bytes | None:
    index, end = _begin(log, offset, end_offset)
    while index < len(log.segments):
        segment = log.segments.at(index)
        if segment in log.damaged_segments:
            return None
        try:
            place = try_run(
                segment.file,
                segment.locate(offset, _bound(log, index, end), size_max, at_least_one=at_least_one),
            )
            data = None if place is None else _try_verified(log, segment, place, offset)
        except (WouldBlockError, CorruptMessageError, DamagedFileError):
            return None  # `read` waits for the disk, or finds the damage
        if data is not None:
            return data
        segment_end = log.segments.end_of(index, log.log_end_offset)
        if segment_end >= end:
            return b""
        if segment_end > offset and not log.has_gaps:
            return None  # records are missing at its end
        index += 1
    return b""


def try_measure(log: LogState, offset: Offset, size_max: int, end_offset: Offset | None) -> int | None:
    """How many bytes `try_read` would return, without reading them; None: only reading shows it. OffsetOutOfRangeError,
    StorageError."""
    index, end = _begin(log, offset, end_offset)
    if index >= len(log.segments) or offset >= end:
        return None
    segment = log.segments.at(index)
    if segment in log.damaged_segments:
        return None
    try:
        place = try_run(segment.file, segment.locate(offset, _bound(log, index, end), size_max, at_least_one=True))
    except (WouldBlockError, CorruptMessageError, DamagedFileError):
        return None
    return None if place is None or place[1] <= place[0] else place[1] - place[0]


def _try_verified(log: LogState, segment: Segment, place: tuple[int, int], offset: Offset) -> bytes:
    """WouldBlockError where it is not in the page cache, or not known to be intact."""
    start, stop = place
    if stop <= start:
        return b""
    data = segment.file.try_pread(stop - start, start) if segment.verified.covers(start, stop) else None
    if data is None or len(data) < stop - start:
        raise WouldBlockError
    if not log.has_gaps and _BASE_OFFSET.unpack_from(data)[0] > max(offset, segment.base_offset):
        raise WouldBlockError  # the index may have led astray
    return data


async def read(log: LogState, offset: Offset, size_max: int, end_offset: Offset | None, at_least_one: bool) -> bytes:
    """DamagedFileError where `offset` itself cannot be read, or the first batch from there on."""
    suspected: CorruptMessageError | DamagedFileError | None = None
    while True:
        generation = log.durability.generation
        index, end = _begin(log, offset, end_offset)
        segment = log.segments.at(index)
        segment_end = log.segments.end_of(index, log.log_end_offset)
        bound = _bound(log, index, end)
        damaged = damage_at(log, segment, offset)
        if damaged is not None:
            if damaged.begin_offset <= offset:
                raise unreadable(log, damaged)
            bound = damaged.begin_offset if bound is None else min(bound, damaged.begin_offset)
        segment.pin()
        try:
            found = log.damaged_segments.get(segment)
            if found is not None:
                ranges = found.readable(doubtful=log.serves_doubtful)
                epochs = log.epochs.entries
                data = await _read_beside_damage(segment, ranges, epochs, offset, bound, size_max, at_least_one)
            else:
                data = await _read_checked(log, segment, segment_end, offset, bound, size_max, at_least_one)
        except (CorruptMessageError, DamagedFileError) as error:
            if generation != log.durability.generation or segment not in log.segments:
                continue
            if suspected is not None:
                raise
            suspected = error
            await examine_segment(log, segment)
            continue
        finally:
            segment.unpin()
        if generation != log.durability.generation:
            continue
        if data is not None:
            return data
        if damaged is not None and damaged.begin_offset < end:
            raise unreadable(log, damaged)  # nothing is left before it (compaction): it is what follows
        if segment_end >= end:
            return b""
        offset = segment_end  # nothing left in this segment (compaction): continue in the next


async def _read_checked(
    log: LogState,
    segment: Segment,
    segment_end: Offset,
    offset: Offset,
    bound: Offset | None,
    size_max: int,
    at_least_one: bool,
) -> bytes | None:
    """As `Segment.locate`, with the bytes. CorruptMessageError where they are not intact, or the index leads astray."""
    generation, epochs = log.durability.generation, log.epochs.entries
    place = await run_async(segment.file, segment.locate(offset, bound, size_max, at_least_one=at_least_one))
    if place is None:
        if offset < segment_end and bound is None and not log.has_gaps:
            raise CorruptMessageError(
                f"nothing from {offset} on, the next segment begins at {segment_end}", path=segment.path(names.LOG)
            )
        return None
    start, stop = place
    if stop <= start:
        return b""
    anchor, expected, last_offset = _anchor(segment, start)
    context = BatchContext(
        path=segment.path(names.LOG),
        position=anchor,
        stop=stop,
        expected=expected,
        first_last_offset=last_offset,
        bound=segment_end,
        epochs=epochs,
        gapless_from=None if log.has_gaps else log.log_start_offset,
        strict_epochs=True,
    )
    checked = await segment.file.read_with(stop - anchor, anchor, partial(_checked_plain, context, start, offset))
    if checked is None:
        size = min(stop + HEADER_SIZE, segment.size_bytes) - anchor
        checked = await segment.file.read_with(size, anchor, partial(_checked, context, start, offset))
    data, next_offset = checked
    if generation == log.durability.generation:
        segment.verified.add(anchor, stop, next_offset)
    return data


async def _read_beside_damage(
    segment: Segment,
    ranges: Sequence[VerifiedRange],
    epochs: Sequence[EpochEntry],
    offset: Offset,
    bound: Offset | None,
    size_max: int,
    at_least_one: bool,
) -> bytes | None:
    """As `_read_checked`, in a segment whose readable ranges are known: a search never leads through a corrupt one."""
    last = ranges[-1] if ranges else VerifiedRange(0, 0, segment.base_offset)
    appended = VerifiedRange(last.end, segment.size_bytes, Offset(offset + 1))  # since the examination
    run = next((one for one in ranges if one.next_offset > offset), appended)
    entry = segment.offset_index.lookup(offset).position
    begin = entry if run.begin <= entry < run.end else run.begin
    start = await run_async(segment.file, segment.seek_from(begin, offset))
    if start >= run.end:
        return None
    size = min(max(size_max, HEADER_SIZE), run.end - start)
    while True:
        work = partial(_whole_batches, epochs, bound, size_max, at_least_one)
        data, needed = await segment.file.read_with(size, start, work)
        if needed <= size:
            return data if data or not at_least_one else None
        size = min(needed, run.end - start)


def _whole_batches(
    epochs: Sequence[EpochEntry], bound: Offset | None, size_max: int, at_least_one: bool, data: bytes
) -> tuple[bytes, int]:
    """The batches of `data` to return, and how many bytes must be read for the first one; 0: no more."""
    stop, doubts = 0, []
    while len(data) - stop >= HEADER_SIZE:
        header = read_header(data, stop)
        after = stop + header.size_bytes
        if header.size_bytes < HEADER_SIZE or (bound is not None and header.next_offset > bound):
            break
        if after > size_max and not (at_least_one and not stop):
            break
        if after > len(data):
            if stop:
                break
            return b"", after
        check_crc(data, stop, header)
        by_table = epoch_in(epochs, header.last_offset)
        if epoch_doubt(header, by_table):
            doubts.append((stop, stamp(header.base_offset, header.length, by_table)))
        stop = after
    return _restamped(data[:stop], doubts), 0


def _restamped(data: bytes, doubts: Sequence[tuple[int, bytes]]) -> bytes:
    """Batches whose leader epoch is in doubt are served with the table's: followers are compared by the table. One that
    copied another epoch would refuse the next batch for its lower one, or be truncated there, with what is
    acknowledged.
    """
    if not doubts:
        return data
    copy = bytearray(data)
    for position, prefix in doubts:
        copy[position : position + PREFIX_SIZE] = prefix
    return bytes(copy)


def _anchor(segment: Segment, start: int) -> tuple[int, Offset, Offset | None]:
    """Where the check of a read at `start` begins: at `start` where the offset expected there is known, else at an
    earlier batch that the index names. Returns position, lowest offset expected there, last offset of that batch.
    """
    if not start:
        return 0, segment.base_offset, None
    known = segment.verified.next_offset_at(start)
    if known is not None:
        return start, known, None
    entry = segment.offset_index.lookup_position(start - 1)
    if 0 < entry.position < start:
        return entry.position, segment.base_offset, entry.offset
    return 0, segment.base_offset, None


def _checked_plain(context: BatchContext, start: int, offset: Offset, data: bytes) -> tuple[bytes, Offset] | None:
    """As `_checked`, for batches that all join; None: they do not, or one is corrupt."""
    run = plain_run(data, context, start)
    if run.end < context.stop or run.offset_at is None or (start > context.position and run.offset_at > offset):
        return None
    return data if context.position == start else data[start - context.position :], run.next_offset


def _checked(context: BatchContext, start: int, offset: Offset, data: bytes) -> tuple[bytes, Offset]:
    """In the thread that read `data`: the bytes of [start, context.stop), and the offset after them."""
    intact = check_batches(data, context)
    if len(data) < context.stop - context.position:
        raise CorruptMessageError("the file is shorter than it was", path=context.path, position=context.position)
    places = [position for position, _ in intact.batches]
    if start != context.stop and start not in places:
        raise CorruptMessageError("no batch begins here", path=context.path, position=start)
    for position, header in intact.batches:
        if position >= start:
            break
        if header.next_offset > offset:
            reason = f"offset {offset} is before the position in the index"
            raise CorruptMessageError(reason, path=context.path, position=position)
    if context.position == start and len(data) == context.stop - start:
        return data, intact.next_offset
    return data[start - context.position : context.stop - context.position], intact.next_offset


def aborted(log: LogState, start: Offset, end: Offset) -> list[AbortedTransaction]:
    """As `Log.aborted`. The markers may be in later segments than the records."""
    found: list[AbortedTransaction] = []
    for index in range(log.segments.index_of(start), len(log.segments)):
        segment = log.segments.at(index)
        here = segment.transaction_index
        if not here.checked:
            check_transaction_index(log, segment)
        if here.count:
            some, is_all = here.touching(start, end)
            found += some
            if is_all:
                break
    found.sort(key=lambda one: one.first_offset)
    return found


def _begin(log: LogState, offset: Offset, end_offset: Offset | None) -> tuple[int, Offset]:
    log.durability.check()
    if not log.log_start_offset <= offset <= log.log_end_offset:
        raise log.out_of_range(offset)
    end = log.log_end_offset if end_offset is None else min(end_offset, log.log_end_offset)
    return log.segments.index_of(offset), end


def _bound(log: LogState, index: int, end: Offset) -> Offset | None:
    """The bound for one segment: None where all of the segment is below `end`, which saves a search."""
    return None if log.segments.end_of(index, log.log_end_offset) <= end else end
