"""Reading all of a segment to find out what is sound: what a read that met something unsound, the scrubber, and
`partition repair --dry-run` do.

    batch by batch, as `soundness` checks them --unsound--> from where on it is sound again: behind the batch, if its
                                                            length leads to one, or at the next entry of the index
                                                            that does, or nowhere in this segment
    nothing unsound, but an index says something else  ---> the indexes are rebuilt: they have no checksum

Offsets that are missing at the end of a segment (the next one begins later, and compaction was not at work) are damage
too: a file was cut, or the next one is gone.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from streamlog.errors import CorruptMessageError, DamagedFileError
from streamlog.model import NO_LEADER_EPOCH, Offset
from streamlog.records import BatchHeader, read_header
from streamlog.records.header import HEADER_SIZE, LOG_OVERHEAD, MAGIC
from streamlog.storage.files import names
from streamlog.storage.segments.batch_checks import Sound, Surroundings, sound_prefix
from streamlog.storage.segments.segment import Segment
from streamlog.storage.segments.verified import VerifiedRange

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from streamlog.storage.log.log import Log

CHUNK_BYTES: Final = 1 << 20


class DamagedRange(Struct, frozen=True, kw_only=True):
    """Offsets [begin_offset, end_offset) of a log cannot be read here."""

    path: str
    position: int  # in the file, where what is unsound begins
    end_position: int  # where it is sound again; the file's end
    begin_offset: Offset
    end_offset: Offset
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: position {self.position}: {self.reason} (offsets {self.begin_offset}..{self.end_offset})"


class Examined(Struct, frozen=True, kw_only=True):
    damages: tuple[DamagedRange, ...]
    sound: tuple[VerifiedRange, ...]  # all else
    index_fault: str  # "": the indexes agree with the log
    read_bytes: int


async def examine(
    log: Log, segment: Segment, *, pace: Callable[[int], Awaitable[None]] | None = None
) -> Examined | None:
    """All of `segment`; None where the log was cut, or the segment replaced, meanwhile. `pace` is awaited after each
    read with its size. OSError, StorageError.
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
    def __init__(self, log: Log, segment: Segment, pace: Callable[[int], Awaitable[None]] | None) -> None:
        index = log.segments.index_of(segment.base_offset)
        self._log = log
        self._segment = segment
        self._pace = pace
        self._size = segment.size_bytes
        self._bound = log.segments.end_of(index, log.log_end_offset)
        self._damages: list[DamagedRange] = []
        self._sound: list[VerifiedRange] = []
        self._places: dict[int, BatchHeader] = {}  # of the batches that the offset index may name
        self._times: dict[Offset, int] = {}
        self._read_bytes = 0
        self._entries: dict[int, Offset] = {}
        self._index_fault = ""

    async def run(self) -> Examined:
        segment = self._segment
        try:
            self._entries = {entry.position: entry.offset for entry in segment.offset_index.entries()}
        except DamagedFileError as e:
            self._index_fault = str(e)
        position, expected, epoch = 0, segment.base_offset, NO_LEADER_EPOCH
        size = CHUNK_BYTES
        while position < self._size:
            around = Surroundings(
                path=segment.path(names.LOG),
                position=position,
                stop=self._size,
                expected=expected,
                bound=self._bound,
                epochs=self._log.epochs.entries,
                previous_epoch=epoch,
            )
            sound, fault, data = await self._read(around, size)
            for place, header in sound.batches:
                self._follow(place, header)
            moved = sound.end > position
            if moved:
                self._sound.append(VerifiedRange(position, sound.end, sound.next_offset))
            position, expected, epoch = sound.end, sound.next_offset, sound.last_epoch
            size = CHUNK_BYTES
            if fault is None and not moved:
                size = _needed(data, self._size - position)
                if not size:
                    fault = CorruptMessageError("the batch is cut off", path=around.path, position=position)
                    size = CHUNK_BYTES
            if fault is not None:
                position, expected = await self._skip(fault, position, expected)
                epoch = NO_LEADER_EPOCH
        if expected < self._bound and not self._log.config.cleanup_compact:
            self._add(self._size, self._size, expected, self._bound, f"nothing stands here before {self._bound}")
        if not self._damages:
            self._check_indexes()
        return Examined(
            damages=tuple(self._damages),
            sound=tuple(self._sound),
            index_fault=self._index_fault,
            read_bytes=self._read_bytes,
        )

    async def _read(self, around: Surroundings, size: int) -> tuple[Sound, CorruptMessageError | None, bytes]:
        self._log.durability.check()
        data_size = min(size + HEADER_SIZE, self._size - around.position)
        found = await self._segment.file.read_with(data_size, around.position, partial(_checked, around))
        self._read_bytes += data_size
        if self._pace is not None:
            await self._pace(data_size)
        if len(found[2]) < data_size and found[1] is None:
            fault = CorruptMessageError("the file is shorter than it was", path=around.path, position=found[0].end)
            return found[0], fault, found[2]
        return found

    def _follow(self, position: int, header: BatchHeader) -> None:
        if position in self._entries:
            self._places[position] = header
        self._times[header.last_offset] = header.max_timestamp

    async def _skip(self, fault: CorruptMessageError, position: int, expected: Offset) -> tuple[int, Offset]:
        """From where on it is sound again, and with which offset."""
        candidates = [at for at in sorted(self._entries) if at > position]
        head = await self._segment.file.read(HEADER_SIZE, position)
        if len(head) == HEADER_SIZE:
            header = read_header(head, 0)
            if HEADER_SIZE <= header.size_bytes < self._size - position:
                candidates.insert(0, position + header.size_bytes)
        for candidate in candidates:
            found = await self._sound_at(candidate, expected)
            if found is not None:
                self._add(position, candidate, expected, found, fault.reason)
                return candidate, found
        self._add(position, self._size, expected, self._bound, fault.reason)
        return self._size, self._bound

    async def _sound_at(self, position: int, expected: Offset) -> Offset | None:
        """The base offset of the batch there, if it is a sound one that comes after `expected`."""
        head = await self._segment.file.read(HEADER_SIZE, position)
        if len(head) < HEADER_SIZE:
            return None
        header = read_header(head, 0)
        if header.magic != MAGIC or not HEADER_SIZE <= header.size_bytes <= self._size - position:
            return None
        known = self._entries.get(position)
        around = Surroundings(
            path="",
            position=position,
            stop=position + header.size_bytes,
            expected=expected,
            first_last_offset=known,
            bound=self._bound,
            epochs=self._log.epochs.entries,
        )
        wanted = min(header.size_bytes + HEADER_SIZE, self._size - position)
        sound, fault, _ = await self._segment.file.read_with(wanted, position, partial(_checked, around))
        return None if fault is not None or not sound.batches else sound.batches[0][1].base_offset

    def _add(self, position: int, end_position: int, begin: Offset, end: Offset, reason: str) -> None:
        if begin < end:
            path = self._segment.path(names.LOG)
            self._damages.append(
                DamagedRange(
                    path=path,
                    position=position,
                    end_position=end_position,
                    begin_offset=begin,
                    end_offset=end,
                    reason=reason,
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
        try:
            for entry in segment.time_index.entries():
                if entry.offset < self._bound and self._times.get(entry.offset) != entry.timestamp_ms:
                    self._index_fault = f"{segment.path(names.TIME_INDEX)}: no batch {entry.offset} of that time"
                    return
        except DamagedFileError as e:
            self._index_fault = str(e)


def _checked(around: Surroundings, data: bytes) -> tuple[Sound, CorruptMessageError | None, bytes]:
    sound, fault = sound_prefix(data, around)
    return sound, fault, data


def _needed(data: bytes, left: int) -> int:
    """How much to read for the batch that `data` begins with; 0: more than there is."""
    if len(data) < HEADER_SIZE:
        return 0
    size = LOG_OVERHEAD + int.from_bytes(data[8:LOG_OVERHEAD], "big")
    return size if len(data) < size <= left else 0
