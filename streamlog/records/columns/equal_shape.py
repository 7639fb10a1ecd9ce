"""Columns of a batch whose records all have one shape: the same sizes, no headers.

Such records differ only in the bytes of key and value, in the offset delta, which counts from 0, and in the timestamp,
as long as it takes the same number of bytes. So the first one is read, and then each byte of its frame (everything
else) is compared with the same byte of all others: a slice of the bytes, with the record's size as its step. The bytes
of the deltas are compared with the expected ones. Where the delta takes a byte more, after 64, 8192 ... records, a new
run of records begins.

Any difference ends the attempt, and the batch is decoded the general way, which also finds errors.
"""

from __future__ import annotations

import functools
from typing import Final, NamedTuple

from streamlog.errors import InvalidRecordError
from streamlog.records.columns.lazy_numpy import np
from streamlog.records.record_loop import RECORD_BODY_MIN
from streamlog.records.varint import WIDTH_BOUNDS, Int64Array, read_varint, read_varlong

# Timestamps that differ and take more bytes than this are decoded the general way: four are 37 hours.
_TIMESTAMP_WIDTH_MAX: Final = 4
# For deltas of up to so many bytes, all digits are cached (8 KB each).
_KEPT_WIDTH_MAX: Final = 2


class _Shape(NamedTuple):
    """One record, as read; positions count from its first byte."""

    timestamp_at: int
    timestamp_delta: int
    delta_at: int
    delta_end: int
    key_at: int
    key_size: int
    value_at: int
    value_size: int
    size: int

    def frame(self) -> list[int]:
        """The bytes that all records must share: everything except timestamp, offset delta, key and value."""
        key_end = self.key_at + max(self.key_size, 0)
        return [
            *range(self.timestamp_at),
            *range(self.delta_end, self.key_at),
            *range(key_end, self.value_at),
            self.size - 1,
        ]


class _Run(NamedTuple):
    """The records from the `first`-th up to the `last`-th, which fill raw[start:end] if they have this shape."""

    raw: bytes
    start: int
    end: int
    shape: _Shape
    first: int
    last: int

    def column(self, byte: int) -> bytes:
        """That byte of each record."""
        return self.raw[self.start + byte : self.end : self.shape.size]

    def all_have(self, byte: int) -> bool:
        """Whether that byte is the same in all records."""
        at = self.start + byte
        return self.column(byte) == self.raw[at : at + 1] * (self.last - self.first)


class EqualRecords(NamedTuple):
    """The data of the columns. Starts are positions in the bytes of the records."""

    timestamp_deltas: Int64Array | int  # one for all
    key_size: int
    key_starts: Int64Array
    value_size: int
    value_starts: Int64Array


def equal_records(raw: bytes, count: int) -> EqualRecords | None:
    """The records of `raw`, if `count` > 0 of one shape fill it; None otherwise."""
    runs: list[_Run] = []
    timestamp_deltas: list[Int64Array | int] = []
    position = start = 0
    for width, bound in enumerate(WIDTH_BOUNDS, 1):
        end = min(bound, count)
        shape = _read_shape(raw, position, start)
        if shape is None or shape.delta_end - shape.delta_at != width:
            return None
        run = _Run(raw, position, position + (end - start) * shape.size, shape, start, end)
        if run.end > len(raw) or not _is_like(run, runs[0] if runs else run) or not _all_alike(run):
            return None
        deltas = _timestamp_deltas(run)
        if deltas is None:
            return None
        runs.append(run)
        timestamp_deltas.append(deltas)
        position, start = run.end, end
        if start == count:
            break
    if not runs or start != count or position != len(raw):
        return None
    first = runs[0].shape
    return EqualRecords(
        _joined(timestamp_deltas, runs),
        first.key_size,
        np.concatenate([np.arange(run.start + run.shape.key_at, run.end, run.shape.size) for run in runs]),
        first.value_size,
        np.concatenate([np.arange(run.start + run.shape.value_at, run.end, run.shape.size) for run in runs]),
    )


def _is_like(run: _Run, other: _Run) -> bool:
    return (run.shape.key_size, run.shape.value_size) == (other.shape.key_size, other.shape.value_size)


def _joined(deltas: list[Int64Array | int], runs: list[_Run]) -> Int64Array | int:
    first = deltas[0]
    if all(isinstance(each, int) and each == first for each in deltas):
        return first
    columns = zip(deltas, runs, strict=True)
    return np.concatenate(
        [np.full(run.last - run.first, each) if isinstance(each, int) else each for each, run in columns]
    )


def _read_shape(raw: bytes, position: int, index: int) -> _Shape | None:
    """The record at `position`, if it is valid, has no headers, and offset delta `index`."""
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
        body + 1 - position,
        timestamp_delta,
        delta_at - position,
        delta_end - position,
        key_at - position,
        key_size,
        value_at - position,
        value_size,
        end - position,
    )


def _all_alike(run: _Run) -> bool:
    """Whether all records of the run have its shape, but for their timestamps."""
    raw, start, shape = run.raw, run.start, run.shape
    frame = shape.frame()
    second = start + shape.size
    if second < run.end and any(raw[second + byte] != raw[start + byte] for byte in frame):
        return False  # the first two reveal most batches of mixed sizes
    if not all(map(run.all_have, frame)):
        return False
    width = shape.delta_end - shape.delta_at
    return all(
        run.column(shape.delta_at + index) == _digits(run.first, run.last, width, index) for index in range(width)
    )


def _digits(first: int, last: int, width: int, index: int) -> bytes:
    """The `index`-th byte of the offset deltas from `first` up to `last`, all of which take `width` bytes."""
    if width > _KEPT_WIDTH_MAX:
        return _make_digits(first, last, width, index)
    lowest = WIDTH_BOUNDS[width - 2] if width > 1 else 0
    return _kept_digits(width, index)[first - lowest : last - lowest]


@functools.cache
def _kept_digits(width: int, index: int) -> bytes:
    return _make_digits(WIDTH_BOUNDS[width - 2] if width > 1 else 0, WIDTH_BOUNDS[width - 1], width, index)


def _make_digits(first: int, last: int, width: int, index: int) -> bytes:
    more = 0x80 if index < width - 1 else 0
    digits: bytes = ((np.arange(first, last) << 1) >> 7 * index & 0x7F | more).astype(np.uint8).tobytes()
    return digits


def _timestamp_deltas(run: _Run) -> Int64Array | int | None:
    """One for all, or a column; None where they do not all take the same number of bytes, or too many."""
    places = range(run.shape.timestamp_at, run.shape.delta_at)
    if all(map(run.all_have, places)):
        return run.shape.timestamp_delta
    if len(places) > _TIMESTAMP_WIDTH_MAX:
        return None
    raw = np.zeros(run.last - run.first, np.int64)
    for index, place in enumerate(places):
        byte = np.frombuffer(run.column(place), np.uint8)
        if bool(((byte > 0x7F) != (index < len(places) - 1)).any()):
            return None
        raw |= (byte & 0x7F).astype(np.int64) << 7 * index
    deltas: Int64Array = (raw >> 1) ^ -(raw & 1)
    return deltas
