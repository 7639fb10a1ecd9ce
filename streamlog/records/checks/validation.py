"""The leader's checks of a producer's batch, before the batch gets its offset.

The header, the CRC, and each record, inside its compression (`record_check`): a batch that cannot be decoded would stop
all consumers at its offset. For a topic that trusts its producers (`record.validation.enable=false`) only the header
and the CRC are checked, with two exceptions: in a compacted topic every record must have a key, and a compressed batch
must not unpack to more than the limit (unpacked_size.py).

There are two kinds of errors. Bytes that did not arrive as they were sent are CORRUPT_MESSAGE, and worth a retry:
incomplete, trailing bytes, CRC. Bytes that arrived and are invalid are refused by the rule that they break, and would
be refused again. So the CRC is checked before the rules about fields.

The max timestamp of the header must be that of the records, because the time index is built from it. The base timestamp
only has to be valid. For trusted producers neither is checked: a wrong one harms lookups by time in the partition.
"""

from __future__ import annotations

import struct
from typing import Final, NoReturn

from msgspec import Struct

from streamlog.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    StreamlogError,
    UnsupportedVersionError,
)
from streamlog.model import NO_PRODUCER_ID, NO_TIMESTAMP
from streamlog.records.checks.record_check import check_records
from streamlog.records.columns.columnar import decode_columns
from streamlog.records.compression.bounds import UNPACKED_BYTES_MAX
from streamlog.records.compression.unpacked_size import check_unpacked_size
from streamlog.records.header import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    Buffer,
    Codec,
    TimestampType,
    check_crc,
    codec_of,
    read_header,
)
from streamlog.records.record_loop import RECORD_MIN

_LENGTH: Final = struct.Struct(">i")
_BROKERS_BITS: Final = CONTROL_BIT | DELETE_HORIZON_BIT | TIMESTAMP_TYPE_BIT


class ProduceLimits(Struct, frozen=True, kw_only=True):
    """A topic's settings that bound what may be appended to it."""

    message_bytes_max: int  # `max.message.bytes`: size of one batch, 12 + length, as it arrives
    timestamp_type: TimestampType = TimestampType.CREATE_TIME  # `message.timestamp.type`
    timestamp_before_max_ms: int = 2**63 - 1  # `message.timestamp.before.max.ms`
    timestamp_after_max_ms: int = 3_600_000  # `message.timestamp.after.max.ms` (KIP-937: one hour)
    keys_required: bool = False  # `cleanup.policy` has compact: a record without a key could never be removed
    unpacked_bytes_max: int = UNPACKED_BYTES_MAX  # what a batch may unpack to where it has to be unpacked
    check_records: bool = True  # `record.validation.enable`


def validate(
    buffer: Buffer, start: int, end: int, limits: ProduceLimits, now_ms: int, *, header_bytes_max: int | None = None
) -> list[tuple[int, BatchHeader]]:
    """Check the batches in `buffer[start:end]`, sent for one partition; position and header of each, in order.

    All or nothing: the first bad batch raises, with its position in the error's details. Raises
    CorruptMessageError (incomplete, trailing bytes, CRC), InvalidRecordError (lengths, counts, control batch,
    producer fields, no batch at all), UnsupportedVersionError (magic), UnsupportedCompressionError,
    MessageTooLargeError, InvalidTimestampError. ManyHeadersError as `check_records`.
    """
    batches: list[tuple[int, BatchHeader]] = []
    position = start
    while position < end:
        header = _framed(buffer, position, end, limits.message_bytes_max)
        check_crc(buffer, position, header)
        codec = codec_of(header.attributes)
        _check_fields(header, position)
        _check_count(header, position, codec, limits)
        if limits.timestamp_type is TimestampType.CREATE_TIME:
            _check_timestamps(header.base_timestamp, header.max_timestamp, position, limits, now_ms)
        if limits.check_records:
            _check_records(buffer, position, header, limits, now_ms, header_bytes_max)
        elif limits.keys_required:
            _check_keys(buffer, position, limits)
        elif codec is not Codec.NONE:
            packed = memoryview(buffer)[position + HEADER_SIZE : position + header.size_bytes]
            check_unpacked_size(codec, packed, limits.unpacked_bytes_max)
        batches.append((position, header))
        position += LOG_OVERHEAD + header.length
    if not batches:
        raise InvalidRecordError("no record batch was sent")
    return batches


def _framed(buffer: Buffer, position: int, end: int, size_bytes_max: int) -> BatchHeader:
    """The header of a batch whose length and magic are valid and whose bytes are complete."""
    left = end - position
    if left >= HEADER_SIZE:
        header = read_header(buffer, position)
        size = header.length + LOG_OVERHEAD
        if header.magic == MAGIC and HEADER_SIZE <= size <= left and size <= size_bytes_max:
            return header
    raise _frame_error(buffer, position, left, size_bytes_max)


def _frame_error(buffer: Buffer, position: int, left: int, size_bytes_max: int) -> StreamlogError:
    """Why `left` bytes are no whole batch of at most `size_bytes_max`; the fields in the order in which they can be
    trusted.
    """
    if left <= MAGIC_POSITION:
        return CorruptMessageError(f"{left} trailing bytes are not a record batch", position=position)
    magic = buffer[position + MAGIC_POSITION]
    if magic != MAGIC:
        return UnsupportedVersionError(
            f"record format magic {magic} is not {MAGIC}", field="magic", magic=magic, position=position
        )
    (length,) = _LENGTH.unpack_from(buffer, position + 8)
    size = length + LOG_OVERHEAD
    if size < HEADER_SIZE:
        return InvalidRecordError(f"impossible batch length {length}", field="length", position=position)
    if size > left:
        reason = f"the batch is incomplete: {size} bytes announced, {left} sent"
        return CorruptMessageError(reason, position=position, length=length)
    return MessageTooLargeError(
        f"a batch of {size} bytes exceeds max.message.bytes={size_bytes_max}",
        field="max.message.bytes",
        limit=size_bytes_max,
        size_bytes=size,
        position=position,
    )


def _check_fields(header: BatchHeader, position: int) -> None:
    """The rules that need no setting and no clock (Kafka's LogValidator, for batches from clients)."""
    if header.record_count <= 0:
        _refuse(position, "record_count", f"record count {header.record_count}")
    if header.last_offset_delta != header.record_count - 1:
        reason = f"last offset delta {header.last_offset_delta} does not fit {header.record_count} records"
        _refuse(position, "last_offset_delta", reason)
    if header.attributes & _BROKERS_BITS:
        _refuse_attributes(header, position)
    if header.producer_id >= 0:
        if header.producer_epoch < 0:
            _refuse(position, "producer_epoch", f"producer epoch {header.producer_epoch} with a producer id")
        if header.base_sequence < 0:
            _refuse(position, "base_sequence", f"base sequence {header.base_sequence} with a producer id")
    elif header.producer_id != NO_PRODUCER_ID:
        _refuse(position, "producer_id", f"producer id {header.producer_id}")
    elif header.is_transactional:
        # Without a producer id epoch and sequence are not used, and some clients leave a 0 in the sequence.
        _refuse(position, "producer_id", "a transactional batch without a producer id")


def _refuse_attributes(header: BatchHeader, position: int) -> NoReturn:
    """One of the bits that only a broker sets."""
    if header.is_control:
        _refuse(position, "attributes", "a client must not write control batches")
    if header.has_delete_horizon:
        _refuse(position, "attributes", "a client must not set a delete horizon")
    reason = "a client must not set the timestamp type LogAppendTime"
    raise InvalidTimestampError(f"position {position}: {reason}", field="attributes", position=position)


def _check_count(header: BatchHeader, position: int, codec: Codec, limits: ProduceLimits) -> None:
    """A batch must not take more offsets than it can have records: otherwise 70 bytes could use up 2^31 of them."""
    packed = header.length + LOG_OVERHEAD - HEADER_SIZE
    unpacked = packed if codec is Codec.NONE else limits.unpacked_bytes_max
    if header.record_count > unpacked // RECORD_MIN:
        _refuse(position, "record_count", f"{packed} bytes are not {header.record_count} records")


def _refuse(position: int, field: str, reason: str) -> NoReturn:
    raise InvalidRecordError(f"position {position}: {reason}", field=field, position=position)


def _check_records(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    limits: ProduceLimits,
    now_ms: int,
    header_bytes_max: int | None,
) -> None:
    try:
        smallest, largest = check_records(
            buffer,
            position,
            header,
            keys_required=limits.keys_required,
            unpacked_bytes_max=limits.unpacked_bytes_max,
            header_bytes_max=header_bytes_max,
        )
    except InvalidRecordError as error:
        raise InvalidRecordError(
            f"position {position}: {error.message}", **{**error.details, "position": position}
        ) from None
    if limits.timestamp_type is TimestampType.CREATE_TIME:
        if largest != header.max_timestamp or smallest != header.base_timestamp:  # others than were checked before
            _check_timestamps(smallest, largest, position, limits, now_ms)
        if largest != header.max_timestamp:
            reason = f"max timestamp {header.max_timestamp}, but the largest of the records is {largest}"
            _refuse(position, "max_timestamp", reason)


def _check_keys(buffer: Buffer, position: int, limits: ProduceLimits) -> None:
    columns = decode_columns(buffer, position, unpacked_bytes_max=limits.unpacked_bytes_max)
    if int(columns.key_sizes.min()) < 0:
        _refuse(position, "key", "a record without a key in a compacted topic")


def _check_timestamps(first: int, largest: int, position: int, limits: ProduceLimits, now_ms: int) -> None:
    if first < NO_TIMESTAMP or largest < NO_TIMESTAMP:
        raise InvalidTimestampError(f"negative timestamp {min(first, largest)}", field="timestamp", position=position)
    if largest - now_ms > limits.timestamp_after_max_ms:
        raise InvalidTimestampError(
            f"timestamp {largest} is more than {limits.timestamp_after_max_ms} ms after the broker's {now_ms}",
            field="message.timestamp.after.max.ms",
            limit=limits.timestamp_after_max_ms,
            position=position,
        )
    if first != NO_TIMESTAMP and now_ms - first > limits.timestamp_before_max_ms:
        raise InvalidTimestampError(
            f"timestamp {first} is more than {limits.timestamp_before_max_ms} ms before the broker's {now_ms}",
            field="message.timestamp.before.max.ms",
            limit=limits.timestamp_before_max_ms,
            position=position,
        )
