"""Messages of magic 0 and 1: what Kafka wrote before 0.11, read and never written.

An entry of a message set, big-endian:

    offset        i64
    size          i32     of what follows
    crc           u32     CRC-32 (zlib's) of everything after it
    magic         i8      0 or 1
    attributes    i8      bits 0-2 codec (gzip, snappy, lz4), 3 timestamp type (magic 1)
    timestamp     i64     magic 1 only
    key           i32 length, -1 for null, and that many bytes
    value         likewise

Compression wraps: the value of the outer entry is a packed message set, whose entries have the same magic and no
codec of their own. The outer offset is that of the last inner entry. Inner offsets are absolute in magic 0 and
relative in magic 1, so that a broker could assign offsets without unpacking; with LogAppendTime the outer
timestamp is that of every inner entry (KIP-31, KIP-32).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from streamlog.errors import CorruptMessageError, InvalidRecordError, MessageTooLargeError, UnsupportedCompressionError
from streamlog.model import NO_TIMESTAMP, Offset
from streamlog.records.compression.bounds import UNPACKED_BYTES_MAX
from streamlog.records.compression.codecs import decompress
from streamlog.records.header import (
    BATCH_SIZE_MAX,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    TIMESTAMP_TYPE_BIT,
    Buffer,
    Codec,
    TimestampType,
    codec_of,
)
from streamlog.records.legacy.lz4_header import with_right_checksum
from streamlog.records.record import Record

LEGACY_MAGICS: Final = (0, 1)
WRAPPED_MAX: Final = 1 << 18
"""Messages of one wrapper: each takes a kilobyte while they are read, and compresses to almost nothing."""

_FRAME: Final = struct.Struct(">qiIbb")  # offset, size, crc, magic, attributes
_TIMESTAMP: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")
_CRC_START: Final = MAGIC_POSITION
_FIELDS_START: Final = _FRAME.size
# `size` of an entry with neither key nor value, by magic: crc, magic, attributes, timestamp, two lengths.
_SIZE_MIN: Final = (14, 22)


class LegacyEntry(NamedTuple):
    """One entry of a message set: a record, or the wrapper of many. Its CRC has been checked."""

    offset: Offset
    size: int  # bytes that follow the size field
    crc: int
    magic: int
    attributes: int
    timestamp: int  # -1 in magic 0
    key: bytes | None
    value: bytes | None

    @property
    def size_bytes(self) -> int:
        return LOG_OVERHEAD + self.size

    @property
    def codec(self) -> Codec:
        """NONE: this is a record; else its value holds others."""
        codec = codec_of(self.attributes)
        if codec is Codec.ZSTD:
            raise UnsupportedCompressionError(f"magic {self.magic} has no codec zstd", codec=int(codec))
        return codec

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == 1 and self.attributes & TIMESTAMP_TYPE_BIT:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME


def is_legacy(buffer: Buffer, position: int) -> bool:
    """Whether an entry of magic 0 or 1 begins there, as far as its magic says. False where the buffer ends before."""
    at = position + MAGIC_POSITION
    return at < len(buffer) and buffer[at] in LEGACY_MAGICS


def read_entry(buffer: Buffer, position: int, end: int) -> LegacyEntry:
    """The entry at `position`, which must end by `end`.

    Raises CorruptMessageError (incomplete, impossible size, unknown magic, CRC), InvalidRecordError (inner lengths).
    """
    size = _entry_size(buffer, position, end)
    if size is None or position + size > end:
        raise CorruptMessageError("the message is incomplete", position=position)
    offset, length, crc, magic, attributes = _FRAME.unpack_from(buffer, position)
    with memoryview(buffer) as view:
        message = bytes(view[position : position + size])
    if (computed := zlib.crc32(memoryview(message)[_CRC_START:])) != crc:
        reason = f"CRC mismatch: stored {crc:#010x}, computed {computed:#010x}"
        raise CorruptMessageError(reason, position=position, stored=crc, computed=computed)
    at = _FIELDS_START
    timestamp = NO_TIMESTAMP
    if magic == 1:
        (timestamp,) = _TIMESTAMP.unpack_from(message, at)
        at += _TIMESTAMP.size
    key, at = _read_bytes(message, at, position)
    value, at = _read_bytes(message, at, position)
    if at != size:
        raise InvalidRecordError(f"position {position}: {size - at} bytes after the value", position=position)
    return LegacyEntry(offset, length, crc, magic, attributes, timestamp, key, value)


def scan_entries(buffer: Buffer, start: int, end: int) -> Iterator[tuple[int, LegacyEntry]]:
    """Position and entry of each complete entry in `buffer[start:end]`; stops before an incomplete last one.

    Wrappers are not unwrapped. Errors as `read_entry`, except for an incomplete last entry.
    """
    position = start
    while position < end:
        size = _entry_size(buffer, position, end)
        if size is None or position + size > end:
            return
        yield position, read_entry(buffer, position, end)
        position += size


def entry_records(entry: LegacyEntry, *, unpacked_bytes_max: int = UNPACKED_BYTES_MAX) -> list[Record]:
    """The record that the entry is, or those that it wraps, with absolute offsets.

    Raises MessageTooLargeError when they unpack to more than the limit, or are more than WRAPPED_MAX,
    UnsupportedCompressionError, CorruptMessageError (a damaged stream, an inner CRC), InvalidRecordError (a wrapper in
    a wrapper, of another magic, of nothing).
    """
    if entry.codec is Codec.NONE:
        return [Record(entry.offset, entry.timestamp, entry.key, entry.value)]
    inner = _unwrapped(entry, unpacked_bytes_max)
    base = 0
    if entry.magic == 1:
        # Where that is negative the inner offsets are absolute; Kafka takes them as they are.
        base = max(entry.offset - inner[-1].offset, 0)
    log_append = entry.timestamp_type is TimestampType.LOG_APPEND_TIME
    return [
        Record(Offset(base + each.offset), entry.timestamp if log_append else each.timestamp, each.key, each.value)
        for each in inner
    ]


def unpacked_size(magic: int, record: Record) -> int:
    """Bytes of the message that holds the record, in the format of that magic."""
    return LOG_OVERHEAD + _SIZE_MIN[magic] + len(record.key or b"") + len(record.value or b"")


def _unwrapped(entry: LegacyEntry, unpacked_bytes_max: int) -> list[LegacyEntry]:
    if entry.value is None:
        raise InvalidRecordError("a compressed message without a value", offset=entry.offset)
    packed = entry.value
    if entry.magic == 0 and entry.codec is Codec.LZ4:
        packed = with_right_checksum(packed)
    message_set = decompress(entry.codec, packed, unpacked_bytes_max)
    inner: list[LegacyEntry] = []
    position = 0
    while position < len(message_set):
        try:
            each = read_entry(message_set, position, len(message_set))
        except CorruptMessageError as error:  # its position is one of the unpacked bytes
            reason = f"in the compressed message of offset {entry.offset}, byte {error.position}: {error.reason}"
            raise CorruptMessageError(reason, offset=entry.offset) from error
        if each.codec is not Codec.NONE or each.magic != entry.magic:
            reason = f"a message of magic {each.magic}, codec {each.codec.name}, in a compressed one"
            raise InvalidRecordError(reason, offset=entry.offset)
        inner.append(each)
        if len(inner) > WRAPPED_MAX:
            raise MessageTooLargeError(
                f"the compressed message of offset {entry.offset} holds more than {WRAPPED_MAX} others",
                limit=WRAPPED_MAX,
            )
        position += each.size_bytes
    if not inner:
        raise InvalidRecordError("a compressed message without messages", offset=entry.offset)
    return inner


def _entry_size(buffer: Buffer, position: int, end: int) -> int | None:
    """Size of the whole entry; None where it ends before its magic. The rest may be missing."""
    if end - position <= MAGIC_POSITION:
        return None
    (size,) = _LENGTH.unpack_from(buffer, position + 8)
    magic = buffer[position + MAGIC_POSITION]
    if magic not in LEGACY_MAGICS:
        raise CorruptMessageError(f"unknown magic {magic}", position=position, magic=magic)
    if not _SIZE_MIN[magic] <= size <= BATCH_SIZE_MAX - LOG_OVERHEAD:
        raise CorruptMessageError(f"impossible message size {size}", position=position, length=size)
    return LOG_OVERHEAD + int(size)


def _read_bytes(message: bytes, at: int, position: int) -> tuple[bytes | None, int]:
    if len(message) - at < _LENGTH.size:
        raise InvalidRecordError(f"position {position}: the message ends before a length", position=position)
    (size,) = _LENGTH.unpack_from(message, at)
    at += _LENGTH.size
    if size == -1:
        return None, at
    if not 0 <= size <= len(message) - at:
        raise InvalidRecordError(f"position {position}: a field of {size} bytes", position=position)
    return message[at : at + size], at + size
