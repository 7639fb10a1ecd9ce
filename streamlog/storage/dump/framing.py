"""The positions of the batches of a log: from one to the next by their lengths, and past damage by searching.

Lengths lead from batch to batch, so one wrong length loses all that follows. Two rules recover the rest:

- After a batch with a wrong CRC, reading continues at its end if an intact batch is there (only its content is
  damaged).
- Otherwise the next batch of magic 2 is searched byte by byte: a plausible header, and a CRC that is right.

The CRC covers neither base offset nor leader epoch; that offsets rise is checked here instead.

No length is used before it is bounded by the file. At most one chunk is in memory, whatever the lengths say; the search
gives up after a number of bytes that is proportional to the file's size.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Final

from crc32c import crc32c

from streamlog.errors import DamagedFileError
from streamlog.model import Offset
from streamlog.ports import File
from streamlog.records import BatchHeader, Codec, TimestampType, read_header
from streamlog.records.header import CRC_START, HEADER_SIZE, LOG_OVERHEAD, MAGIC, MAGIC_POSITION
from streamlog.storage.dump.items import Batch, Damage

CHUNK_BYTES: Final = 1 << 20
_SEARCH_FACTOR: Final = 8  # bytes that a search may checksum, as a multiple of the file's size

_KNOWN_ATTRIBUTES: Final = 0x7F
_TIMESTAMP_TYPES: Final = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}
_CODECS: Final = tuple(codec.name.lower() for codec in Codec)

# Magic 0 and 1: offset i64, size i32, then `size` bytes: crc u32, magic i8, attributes i8, with magic 1 timestamp
# i64, key length i32, key, value length i32, value. The CRC-32 covers all from the magic on.
_LEGACY_HEAD: Final = struct.Struct(">qiIbb")
_LEGACY_CRC_START: Final = MAGIC_POSITION
_LEGACY_TIMESTAMP: Final = struct.Struct(">q")
_LEGACY_SIZE_MIN: Final = (26, 34)
_LENGTH: Final = struct.Struct(">i")


class Framing:
    """The batches of one log file. Not safe for concurrent use."""

    def __init__(self, log: File) -> None:
        self._log = log
        self._size = log.size()
        self._chunk = memoryview(b"")
        self._chunk_start = 0

    def frames(self, start_offset: Offset) -> Iterator[Batch | Damage]:
        """Every batch, in file order, with the damage in between; no batch begins below `start_offset`."""
        position, last_offset = 0, Offset(start_offset - 1)
        while position < self._size:
            batch = self._frame(position)
            if isinstance(batch, str):
                found = self._search(position + 1)
                yield Damage(position=position, reason=f"{batch}; {self._what_follows(found)}")
                if found is None:
                    return
                position = found
                continue
            yield from _offset_damage(batch, last_offset)
            yield batch
            last_offset = batch.last_offset
            position = batch.position + batch.size_bytes
            if not batch.is_valid:
                reason = f"the batch of offset {batch.base_offset} does not match its CRC {batch.crc:#010x}"
                if position != self._size and not self._is_intact(position):
                    found = self._search(batch.position + 1)
                    reason = f"{reason}, nor does an intact one follow it; {self._what_follows(found)}"
                    position = self._size if found is None else found
                yield Damage(position=batch.position, reason=reason)

    def batch_at(self, position: int) -> Batch | None:
        """The batch that begins there; None where none does."""
        batch = self._frame(position) if 0 <= position < self._size else ""
        return None if isinstance(batch, str) else batch

    def content(self, batch: Batch) -> memoryview:
        """All bytes of a batch that was found here. Valid until the next call."""
        return self._view(batch.position, batch.size_bytes)

    def _is_intact(self, position: int) -> bool:
        batch = self._frame(position)
        return not isinstance(batch, str) and batch.is_valid

    def _frame(self, position: int) -> Batch | str:
        """The batch at `position`, or why there is none."""
        left = self._size - position
        head = self._view(position, min(left, HEADER_SIZE))
        if not any(head) and self._is_zero_from(position):
            return f"{left} bytes of zeros: preallocated, or never written"
        if left <= MAGIC_POSITION:
            return f"an incomplete batch: {left} bytes are less than any batch has"
        magic = head[MAGIC_POSITION]
        (length,) = _LENGTH.unpack_from(head, LOG_OVERHEAD - _LENGTH.size)
        if magic > MAGIC:
            return f"unknown magic {magic}"
        size = LOG_OVERHEAD + length
        if size < (HEADER_SIZE if magic == MAGIC else _LEGACY_SIZE_MIN[magic]):
            return f"impossible length {length}"
        if size > left:
            return f"an incomplete batch: {size} bytes announced, {left} found"
        return self._batch(position, read_header(head, 0)) if magic == MAGIC else self._legacy(position, head)

    def _batch(self, position: int, header: BatchHeader) -> Batch:
        known = not header.attributes & ~_KNOWN_ATTRIBUTES and header.attributes & 0x07 < len(_CODECS)
        crc = self._crc(position + CRC_START, position + header.size_bytes, crc32c)
        return Batch(
            position=position,
            size_bytes=header.size_bytes,
            magic=header.magic,
            is_valid=known and crc == header.crc,
            crc=header.crc,
            codec=_codec_name(header.attributes),
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            timestamp_type=_TIMESTAMP_TYPES[header.timestamp_type],
            max_timestamp_ms=header.max_timestamp,
            record_count=header.record_count,
            leader_epoch=header.leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            last_sequence=header.last_sequence,
            is_transactional=header.is_transactional,
            is_control=header.is_control,
            delete_horizon_ms=header.base_timestamp if header.has_delete_horizon else None,
        )

    def _legacy(self, position: int, head: memoryview) -> Batch:
        offset, length, crc, magic, attributes = _LEGACY_HEAD.unpack_from(head)
        end = position + LOG_OVERHEAD + length
        timestamp_type = "NoTimestampType"
        timestamp_ms = -1
        if magic == 1:
            timestamp_type = _TIMESTAMP_TYPES[TimestampType((attributes >> 3) & 1)]
            (timestamp_ms,) = _LEGACY_TIMESTAMP.unpack_from(head, _LEGACY_HEAD.size)
        return Batch(
            position=position,
            size_bytes=end - position,
            magic=magic,
            is_valid=self._crc(position + _LEGACY_CRC_START, end, zlib.crc32) == crc,
            crc=crc,
            codec=_codec_name(attributes),
            base_offset=Offset(offset),
            last_offset=Offset(offset),
            timestamp_type=timestamp_type,
            max_timestamp_ms=timestamp_ms,
        )

    def _what_follows(self, found: int | None) -> str:
        return "no intact batch follows" if found is None else f"the next intact batch begins at position {found}"

    def _search(self, start: int) -> int | None:
        """Position of the next intact batch of magic 2, at or after `start`."""
        budget = _SEARCH_FACTOR * self._size
        for position in self._candidates(start):
            batch = self._frame(position)
            if isinstance(batch, str):
                continue
            if batch.is_valid:
                return position
            budget -= batch.size_bytes
            if budget < 0:
                return None
        return None

    def _candidates(self, start: int) -> Iterator[int]:
        """Positions whose byte 16 is the magic, and whose header could be a batch's."""
        overlap = HEADER_SIZE - 1
        while self._size - start >= HEADER_SIZE:
            chunk = self._log.pread(CHUNK_BYTES + overlap, start)
            at = chunk.find(MAGIC, MAGIC_POSITION, len(chunk) - overlap + MAGIC_POSITION)
            while at >= 0:
                if _could_be(read_header(chunk, at - MAGIC_POSITION)):
                    yield start + at - MAGIC_POSITION
                at = chunk.find(MAGIC, at + 1, len(chunk) - overlap + MAGIC_POSITION)
            start += len(chunk) - overlap
            start = max(start, self._log.data_from(start) - overlap)  # a hole contains no header

    def _is_zero_from(self, position: int) -> bool:
        start = self._log.data_from(position)
        while start < self._size:
            if self._log.pread(CHUNK_BYTES, start).strip(b"\0"):
                return False
            start = self._log.data_from(start + CHUNK_BYTES)
        return True

    def _crc(self, start: int, end: int, crc: Callable[[memoryview, int], int]) -> int:
        computed = 0
        while start < end:
            size = min(CHUNK_BYTES, end - start)
            computed = crc(self._view(start, size), computed)
            start += size
        return computed

    def _view(self, position: int, size: int) -> memoryview:
        """The bytes at `position`, all of them in the file."""
        begin = position - self._chunk_start
        if begin < 0 or begin + size > len(self._chunk):
            self._chunk = memoryview(self._log.pread(max(size, CHUNK_BYTES), position))
            self._chunk_start, begin = position, 0
            if len(self._chunk) < size:
                raise DamagedFileError(self._log.path, position, "the file became shorter while it was read")
        return self._chunk[begin : begin + size]


def _codec_name(attributes: int) -> str:
    number = attributes & 0x07
    return _CODECS[number] if number < len(_CODECS) else f"unknown({number})"


def _could_be(header: BatchHeader) -> bool:
    return (
        header.length >= HEADER_SIZE - LOG_OVERHEAD
        and header.base_offset >= 0
        and not header.attributes & ~_KNOWN_ATTRIBUTES
        and header.record_count >= 0
        and header.last_offset_delta >= max(0, header.record_count - 1)
        and header.producer_id >= -1
    )


def _offset_damage(batch: Batch, last_offset: Offset) -> Iterator[Damage]:
    if batch.base_offset <= last_offset:
        reason = f"base offset {batch.base_offset} comes after offset {last_offset}: offsets must rise"
        yield Damage(position=batch.position, reason=reason)
    elif batch.last_offset < batch.base_offset:
        yield Damage(position=batch.position, reason=f"last offset {batch.last_offset} is below the base offset")
