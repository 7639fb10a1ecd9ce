"""The leader's checks of the records of a client's batch, inside their compression (Kafka's LogValidator).

    unpacked size           at most the limit, and at most what the stream announces
    count                   as many records as the header says fill the bytes exactly
    offset deltas           0, 1, 2 ... last offset delta
    lengths                 of keys, values and headers within their record
    headers                 names UTF-8, at most HEADERS_MAX
    keys                    present, where the topic is compacted
    timestamps              64 bits; the extremes are returned, for the header and the topic's bounds

Every reader can decode what passes: the tests compare with the plain decoder (`record_loop`).

Where the optional kernel is installed, it looks first (`kernel`), and most batches need no more. What it does not
accept is checked here.

Three ways, whichever is cheapest: records of one shape by byte (`equal_shape`), few records one at a time, many by
column (`columnar`). A batch of very many records is checked in windows, so that the columns' memory is bounded: a
compressed batch of 1 MiB may contain millions of records, and headers, of which none is kept.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from streamlog.errors import CorruptMessageError, InvalidRecordError, MessageTooLargeError
from streamlog.model import NO_TIMESTAMP
from streamlog.records.checks.kernel import valid_times
from streamlog.records.columns.columnar import ManyHeadersError, RecordColumns, columns_within
from streamlog.records.columns.equal_shape import EqualRecords, equal_records
from streamlog.records.compression.bounds import too_large
from streamlog.records.compression.codecs import decompress
from streamlog.records.compression.unpacked_size import unpacked_size_max
from streamlog.records.header import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, Buffer, Codec, codec_of
from streamlog.records.record import Headers
from streamlog.records.record_loop import (
    RECORD_BODY_MIN,
    RECORD_MIN,
    checked_sum,
    header_count,
    read_field,
    refusal,
)
from streamlog.records.varint import read_varint, read_varlong

HEADERS_MAX: Final = 1 << 20
"""Of the records of a batch together. A header may be two bytes, and takes a reader eighty."""

# Up to this many records, looking for one shape (ten calls of numpy) costs more than the loop.
_TINY_COUNT_MAX: Final = 6
# Up to this many records of different shapes the loop is cheaper than the columns (some fifty calls).
_LOOP_COUNT_MAX: Final = 64
# At most this many records are in memory as columns at a time: about 100 bytes each.
_WINDOW_COUNT: Final = 1 << 16


class _HeaderCheck:
    """Of the headers of one batch, record by record."""

    def __init__(self) -> None:
        self._left = HEADERS_MAX

    def read(self, raw: bytes, position: int, end: int) -> tuple[Headers, int]:
        """In place of `read_headers`: keeps none of them."""
        count, position = header_count(raw, position, end)
        self._left -= count
        if self._left < 0:
            raise InvalidRecordError(
                f"the records have more than {HEADERS_MAX} headers", field="headers", limit=HEADERS_MAX
            )
        for _ in range(count):
            name, position = read_field(raw, position, end)
            if name is None:
                raise refusal(position, "a header without a key")
            _check_name(name)
            _, position = read_field(raw, position, end)
        return (), position


class _Rules(NamedTuple):
    keys_required: bool
    header_bytes_max: int | None
    headers: _HeaderCheck


class RecordTimes(NamedTuple):
    """The extremes of the records' timestamps, as CreateTime (ms since 1970). NO_TIMESTAMP counts only as `largest`."""

    smallest: int
    largest: int


def check_records(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    keys_required: bool,
    unpacked_bytes_max: int,
    header_bytes_max: int | None = None,
) -> RecordTimes:
    """Of the batch at `position`, whose CRC and header fields have been checked: record_count > 0, last_offset_delta
    fits it, the bytes are all there, the timestamp type is CreateTime.

    InvalidRecordError; MessageTooLargeError for what unpacks to more than `unpacked_bytes_max`; ManyHeadersError where
    the headers of the records exceed `header_bytes_max`, because then the check takes long.
    """
    count = header.record_count
    records = _unpacked(buffer, position, header, unpacked_bytes_max)
    if valid_times is not None:
        times = valid_times(records, count, header.base_timestamp, keys_required)
        if times is not None:
            return RecordTimes(*times)
    return _checked_in_python(bytes(records), header, _Rules(keys_required, header_bytes_max, _HeaderCheck()))


def _checked_in_python(raw: bytes, header: BatchHeader, rules: _Rules) -> RecordTimes:
    count = header.record_count
    if count > len(raw) // RECORD_MIN:
        raise InvalidRecordError(f"{len(raw)} bytes are not {count} records", field="record_count")
    if count <= _WINDOW_COUNT:
        return _check_window(raw, header, 0, rules)
    times: list[RecordTimes] = []
    start = 0
    for first in range(0, count, _WINDOW_COUNT):
        some = min(_WINDOW_COUNT, count - first)
        end = _end_of(raw, start, some)
        window = header._replace(record_count=some)
        times.append(_check_window(raw[start:end], window, first, rules))
        start = end
    if start != len(raw):
        raise refusal(start, "bytes follow the last record")
    stamped = [one.smallest for one in times if one.smallest != NO_TIMESTAMP]
    return RecordTimes(min(stamped, default=NO_TIMESTAMP), max(one.largest for one in times))


def _unpacked(buffer: Buffer, position: int, header: BatchHeader, size_bytes_max: int) -> Buffer:
    packed = memoryview(buffer)[position + HEADER_SIZE : position + LOG_OVERHEAD + header.length]
    codec = codec_of(header.attributes)
    if codec is Codec.NONE:
        return packed
    announced = unpacked_size_max(codec, packed)
    if codec is Codec.GZIP and announced > size_bytes_max:
        raise too_large(size_bytes_max)  # its trailer has the exact size: no need to unpack it
    try:
        return decompress(codec, packed, min(announced, size_bytes_max))
    except MessageTooLargeError:
        if announced >= size_bytes_max:
            raise
        reason = f"the {codec.name.lower()} stream unpacks to more than the {announced} bytes that it announces"
        raise InvalidRecordError(reason, field="batches") from None
    except CorruptMessageError as error:
        # The CRC is right, so the bytes arrived as they were sent: a retry is of no use.
        raise InvalidRecordError(f"the records do not unpack: {error.reason}", field="batches") from None


def _end_of(raw: bytes, position: int, count: int) -> int:
    """Where the records that begin at `position` end, by their lengths."""
    try:
        for _ in range(count):
            length, body = read_varint(raw, position)
            if length < RECORD_BODY_MIN:
                raise refusal(position, f"record length {length}")
            position = body + length
    except IndexError:
        raise refusal(len(raw), "the records are incomplete") from None
    if position > len(raw):
        raise refusal(len(raw), "the records are incomplete")
    return position


def _check_window(raw: bytes, header: BatchHeader, first: int, rules: _Rules) -> RecordTimes:
    """The `record_count` records that are `raw`; offset deltas count from `first`."""
    count = header.record_count
    if count <= _TINY_COUNT_MAX and first == 0:
        return _check_one_by_one(raw, header, rules)
    equal = equal_records(raw, count) if first == 0 else None
    if equal is not None:
        return _check_equal(header, equal, keys_required=rules.keys_required)
    if count <= _LOOP_COUNT_MAX and first == 0:
        return _check_one_by_one(raw, header, rules)
    columns = columns_within(raw, header, rules.header_bytes_max, rules.headers.read)
    return _check_columns(columns, header, first, keys_required=rules.keys_required)


def _check_equal(header: BatchHeader, equal: EqualRecords, *, keys_required: bool) -> RecordTimes:
    """`equal_records` has checked the offset deltas, and that there are no headers."""
    if keys_required and equal.key_size < 0:
        raise _without_key(0)
    base, deltas = header.base_timestamp, equal.timestamp_deltas
    if isinstance(deltas, int):
        both = checked_sum(base, deltas)
        return RecordTimes(both, both)
    largest = checked_sum(base, int(deltas.max()))
    smallest = checked_sum(base, int(deltas.min()))
    if smallest <= NO_TIMESTAMP < largest:
        stamped = deltas[deltas != NO_TIMESTAMP - base]
        smallest = base + int(stamped.min())
    return RecordTimes(smallest, largest)


def _check_columns(columns: RecordColumns, header: BatchHeader, first: int, *, keys_required: bool) -> RecordTimes:
    count = len(columns)
    offsets, times = columns.offsets, columns.timestamps
    # They rise strictly, so they are contiguous if first and last are.
    if int(offsets[0]) - header.base_offset != first or int(offsets[-1]) - header.base_offset != first + count - 1:
        raise InvalidRecordError(f"the offset deltas do not count from {first} to {first + count - 1}")
    if keys_required and int(columns.key_sizes.min()) < 0:
        raise _without_key(first)
    largest, smallest = int(times.max()), int(times.min())
    if smallest <= NO_TIMESTAMP < largest:
        smallest = int(times[times != NO_TIMESTAMP].min())
    return RecordTimes(smallest, largest)


def _check_one_by_one(raw: bytes, header: BatchHeader, rules: _Rules) -> RecordTimes:
    base = header.base_timestamp
    size = len(raw)
    header_bytes_left = size if rules.header_bytes_max is None else rules.header_bytes_max
    smallest: int | None = None
    largest = NO_TIMESTAMP
    position = 0
    try:
        for index in range(header.record_count):
            length, position = read_varint(raw, position)
            end = position + length
            if length < RECORD_BODY_MIN or end > size:
                raise refusal(position, f"record length {length}")
            timestamp_delta, position = read_varlong(raw, position + 1)
            delta, position = read_varint(raw, position)
            if delta != index:
                raise refusal(position, f"offset delta {delta} of record {index}")
            key_size, position = read_varint(raw, position)
            if key_size < 0 and rules.keys_required:
                raise _without_key(index)
            position = _behind(key_size, position, end)
            value_size, position = read_varint(raw, position)
            position = _behind(value_size, position, end)
            if position < end and raw[position] == 0:
                position += 1
            else:
                header_bytes_left -= end - position
                if header_bytes_left < 0:
                    raise ManyHeadersError
                _, position = rules.headers.read(raw, position, end)
            if position != end:
                raise refusal(position, "a record's fields do not fill it")
            timestamp = checked_sum(base, timestamp_delta)
            if timestamp != NO_TIMESTAMP:
                smallest = timestamp if smallest is None or timestamp < smallest else smallest
                largest = timestamp if timestamp > largest else largest
    except IndexError:
        raise refusal(position, "the records are incomplete") from None
    if position != size:
        raise refusal(position, "bytes follow the last record")
    return RecordTimes(NO_TIMESTAMP if smallest is None else smallest, largest)


def _behind(size: int, position: int, end: int) -> int:
    """The end of a field of `size` bytes at `position`; -1: null."""
    if size < -1:
        raise refusal(position, f"length {size}")
    if size > end - position:
        raise refusal(position, f"a field of {size} bytes does not fit its record")
    return position + size if size > 0 else position


def _check_name(name: bytes) -> None:
    if name.isascii():
        return
    try:
        name.decode()
    except UnicodeDecodeError:
        raise InvalidRecordError("the name of a header is not UTF-8", field="headers") from None


def _without_key(index: int) -> InvalidRecordError:
    return InvalidRecordError(f"a record without a key in a compacted topic, from record {index} on", field="key")
