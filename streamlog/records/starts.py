"""Where each record of a batch starts: three ways to find it, one check that makes them exact.

A record begins with its length, so the place of the n-th follows from the one before it, and walking from one to
the next is a Python step a record. Two faster ways guess all the places at once:

- by stride: records of one size stand at equal distances, but for where the offset delta takes a byte more;
- by pattern: the attributes behind the length are a zero byte. Every place that looks so is a candidate; those that
  no other one leads to, or that lead to none, are dropped, until as many are left as there are records.

A guess counts only if it passes the check, which is the same step as the walk's, taken for all records at once: the
first starts at 0, each one's length leads to the next, the last one's to the end. Two lists of starts cannot both
pass, so what passes is what the walk would find. When neither does, the walk decides.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from streamlog.errors import InvalidRecordError
from streamlog.records.record_loop import RECORD_BODY_MIN
from streamlog.records.varint import WIDTH_BOUNDS, ByteArray, Int64Array, read_varint, read_varints

# Beyond this mean size of a record, looking at every byte costs more than walking from record to record.
_PATTERN_RECORD_BYTES_MAX: Final = 1024
# Candidates by pattern are sifted at most so often. Once drops nearly all false ones, twice those that they held up.
_SIFT_ROUNDS_MAX: Final = 4


class RecordSpans(NamedTuple):
    """Of each record: the first byte behind its length, and one past its last byte."""

    bodies: Int64Array
    ends: Int64Array


def record_spans(raw: bytes, count: int) -> RecordSpans:
    """Where the `count` > 0 records lie in `raw`, the unpacked records of one batch.

    Raises InvalidRecordError unless exactly so many records fill the bytes. What is in them is not looked at.
    """
    data = np.frombuffer(raw, np.uint8)
    for find in (_by_stride, _by_pattern):
        starts = find(raw, data, count)
        if starts is not None:
            spans = _checked(data, starts)
            if spans is not None:
                return spans
    spans = _checked(data, _by_walking(raw, count))
    if spans is None:
        raise InvalidRecordError("a record is shorter than its fields, or bytes follow the last one")
    return spans


def _checked(data: ByteArray, starts: Int64Array) -> RecordSpans | None:
    """The spans, if the starts are those of the records that fill the data; `starts` are in range, the first is 0."""
    try:
        lengths, bodies = read_varints(data, starts)
    except (InvalidRecordError, IndexError):
        return None
    ends = bodies + lengths
    if ends[-1] != len(data) or int(lengths.min()) < RECORD_BODY_MIN or bool((ends[:-1] != starts[1:]).any()):
        return None
    return RecordSpans(bodies, ends)


def _by_stride(raw: bytes, data: ByteArray, count: int) -> Int64Array | None:
    parts: list[Int64Array] = []
    position = index = 0
    for bound in WIDTH_BOUNDS:  # where offset deltas that count from 0 become a byte longer
        rows = min(bound, count) - index
        try:
            length, body = read_varint(raw, position)
            again, _ = read_varint(raw, body + length) if rows > 1 else (length, 0)
        except (InvalidRecordError, IndexError):
            return None
        stride = body - position + length
        if again != length or length < RECORD_BODY_MIN or position + rows * stride > len(raw):
            return None
        parts.append(np.arange(position, position + rows * stride, stride))
        position += rows * stride
        index += rows
        if index == count:
            return parts[0] if len(parts) == 1 else np.concatenate(parts)
    return None


def _by_pattern(raw: bytes, data: ByteArray, count: int) -> Int64Array | None:
    if len(data) > _PATTERN_RECORD_BYTES_MAX * count:
        return None
    # A length's last byte is 1 to 127, for a length of one or two bytes that is not 0; the attributes follow.
    looks = np.zeros(len(data) + 8 & ~7, np.bool_)
    np.logical_and(data[:-1] - np.uint8(1) < 0x7F, data[1:] == 0, out=looks[: len(data) - 1])
    last = _true_positions(looks)
    if len(last) > 4 * count:
        return None
    high = data[last - 1]  # of the first candidate the index may be -1: any byte, and a start that is dropped
    two = high > 0x7F
    starts = last - two
    lengths = np.where(two, high & 0x7F | data[last].astype(np.int64) << 7, data[last]) >> 1
    follows = last + 1 + lengths
    fits = (follows <= len(data)) & (starts >= 0)
    return _sifted(starts[fits], follows[fits], len(data), count)


def _true_positions(mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Int64Array:
    """As np.flatnonzero, faster where few are true: by words of 8 first. The mask's length is a multiple of 8."""
    words = np.flatnonzero(mask.view(np.uint64))
    rows, columns = np.nonzero(mask.reshape(-1, 8)[words])
    return (words[rows] << 3) + columns


def _sifted(starts: Int64Array, follows: Int64Array, size: int, count: int) -> Int64Array | None:
    """The candidates in a chain from 0 to `size`, if the others can be told by having no neighbour."""
    for _ in range(_SIFT_ROUNDS_MAX):
        if len(starts) <= count:
            break
        known = np.zeros(size + 1, np.bool_)
        known[starts] = True
        known[size] = True
        leads = known[follows]
        reached = np.zeros(size + 1, np.bool_)
        reached[follows[leads]] = True
        reached[0] = True
        keep = leads & reached[starts]
        starts, follows = starts[keep], follows[keep]
    return starts if len(starts) == count and starts[0] == 0 else None


def _by_walking(raw: bytes, count: int) -> Int64Array:
    starts: list[int] = []
    position = 0
    try:
        for _ in range(count):
            starts.append(position)
            low = raw[position]
            high = raw[position + 1]
            if low < 0x80:
                position += 1 + (low >> 1)
            elif high < 0x80:
                position += 2 + ((low & 0x7F | high << 7) >> 1)
            else:
                length, position = read_varint(raw, position)
                position += length
            if position <= starts[-1]:
                raise InvalidRecordError("a record has a negative length")
    except IndexError:
        raise InvalidRecordError(f"{count} records were announced, {len(starts) - 1} are there") from None
    return np.array(starts)
