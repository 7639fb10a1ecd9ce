"""`.index` and `.timeindex`: their entries, checked for their order and against the log beside them.

An index that was not closed is preallocated: zeros follow its entries. No entry but the first can be all zeros, and
the first only as the single one (a record of time 0 in a timeindex), so zeros are where the entries end.

Against the log, entry by entry, as Kafka's DumpLogSegments does it:

    .index      at `position` a batch begins whose last offset is `offset`
    .timeindex  a batch ends at `offset`, and its largest timestamp is `timestamp`

Batches and entries are both in the order of offsets, so one walk over the log's headers serves the whole timeindex.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from streamlog.model import NO_OFFSET, NO_TIMESTAMP, Offset
from streamlog.ports import File
from streamlog.storage.dump.framing import Framing
from streamlog.storage.dump.items import Damage, EmptyIndex, Item, OffsetIndexEntry, SanityPassed, TimeIndexEntry

_OFFSET_ENTRY: Final = struct.Struct(">ii")  # storage.offset_index: relative offset, position
_TIME_ENTRY: Final = struct.Struct(">qi")  # storage.time_index: timestamp, relative offset
_CHUNK_ENTRIES: Final = 65536


def read_offset_index(index: File, base: Offset, log: File | None) -> Iterator[Item]:
    """Entries and damage in file order. Without `log`, the index is checked only by itself."""
    previous = OffsetIndexEntry(file_position=-1, offset=NO_OFFSET, position=-1)
    framing = Framing(log) if log else None
    for item in _entries(index, _OFFSET_ENTRY):
        if isinstance(item, Damage):
            yield item
            continue
        at, (relative, position) = item
        entry = OffsetIndexEntry(file_position=at, offset=Offset(base + relative), position=position)
        yield entry
        reason = _offset_order(entry, previous, base) or (_offset_against(framing, entry) if framing else None)
        if reason is not None:
            yield Damage(position=at, reason=reason)
        previous = entry
    if previous.file_position < 0:
        yield EmptyIndex()


def _offset_order(entry: OffsetIndexEntry, previous: OffsetIndexEntry, base: Offset) -> str | None:
    if entry.offset < base or entry.position < 0:
        return f"impossible entry: offset {entry.offset}, position {entry.position} in an index of base {base}"
    if entry.offset <= previous.offset or entry.position <= previous.position:
        return (
            f"offset {entry.offset}, position {entry.position} comes after offset {previous.offset}, "
            f"position {previous.position}: both must rise"
        )
    return None


def _offset_against(log: Framing, entry: OffsetIndexEntry) -> str | None:
    batch = log.batch_at(entry.position)
    if batch is None:
        return f"no batch begins at position {entry.position} of the log, as the entry of offset {entry.offset} says"
    if batch.last_offset != entry.offset:
        return f"index offset {entry.offset}, but the batch at position {entry.position} ends at {batch.last_offset}"
    return None


def read_time_index(index: File, base: Offset, log: File | None) -> Iterator[Item]:
    """As `read_offset_index`, but an empty one yields nothing, as in Kafka's tool."""
    previous = TimeIndexEntry(file_position=-1, timestamp_ms=NO_TIMESTAMP, offset=NO_OFFSET)
    walk = _LogWalk(log, base) if log else None
    for item in _entries(index, _TIME_ENTRY):
        if isinstance(item, Damage):
            yield item
            continue
        at, (timestamp_ms, relative) = item
        entry = TimeIndexEntry(file_position=at, timestamp_ms=timestamp_ms, offset=Offset(base + relative))
        yield entry
        reason = _time_order(entry, previous, base) or (walk.against(entry) if walk else None)
        if reason is not None:
            yield Damage(position=at, reason=reason)
        previous = entry


def _time_order(entry: TimeIndexEntry, previous: TimeIndexEntry, base: Offset) -> str | None:
    if entry.offset < base or entry.timestamp_ms < 0:
        return f"impossible entry: timestamp {entry.timestamp_ms}, offset {entry.offset} in an index of base {base}"
    if entry.timestamp_ms <= previous.timestamp_ms or entry.offset <= previous.offset:
        return (
            f"timestamp {entry.timestamp_ms}, offset {entry.offset} comes after timestamp {previous.timestamp_ms}, "
            f"offset {previous.offset}: both must rise"
        )
    return None


class _LogWalk:
    """The headers of a log, looked up in the order of offsets."""

    def __init__(self, log: File, base: Offset) -> None:
        self._frames = Framing(log).frames(base)
        self._end: Offset = NO_OFFSET  # last offset of the batch that was reached
        self._max_timestamp_ms = NO_TIMESTAMP

    def against(self, entry: TimeIndexEntry) -> str | None:
        while self._end < entry.offset:
            frame = next(self._frames, None)
            if frame is None:
                return f"indexed offset {entry.offset} is not in the log, which ends at {self._end}"
            if not isinstance(frame, Damage):
                self._end, self._max_timestamp_ms = frame.last_offset, frame.max_timestamp_ms
        if self._end != entry.offset:
            return f"indexed offset {entry.offset} is not the end of a batch: one ends at {self._end}"
        if self._max_timestamp_ms != entry.timestamp_ms:
            return f"index timestamp {entry.timestamp_ms}, log timestamp {self._max_timestamp_ms}"
        return None


def check_offset_index(index: File, base: Offset, log: File | None) -> Item:
    """Whether a start would accept the index: whole entries, and a possible last one."""
    size = index.size()
    last = _last_entry(index, _OFFSET_ENTRY)
    if size % _OFFSET_ENTRY.size:
        return Damage(position=size, reason=f"its length {size} is not a multiple of {_OFFSET_ENTRY.size}")
    if last is not None:
        at, (relative, position) = last
        if relative < 0 or position < 0 or (log is not None and position >= log.size()):
            return Damage(position=at, reason=f"impossible last entry: offset {base + relative}, position {position}")
    return SanityPassed()


def check_time_index(index: File, base: Offset) -> Item:
    """As `check_offset_index`."""
    size = index.size()
    last = _last_entry(index, _TIME_ENTRY)
    if size % _TIME_ENTRY.size:
        return Damage(position=size, reason=f"its length {size} is not a multiple of {_TIME_ENTRY.size}")
    if last is not None:
        at, (timestamp_ms, relative) = last
        if relative < 0 or timestamp_ms < 0:
            reason = f"impossible last entry: timestamp {timestamp_ms}, offset {base + relative}"
            return Damage(position=at, reason=reason)
    return SanityPassed()


def _last_entry(index: File, entry: struct.Struct) -> tuple[int, tuple[int, ...]] | None:
    last = None
    for item in _entries(index, entry):
        if not isinstance(item, Damage):
            last = item
    return last


def _entries(index: File, entry: struct.Struct) -> Iterator[tuple[int, tuple[int, ...]] | Damage]:
    """(position, fields) of each entry before the preallocated zeros."""
    size, unused = index.size(), bytes(entry.size)
    whole = size - size % entry.size
    ended = whole > entry.size and index.pread(2 * entry.size, 0) == 2 * unused  # only zeros follow
    following = 0
    while (start := following) < whole:
        chunk = index.pread(min(_CHUNK_ENTRIES * entry.size, whole - start), start)
        following = start + len(chunk)
        if ended:
            data = index.data_from(following)  # a preallocated index is mostly a hole
            following = max(following, data - data % entry.size)
        if ended and not chunk.strip(b"\0"):
            continue
        for at in range(0, len(chunk), entry.size):
            if chunk[at : at + entry.size] == unused and start + at > 0:
                ended = True
            elif not ended:
                yield start + at, entry.unpack_from(chunk, at)
            elif start + at > 0:
                yield Damage(position=start + at, reason="an entry follows unused ones")
                return
    if whole != size:
        yield Damage(position=whole, reason=f"the last {size - whole} bytes are not a whole entry")
