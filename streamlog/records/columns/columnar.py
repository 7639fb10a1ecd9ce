"""Decode a batch by column: the position of each field of each record, without a Python object per record.

Once the starts of the records are known (`starts`), their fields are found one after the other for all records at
once: numpy reads the n-th byte of every record's varint in one step. `RecordColumns` points into the unpacked bytes and
copies nothing; `binary_column` concatenates the values for Arrow. Headers are the exception: they are read one record
at a time.

Whatever the plain loop refuses (`record_loop`) is refused here, with InvalidRecordError; the two are tested against
each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from streamlog.errors import InvalidRecordError
from streamlog.records.columns.binary_column import Strings
from streamlog.records.columns.equal_shape import EqualRecords, equal_records
from streamlog.records.columns.lazy_numpy import np
from streamlog.records.columns.starts import record_spans
from streamlog.records.compression.bounds import UNPACKED_BYTES_MAX
from streamlog.records.header import BatchHeader, Buffer, TimestampType, read_header
from streamlog.records.payload import unpacked_records
from streamlog.records.record import Headers
from streamlog.records.record_loop import checked_sum, read_headers, read_records, refusal
from streamlog.records.varint import ByteArray, Int64Array, read_varints, read_varlongs

# The records' bytes, the position of a header count, the record's end; the headers, and the position after them.
ReadHeaders: TypeAlias = Callable[[bytes, int, int], tuple[Headers, int]]


class ManyHeadersError(Exception):
    """The records have more header bytes than the caller allows, because headers are read one by one."""


class RecordColumns(Struct, frozen=True, kw_only=True):
    """The records of one batch, in order. A size of -1 is null; a start is a position in `raw`.

    Every range [start, start + size) lies within `raw`.
    """

    raw: bytes
    offsets: Int64Array
    timestamps: Int64Array  # ms since 1970
    key_starts: Int64Array
    key_sizes: Int64Array
    value_starts: Int64Array
    value_sizes: Int64Array
    headers: list[Headers] | None  # None: no record has any

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def keys(self) -> Strings:
        return Strings(self.raw, self.key_starts, self.key_sizes)

    @property
    def values(self) -> Strings:
        return Strings(self.raw, self.value_starts, self.value_sizes)


def decode_columns(buffer: Buffer, position: int = 0, *, unpacked_bytes_max: int = UNPACKED_BYTES_MAX) -> RecordColumns:
    """The records of the batch at `position`, by column. The CRC is not checked.

    Raises CorruptMessageError, InvalidRecordError, MessageTooLargeError, UnsupportedCompressionError.
    """
    header = read_header(buffer, position)
    return columns_of(unpacked_records(buffer, position, header, unpacked_bytes_max), header)


def columns_of(raw: bytes, header: BatchHeader) -> RecordColumns:
    """As `decode_columns`, of what `unpacked_records` gave for the batch."""
    if header.record_count == 0:
        if raw:
            raise refusal(0, "bytes follow the last record")
        none = np.empty(0, np.int64)
        return RecordColumns(
            raw=raw,
            offsets=none,
            timestamps=none,
            key_starts=none,
            key_sizes=none,
            value_starts=none,
            value_sizes=none,
            headers=None,
        )
    equal = equal_records(raw, header.record_count)
    if equal is not None:
        return _equal_columns(raw, header, equal)
    try:
        return _mixed_columns(raw, header)
    except InvalidRecordError:
        read_records(raw, header)  # finds the same fault, and its position
        raise


def columns_within(raw: bytes, header: BatchHeader, header_bytes_max: int | None, read: ReadHeaders) -> RecordColumns:
    """As `columns_of`, but errors lack the position of the wrong byte, which is expensive to find, and headers are what
    `read` returns. ManyHeadersError where the headers of the records exceed `header_bytes_max`.
    """
    return _mixed_columns(raw, header, header_bytes_max, read)


def _equal_columns(raw: bytes, header: BatchHeader, equal: EqualRecords) -> RecordColumns:
    count = header.record_count
    return RecordColumns(
        raw=raw,
        offsets=np.arange(count) + header.base_offset,
        timestamps=_equal_timestamps(header, equal.timestamp_deltas),
        key_starts=equal.key_starts,
        key_sizes=np.full(count, equal.key_size),
        value_starts=equal.value_starts,
        value_sizes=np.full(count, equal.value_size),
        headers=None,
    )


def _equal_timestamps(header: BatchHeader, deltas: Int64Array | int) -> Int64Array:
    if not isinstance(deltas, int):
        return _timestamps(header, deltas)
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return np.full(header.record_count, header.max_timestamp)
    return np.full(header.record_count, checked_sum(header.base_timestamp, deltas))


def _mixed_columns(
    raw: bytes, header: BatchHeader, header_bytes_max: int | None = None, read: ReadHeaders = read_headers
) -> RecordColumns:
    data = np.frombuffer(raw, np.uint8)
    spans = record_spans(raw, header.record_count)
    try:
        timestamp_deltas, at = read_varlongs(data, spans.bodies + 1)
        offset_deltas, at = read_varints(data, at)
        key_sizes, key_starts = read_varints(data, at)
        value_sizes, value_starts = read_varints(data, key_starts + np.maximum(key_sizes, 0))
        headers_at = value_starts + np.maximum(value_sizes, 0)
        first_bytes = data[headers_at]  # 0: no headers
        at = headers_at + 1
        headers: list[Headers] | None = None
        if bool(first_bytes.any()):
            if header_bytes_max is not None and int((spans.ends - at).sum()) > header_bytes_max:
                raise ManyHeadersError
            headers = _headers(raw, headers_at, first_bytes, spans.ends, at, read)
    except IndexError:
        raise refusal(len(raw), "the records are incomplete") from None
    if min(int(key_sizes.min()), int(value_sizes.min())) < -1 or bool((at != spans.ends).any()):
        raise refusal(0, "a record's fields do not fill it")
    return RecordColumns(
        raw=raw,
        offsets=_offsets(header, offset_deltas),
        timestamps=_timestamps(header, timestamp_deltas),
        key_starts=key_starts,
        key_sizes=key_sizes,
        value_starts=value_starts,
        value_sizes=value_sizes,
        headers=headers,
    )


def _offsets(header: BatchHeader, deltas: Int64Array) -> Int64Array:
    rising = bool((deltas[1:] > deltas[:-1]).all())
    if not rising or int(deltas[0]) < 0 or int(deltas[-1]) > header.last_offset_delta:
        raise InvalidRecordError("the offset deltas do not rise from 0 to the last one")
    return deltas + header.base_offset


def _timestamps(header: BatchHeader, deltas: Int64Array) -> Int64Array:
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return np.full(len(deltas), header.max_timestamp)
    checked_sum(header.base_timestamp, int(deltas.min()))
    checked_sum(header.base_timestamp, int(deltas.max()))
    return deltas + header.base_timestamp


def _headers(
    raw: bytes,
    positions: Int64Array,
    first_bytes: ByteArray,
    ends: Int64Array,
    after: Int64Array,
    read: ReadHeaders,
) -> list[Headers]:
    """The headers of each record; `after` gets the positions after them."""
    headers: list[Headers] = [()] * len(positions)
    for index in np.flatnonzero(first_bytes).tolist():
        headers[index], after[index] = read(raw, int(positions[index]), int(ends[index]))
    return headers
