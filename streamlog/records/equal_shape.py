"""Columns of a batch whose records all have one shape: the same sizes, the same timestamp, no headers.

Such records differ in nothing but the bytes of key and value and in the offset delta, which counts from 0. So the
first one is read, and then each byte of its frame (all that is not key, value or delta) is compared with the same
byte of all others, a column of the matrix that they form; the deltas are compared with what they must be. Where the
delta takes a byte more, after 64, 8192 ... records, a new matrix begins.

Whatever differs ends the attempt: it is the general way's business, be it an error or not.
"""

from __future__ import annotations

from typing import NamedTuple

from streamlog.errors import InvalidRecordError
from streamlog.records.lazy_numpy import np
from streamlog.records.record_loop import RECORD_BODY_MIN
from streamlog.records.varint import WIDTH_BOUNDS, ByteArray, Int64Array, read_varint, read_varlong


class _Shape(NamedTuple):
    """One record, as read; positions count from its first byte."""

    timestamp_delta: int
    delta_at: int
    delta_end: int
    key_at: int
    key_size: int
    value_at: int
    value_size: int
    size: int

    def frame(self) -> list[int]:
        """The bytes that all records must share: everything but offset delta, key and value."""
        key_end = self.key_at + max(self.key_size, 0)
        return [
            *range(self.delta_at),
            *range(self.delta_end, self.key_at),
            *range(key_end, self.value_at),
            self.size - 1,
        ]


class EqualRecords(NamedTuple):
    """What the columns follow from. The starts are positions in the bytes of the records."""

    timestamp_delta: int
    key_size: int
    key_starts: Int64Array
    value_size: int
    value_starts: Int64Array


def equal_records(raw: bytes, count: int) -> EqualRecords | None:
    """The records of `raw`, if `count` > 0 of one shape fill it; None otherwise."""
    data = np.frombuffer(raw, np.uint8)
    key_starts: list[Int64Array] = []
    value_starts: list[Int64Array] = []
    position = start = 0
    first: _Shape | None = None
    for width, bound in enumerate(WIDTH_BOUNDS, 1):
        end = min(bound, count)
        shape = _read_shape(raw, position, start)
        if shape is None or shape.delta_end - shape.delta_at != width:
            return None
        first = first or shape
        if (shape.timestamp_delta, shape.key_size, shape.value_size) != (
            first.timestamp_delta,
            first.key_size,
            first.value_size,
        ):
            return None
        after = position + (end - start) * shape.size
        if after > len(raw) or not _all_alike(raw, data[position:after], position, shape, start, end):
            return None
        key_starts.append(np.arange(position + shape.key_at, after, shape.size))
        value_starts.append(np.arange(position + shape.value_at, after, shape.size))
        position, start = after, end
        if start == count:
            break
    if first is None or start != count or position != len(raw):
        return None
    return EqualRecords(
        first.timestamp_delta,
        first.key_size,
        np.concatenate(key_starts),
        first.value_size,
        np.concatenate(value_starts),
    )


def _read_shape(raw: bytes, position: int, index: int) -> _Shape | None:
    """The record at `position`, if it is sound, without headers, and the `index`-th by its offset delta."""
    try:
        length, body = read_varint(raw, position)
        timestamp_delta, delta_at = read_varlong(raw, body + 1)
        delta, delta_end = read_varint(raw, delta_at)
        key_size, key_at = read_varint(raw, delta_end)
        value_size, value_at = read_varint(raw, key_at + max(key_size, 0))
        end = value_at + max(value_size, 0) + 1
        if length < RECORD_BODY_MIN or end != body + length or raw[end - 1] != 0:
            return None
    except (IndexError, InvalidRecordError):
        return None
    if delta != index or min(key_size, value_size) < -1:
        return None
    return _Shape(
        timestamp_delta,
        delta_at - position,
        delta_end - position,
        key_at - position,
        key_size,
        value_at - position,
        value_size,
        end - position,
    )


def _all_alike(raw: bytes, data: ByteArray, position: int, shape: _Shape, start: int, end: int) -> bool:
    """Whether the records from the `start`-th up to the `end`-th, which are `data`, have this shape."""
    frame = shape.frame()
    if end - start > 1 and any(data[shape.size + byte] != data[byte] for byte in frame):
        return False  # two records tell most batches of mixed sizes
    for byte in frame:
        if bool((data[byte :: shape.size] != raw[position + byte]).any()):
            return False
    deltas = np.arange(start, end) << 1
    for index in range(shape.delta_at, shape.delta_end):
        more = 0x80 if index < shape.delta_end - 1 else 0
        digit = deltas >> 7 * (index - shape.delta_at) & 0x7F | more
        if bool((data[index :: shape.size] != digit).any()):
            return False
    return True
