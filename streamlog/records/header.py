"""The header of a record batch (magic 2): its layout, and everything that a broker may do without decoding records.

A batch on disk and on the wire, big-endian (Kafka's "Record Batch"):

    byte  0  base offset            i64   \\
          8  length                 i32    | the prefix: the only bytes that a broker rewrites, and the only
         12  partition leader epoch i32   /  ones before the magic that the CRC does not cover
         16  magic                  i8      2
         17  crc                    u32     CRC-32C of everything from byte 21 to the end
         21  attributes             i16     bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control,
                                            6 delete horizon
         23  last offset delta      i32
         27  base timestamp         i64     of the first record; with a delete horizon: that horizon (KIP-534)
         35  max timestamp          i64     with LogAppendTime: the timestamp of every record
         43  producer id            i64
         51  producer epoch         i16
         53  base sequence          i32
         57  record count           i32
         61  records, compressed as one stream if there is a codec

Lengths count the bytes that follow the length field, so a batch is 12 + length bytes long. A length is bounded
before it is used, and the magic is at byte 16 in every version of the format, so both can be checked before anything
else is trusted. Nothing here allocates by a number from the bytes.

Positions are bytes from the start of the given buffer; callers that know the file add its name.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from streamlog.errors import CorruptMessageError, UnsupportedCompressionError
from streamlog.model import INT32_MAX, LeaderEpoch, Offset, ProducerEpoch, ProducerId

Buffer: TypeAlias = bytes | bytearray | memoryview

HEADER_SIZE: Final = 61
LOG_OVERHEAD: Final = 12  # base offset and length, which `length` does not count
PREFIX_SIZE: Final = 16
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
CRC_START: Final = 21  # first byte that the CRC covers
ATTRIBUTES_POSITION: Final = 21
MAX_TIMESTAMP_POSITION: Final = 35

MAGIC: Final = 2
# A segment file is at most 2^31-1 bytes long (index positions are int32), so a batch is as well.
BATCH_SIZE_MAX: Final = INT32_MAX

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_PREFIX: Final = struct.Struct(">qii")
_LENGTH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_TIMESTAMP: Final = struct.Struct(">q")


class Codec(enum.IntEnum):
    """Compression of the records of a batch: attribute bits 0-2."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(enum.IntEnum):
    """Who set the timestamps: attribute bit 3."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


_CODECS: Final = tuple(Codec)
_CODEC_MAX: Final = int(Codec.ZSTD)
_TIMESTAMP_TYPES: Final = tuple(TimestampType)


def codec_of(attributes: int) -> Codec:
    """The codec that a batch's (or a legacy message's) attributes name; UnsupportedCompressionError for 5 to 7."""
    number = attributes & CODEC_MASK
    if number > _CODEC_MAX:
        raise UnsupportedCompressionError(f"unknown compression codec {number}", codec=number)
    return _CODECS[number]


class BatchHeader(NamedTuple):
    """All fields of a batch's header, in the order of the bytes, unchecked."""

    base_offset: Offset
    length: int  # bytes that follow the length field
    leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int  # record_count - 1 when produced; compaction keeps it when it removes records
    base_timestamp: int
    max_timestamp: int
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return LOG_OVERHEAD + self.length

    @property
    def last_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record (2^31-1 is followed by 0), or -1 where the batch has none."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & INT32_MAX

    @property
    def codec(self) -> Codec:
        return codec_of(self.attributes)

    @property
    def timestamp_type(self) -> TimestampType:
        return _TIMESTAMP_TYPES[(self.attributes & TIMESTAMP_TYPE_BIT) >> 3]

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """True: `base_timestamp` is the time (ms) from which compaction may drop the batch's tombstones."""
        return bool(self.attributes & DELETE_HORIZON_BIT)

    @property
    def has_producer(self) -> bool:
        return self.producer_id >= 0


def read_header(buffer: Buffer, position: int) -> BatchHeader:
    """The header at `position`, which need not be followed by its records. No field is checked.

    Raises CorruptMessageError where fewer than HEADER_SIZE bytes follow.
    """
    try:
        return BatchHeader._make(_HEADER.unpack_from(buffer, position))
    except struct.error:
        raise CorruptMessageError("the batch header is incomplete", position=position) from None


def scan_headers(
    buffer: Buffer, start: int, end: int, *, size_bytes_max: int = BATCH_SIZE_MAX
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each complete batch in `buffer[start:end]`; stops before an incomplete last one.

    The CRC is not checked. Raises CorruptMessageError, with the position of the batch, for a length that no batch
    can have (negative, shorter than a header, over `size_bytes_max`) and for a magic that is not 2. A length
    within the bounds that reaches beyond `end` is an incomplete batch: whether it is a torn tail or damage, only
    the caller can know.
    """
    position = start
    unpack, make = _HEADER.unpack_from, BatchHeader._make
    while end - position >= LOG_OVERHEAD:
        (length,) = _LENGTH.unpack_from(buffer, position + 8)
        size = length + LOG_OVERHEAD
        if not HEADER_SIZE <= size <= size_bytes_max:
            raise CorruptMessageError(f"impossible batch length {length}", position=position, length=length)
        if end - position <= MAGIC_POSITION:
            return
        if buffer[position + MAGIC_POSITION] != MAGIC:
            magic = buffer[position + MAGIC_POSITION]
            raise CorruptMessageError(f"unknown magic {magic}", position=position, magic=magic)
        if size > end - position:
            return
        yield position, make(unpack(buffer, position))
        position += size


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raise CorruptMessageError unless the whole batch is in the buffer and matches its CRC.

    `header` is what `read_header` gave for `position`; its length must have been bounded already.
    """
    end = position + LOG_OVERHEAD + header.length
    if not position + HEADER_SIZE <= end <= len(buffer):
        raise CorruptMessageError("the batch is incomplete", position=position, length=header.length)
    crc = crc32c(memoryview(buffer)[position + CRC_START : end])
    if crc != header.crc:
        reason = f"CRC mismatch: stored {header.crc:#010x}, computed {crc:#010x}"
        raise CorruptMessageError(reason, position=position, stored=header.crc, computed=crc)


def stamp(base_offset: int, length: int, leader_epoch: int) -> bytes:
    """The 16 bytes that the leader writes over the producer's. The CRC does not cover them."""
    return _PREFIX.pack(base_offset, length, leader_epoch)


def restamp_log_append_time(batch: bytearray | memoryview, timestamp_ms: int) -> None:
    """Change a batch to LogAppendTime, in place: attribute bit 3, max timestamp, and the CRC over both.

    The records keep their deltas; a reader takes the max timestamp for each of them. `batch` begins with the
    batch and may be longer. Raises CorruptMessageError where it is shorter than its length says.
    """
    header = read_header(batch, 0)
    if not HEADER_SIZE <= header.size_bytes <= len(batch):
        raise CorruptMessageError("the batch is incomplete", position=0, length=header.length)
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_POSITION, header.attributes | TIMESTAMP_TYPE_BIT)
    _TIMESTAMP.pack_into(batch, MAX_TIMESTAMP_POSITION, timestamp_ms)
    with memoryview(batch) as view, view[CRC_START : header.size_bytes] as covered:
        crc = crc32c(covered)
    _CRC.pack_into(batch, CRC_POSITION, crc)
