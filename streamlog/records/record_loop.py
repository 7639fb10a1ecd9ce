"""Decode records one at a time: the plain reading of the format, against which the faster ones are tested.

    length            varint     of what follows
    attributes        i8         no bit has a meaning yet
    timestamp delta   varlong    against the batch's base timestamp
    offset delta      varint     against its base offset
    key               varint length, -1 for null, and that many bytes
    value             likewise
    headers           varint count, and for each: key (length, UTF-8), value (length or -1, bytes)

The batch's CRC shows that the bytes are those that the producer sent, not that they are valid. So every length is
checked against the record's end, offsets must rise and stay within the batch, and the records must be as many as the
header says and fill the bytes exactly. Otherwise: InvalidRecordError.
"""

from __future__ import annotations

from typing import Final

from streamlog.errors import InvalidRecordError
from streamlog.model import Offset
from streamlog.records.header import BatchHeader, TimestampType
from streamlog.records.record import Header, Headers, Record
from streamlog.records.varint import read_varint, read_varlong

# Attributes, two deltas, two lengths and a count: no record has fewer bytes after its length.
RECORD_BODY_MIN: Final = 6
RECORD_MIN: Final = RECORD_BODY_MIN + 1

_INT64_MAX: Final = 2**63 - 1


def read_records(raw: bytes, header: BatchHeader) -> list[Record]:
    """The records of a batch, already unpacked. Raises InvalidRecordError where a rule above is broken."""
    log_append = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    records: list[Record] = []
    position, delta_before = 0, -1
    try:
        for _ in range(header.record_count):
            length, position = read_varint(raw, position)
            end = position + length
            if length < RECORD_BODY_MIN or end > len(raw):
                raise refusal(position, f"record length {length}")
            timestamp, position = read_varlong(raw, position + 1)
            delta, position = read_varint(raw, position)
            key, position = read_field(raw, position, end)
            value, position = read_field(raw, position, end)
            headers, position = read_headers(raw, position, end)
            if position != end:
                raise refusal(position, "a record's fields do not fill it")
            if not delta_before < delta <= header.last_offset_delta:
                raise refusal(position, f"offset delta {delta} after {delta_before}")
            delta_before = delta
            timestamp = header.max_timestamp if log_append else checked_sum(header.base_timestamp, timestamp)
            records.append(Record(Offset(header.base_offset + delta), timestamp, key, value, headers))
    except IndexError:
        raise refusal(position, "the records are incomplete") from None
    if position != len(raw):
        raise refusal(position, "bytes follow the last record")
    return records


def read_headers(raw: bytes, position: int, end: int) -> tuple[Headers, int]:
    """A record's headers, from their count on, and the position after them.

    Raises InvalidRecordError, or IndexError where the data end.
    """
    count, position = header_count(raw, position, end)
    if count == 0:
        return (), position
    headers: list[Header] = []
    for _ in range(count):
        key, position = read_field(raw, position, end)
        if key is None:
            raise refusal(position, "a header without a key")
        value, position = read_field(raw, position, end)
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position


def header_count(raw: bytes, position: int, end: int) -> tuple[int, int]:
    """Of a record, and the position after it."""
    count, position = read_varint(raw, position)
    if not 0 <= count <= (end - position) // 2:
        raise refusal(position, f"header count {count}")
    return count, position


def read_field(raw: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    """A key, a value or a part of a header, None for null, and the position after it."""
    size, position = read_varint(raw, position)
    if size < 0:
        if size == -1:
            return None, position
        raise refusal(position, f"length {size}")
    if size > end - position:
        raise refusal(position, f"a field of {size} bytes does not fit its record")
    return raw[position : position + size], position + size


def checked_sum(base: int, delta: int) -> int:
    """A timestamp or offset of 64 bits."""
    total = base + delta
    if not -_INT64_MAX <= total <= _INT64_MAX:
        raise InvalidRecordError(f"{base} plus a delta of {delta} exceeds 64 bits")
    return total


def refusal(position: int, reason: str) -> InvalidRecordError:
    return InvalidRecordError(f"byte {position} of the records: {reason}", position=position)
