"""Encode records: one at a time, or a whole batch by column.

By column means that each part of a record (length, offset delta, key length ...) becomes a list with one bytes object
per record, most of them from tables, and that one join concatenates them all. The cost is the number of parts, so
adjacent parts share a table where possible. Where all values have one size and nothing else differs, everything between
two values is one part, which is cached for the next batch.

The layout of a record is in `record_loop`. All ways give the same bytes, and are tested against each other.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final

from streamlog.errors import InvalidRecordError
from streamlog.records.columns.lazy_numpy import np
from streamlog.records.header import Buffer
from streamlog.records.record import Headers
from streamlog.records.varint import (
    Int64Array,
    VarintTable,
    encode_varint,
    varint_widths,
)

# Up to this many records the loop is faster.
LOOP_COUNT_MAX: Final = 24

# Batches with more records than _FRAMES_MAX are not encoded by cached frames; at least _FRAMES_MIN are made.
_FRAMES_MAX: Final = 16_384
_FRAMES_MIN: Final = 1_024

_ATTRIBUTES: Final = b"\x00"
_NO_DELTA: Final = b"\x00"
_NULL: Final = b"\x01"
_NO_HEADERS: Final = b"\x00"

_VARINTS: Final = VarintTable()
# The length of a record between the end of the one before it, which had no headers, and the attributes ...
_LENGTHS: Final = VarintTable(_NO_HEADERS, _ATTRIBUTES)
# ... and a timestamp delta of 0.
_LENGTHS_UNTIMED: Final = VarintTable(_NO_HEADERS, _ATTRIBUTES + _NO_DELTA)
_KEYLESS_VALUE_SIZES: Final = VarintTable(_NULL)


def encode_record(
    offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: Headers = ()
) -> bytes:
    """One record, starting with its length."""
    body = b"".join(
        (
            _ATTRIBUTES,
            encode_varint(timestamp_delta),
            encode_varint(offset_delta),
            _NULL if key is None else encode_varint(len(key)) + key,
            _NULL if value is None else encode_varint(len(value)) + value,
            encode_headers(headers),
        )
    )
    return encode_varint(len(body)) + body


def encode_headers(headers: Headers) -> bytes:
    """Count and headers, as they end a record. Raises InvalidRecordError for a key that UTF-8 cannot encode."""
    if not headers:
        return _NO_HEADERS
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        try:
            key = name.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise InvalidRecordError(f"header key {name!r}: {error.reason}", field="headers") from None
        parts += (encode_varint(len(key)), key)
        parts += (_NULL,) if value is None else (encode_varint(len(value)), value)
    return b"".join(parts)


def encode_records(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Headers] | None = None,
    timestamp_deltas: Int64Array | None = None,
    offset_deltas: Int64Array | None = None,
) -> list[Buffer]:
    """The records of a batch, as buffers to be concatenated. Every column has one entry per record.

    None for a column means: no keys, no headers, all timestamp deltas 0, offset deltas 0, 1, 2 ...
    """
    if len(values) <= LOOP_COUNT_MAX:
        return _encode_loop(values, keys, headers, timestamp_deltas, offset_deltas)
    value_sizes, values = _sized(values)
    if keys is None and headers is None and timestamp_deltas is None and offset_deltas is None:
        size = int(value_sizes[0])
        if size >= 0 and len(values) <= _FRAMES_MAX and bool((value_sizes == size).all()):
            return _encode_equal(values, size)
    return _encode_columns(values, value_sizes, keys, headers, timestamp_deltas, offset_deltas)


def _encode_loop(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers] | None,
    timestamp_deltas: Int64Array | None,
    offset_deltas: Int64Array | None,
) -> list[Buffer]:
    records = []
    for index, value in enumerate(values):
        offset_delta = index if offset_deltas is None else int(offset_deltas[index])
        timestamp_delta = 0 if timestamp_deltas is None else int(timestamp_deltas[index])
        key = None if keys is None else keys[index]
        records.append(
            encode_record(offset_delta, timestamp_delta, key, value, () if headers is None else headers[index])
        )
    return [b"".join(records)]


def _sized(strings: Sequence[bytes | None]) -> tuple[Int64Array, Sequence[bytes]]:
    """The sizes, -1 for null, and the strings with b"" for null."""
    try:
        return np.fromiter(map(len, strings), np.int64, len(strings)), strings  # type: ignore[arg-type,return-value]
    except TypeError:  # there is a None among them
        sizes = [-1 if string is None else len(string) for string in strings]
        return np.array(sizes, np.int64), [string or b"" for string in strings]


def _encode_columns(
    values: Sequence[bytes],
    value_sizes: Int64Array,
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers] | None,
    timestamp_deltas: Int64Array | None,
    offset_deltas: Int64Array | None,
) -> list[Buffer]:
    """Any records, by parts: `columns` has the parts of a record in their order; its length comes first."""
    count = len(values)
    offsets = np.arange(count) if offset_deltas is None else offset_deltas
    columns: list[Sequence[bytes]] = [_VARINTS.encode(offsets)]
    sizes = 1 + varint_widths(offsets) + varint_widths(value_sizes) + np.maximum(value_sizes, 0)
    if keys is None:
        columns += (_KEYLESS_VALUE_SIZES.encode(value_sizes), values)
        sizes += 1
    else:
        key_sizes, keys = _sized(keys)
        columns += (_VARINTS.encode(key_sizes), keys, _VARINTS.encode(value_sizes), values)
        sizes += varint_widths(key_sizes) + np.maximum(key_sizes, 0)
    if timestamp_deltas is None:
        sizes += 1
    else:
        columns.insert(0, _VARINTS.encode(timestamp_deltas))
        sizes += _lengths(columns[0])
    if headers is None:
        sizes += 1
        lengths = (_LENGTHS_UNTIMED if timestamp_deltas is None else _LENGTHS).encode(sizes)
        lengths[0] = lengths[0][1:]
        parts = _interleaved(lengths, *columns)
        parts.append(_NO_HEADERS)
        return [b"".join(parts)]
    tails = _encode_all_headers(headers)
    sizes += _lengths(tails)
    untimed = _ATTRIBUTES + _NO_DELTA if timestamp_deltas is None else _ATTRIBUTES
    return [b"".join(_interleaved(_VARINTS.encode(sizes), [untimed] * count, *columns, tails))]


def _lengths(strings: Sequence[bytes]) -> Int64Array:
    return np.fromiter(map(len, strings), np.int64, len(strings))


def _interleaved(*columns: Sequence[bytes]) -> list[bytes]:
    """First of each column, second of each column ..."""
    step = len(columns)
    parts = [b""] * (step * len(columns[0]))
    for index, column in enumerate(columns):
        parts[index::step] = column
    return parts


def _encode_all_headers(headers: Sequence[Headers]) -> list[bytes]:
    """Records of one source tend to carry the same headers, so each is compared with the one before it."""
    tails: list[bytes] = []
    before: Headers = ()
    tail = _NO_HEADERS
    for each in headers:
        if each != before:
            before, tail = each, encode_headers(each)
        tails.append(tail)
    return tails


def _encode_equal(values: Sequence[bytes], value_size: int) -> list[Buffer]:
    """Records that differ in nothing but the bytes of the value, and the offset delta, which counts from 0."""
    count = len(values)
    frames = _frames(value_size, max(_FRAMES_MIN, 1 << (count - 1).bit_length()))
    parts = _interleaved(frames[:count], values)
    parts[0] = parts[0][len(_NO_HEADERS) :]
    parts.append(_NO_HEADERS)
    return [b"".join(parts)]


@functools.lru_cache(maxsize=8)
def _frames(value_size: int, count: int) -> list[bytes]:
    """The bytes before each value, from the end of the previous record on. A producer's batches tend to have few
    sizes; at most 8 x _FRAMES_MAX are cached, some 60 bytes each.
    """
    offsets = np.arange(count)
    behind = _NULL + encode_varint(value_size)
    sizes = len(_ATTRIBUTES + _NO_DELTA + behind + _NO_HEADERS) + value_size + varint_widths(offsets)
    leads, deltas = _LENGTHS_UNTIMED.encode(sizes), _VARINTS.encode(offsets)
    return [lead + delta + behind for lead, delta in zip(leads, deltas, strict=True)]
