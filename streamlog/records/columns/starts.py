"""The start of each record of a batch: three ways to find it, one check that makes them exact.

A record begins with its length, so the position of the n-th follows from the previous one, and walking from one to
the next is a Python step per record. Two faster ways guess all positions at once:

- by stride: records of one size are at equal distances, except where the offset delta takes a byte more;
- by pattern: a record without headers ends with a zero byte, its header count, and the attributes after the next
  one's length are zero as well. Every such position is a candidate; those that no other one leads to, or that lead to
  none, are dropped, until as many are left as there are records.

A guess is used only if it passes the check, which is the same step as the walk's, taken for all records at once: the
first starts at 0, each one's length leads to the next, the last one's to the end. Two lists of starts cannot both
pass, so the one that passes is what the walk would find. If none passes, the walk decides.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from streamlog.errors import InvalidRecordError
from streamlog.records.columns.lazy_numpy import np
from streamlog.records.record_loop import RECORD_BODY_MIN, RECORD_MIN
from streamlog.records.varint import WIDTH_BOUNDS, BoolArray, ByteArray, Int64Array, read_varint, read_varints

# Beyond this mean size of a record, looking at every byte costs more than walking from record to record.
_PATTERN_RECORD_BYTES_MAX: Final = 1024
# With more candidates per record than this the bytes are mostly zeros, and sifting costs more than walking.
_CANDIDATES_MAX: Final = 4
# Rounds of sifting. The first drops nearly all false candidates, the second those that only false ones led to.
_SIFT_ROUNDS_MAX: Final = 4


class RecordSpans(NamedTuple):
    """Of each record: the first byte after its length, and one past its last byte."""

    bodies: Int64Array
    ends: Int64Array


def record_spans(raw: bytes, count: int) -> RecordSpans:
    """The spans of the `count` > 0 records in `raw`, the unpacked records of one batch.

    Raises InvalidRecordError unless exactly that many records fill the bytes. Their fields are not checked.
    """
    data = np.frombuffer(raw, np.uint8)
    for find in (_by_stride, _by_pattern):
        spans = find(raw, data, count)
        if spans is not None:
            return spans
    spans = _spans_at(data, _by_walking(raw, count))
    if spans is None:
        raise InvalidRecordError("a record is shorter than its fields, or bytes follow the last one")
    return spans


def _spans_at(data: ByteArray, starts: Int64Array) -> RecordSpans | None:
    """The spans of records with these presumed starts, which are in range; the first is 0."""
    try:
        lengths, bodies = read_varints(data, starts)
    except (InvalidRecordError, IndexError):
        return None
    return _checked(data, starts, bodies, bodies + lengths)


def _checked(data: ByteArray, starts: Int64Array, bodies: Int64Array, ends: Int64Array) -> RecordSpans | None:
    """The one check: `bodies` and `ends` are what the lengths at `starts` say, `starts[0]` is 0."""
    if ends[-1] != len(data) or bool((ends[:-1] != starts[1:]).any()) or int((ends - bodies).min()) < RECORD_BODY_MIN:
        return None
    return RecordSpans(bodies, ends)


def _by_stride(raw: bytes, data: ByteArray, count: int) -> RecordSpans | None:
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
            return _spans_at(data, parts[0] if len(parts) == 1 else np.concatenate(parts))
    return None


def _by_pattern(raw: bytes, data: ByteArray, count: int) -> RecordSpans | None:
    if len(data) > _PATTERN_RECORD_BYTES_MAX * count:
        return None
    # zero[p] is about the byte before p: the header count 0 that ends the previous record.
    zero = np.empty(len(data) + 1, np.bool_)
    zero[0] = True
    np.equal(data, 0, out=zero[1:])
    # A start must leave space for a whole record. The attributes are one or two bytes after it.
    places = len(data) - RECORD_MIN + 1
    looks = np.zeros(places + 7 & ~7, np.bool_)
    np.logical_or(zero[2 : places + 2], zero[3 : places + 3], out=looks[:places])
    np.logical_and(looks[:places], zero[:places], out=looks[:places])
    if int(np.count_nonzero(looks)) > _CANDIDATES_MAX * count:
        return None  # counted first: their positions take eight times the memory of the bytes
    starts = _true_positions(looks)
    low, high = data[starts], data[starts + 1]
    two = low > 0x7F
    bodies = starts + 1 + two
    lengths = (low & 0x7F | (high * two).astype(np.int64) << 7) >> 1
    ends = bodies + lengths
    # Exact for lengths of one and two bytes that are not negative; others are not candidates.
    fits = (low & 1 == 0) & (high * two < 0x80) & (data[bodies] == 0) & (ends <= len(data))
    return _sifted(data, starts[fits], bodies[fits], ends[fits], count)


def _true_positions(mask: BoolArray) -> Int64Array:
    """As np.flatnonzero, faster where few are true: by words of 8 first. The mask's length is a multiple of 8."""
    as_words = mask.view(np.uint64)
    words = np.flatnonzero(as_words != 0)
    hits = np.flatnonzero(as_words[words].view(np.bool_))
    positions: Int64Array = (words[hits >> 3] << 3) + (hits & 7)
    return positions


def _sifted(
    data: ByteArray, starts: Int64Array, bodies: Int64Array, ends: Int64Array, count: int
) -> RecordSpans | None:
    """The candidates that form a chain from 0 to the end, if all others can be dropped for lack of a neighbour."""
    size = len(data)
    for _ in range(_SIFT_ROUNDS_MAX):
        if len(starts) <= count:
            break
        known = np.zeros(size + 1, np.bool_)
        known[starts] = True
        known[size] = True
        leads = known[ends]
        reached = np.zeros(size + 1, np.bool_)
        reached[ends[leads]] = True
        reached[0] = True
        keep = leads & reached[starts]
        starts, bodies, ends = starts[keep], bodies[keep], ends[keep]
    return _checked(data, starts, bodies, ends) if len(starts) == count and starts[0] == 0 else None


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
        raise InvalidRecordError(f"the batch claims {count} records, and has {len(starts) - 1}") from None
    return np.array(starts)
