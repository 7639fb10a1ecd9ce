"""Convert messages of magic 0 and 1 to record batches, before they are appended.

The records of one wrapper become a batch with the wrapper's codec, and consecutive plain messages become one batch.
The offsets of the messages are not kept: the leader assigns new ones, as to any batch. The batches are then checked
like those of any producer (`validation`).
"""

from __future__ import annotations

from typing import NamedTuple

from streamlog.errors import InvalidRecordError
from streamlog.records.batch import BatchFields, encode_batch
from streamlog.records.compression.bounds import UNPACKED_BYTES_MAX, too_large
from streamlog.records.header import Buffer, Codec, TimestampType
from streamlog.records.legacy.messages import LegacyEntry, entry_records, read_entry, unpacked_size
from streamlog.records.record import Record


class _Kind(NamedTuple):
    """What the records of one batch have in common."""

    codec: Codec
    timestamp_type: TimestampType
    timestamp: int | None  # with LogAppendTime a batch has one


def convert(buffer: Buffer, start: int, end: int, *, unpacked_bytes_max: int = UNPACKED_BYTES_MAX) -> bytes:
    """The messages in `buffer[start:end]` as batches of magic 2, offsets from 0 in each.

    Raises CorruptMessageError (incomplete, CRC, unknown magic, a damaged stream), InvalidRecordError (lengths, empty or
    nested wrappers, no message at all), UnsupportedCompressionError, MessageTooLargeError where all of them together
    unpack to more than the limit.
    """
    batches: list[bytes] = []
    plain: list[Record] = []
    plain_kind: _Kind | None = None
    left = unpacked_bytes_max
    position = start
    while position < end:
        entry = read_entry(buffer, position, end)
        position += entry.size_bytes
        records = entry_records(entry, unpacked_bytes_max=left)
        left -= sum(unpacked_size(entry.magic, record) for record in records)
        if left < 0:
            raise too_large(unpacked_bytes_max)
        kind = _kind(entry)
        if plain and (kind != plain_kind or kind.codec is not Codec.NONE):
            batches.append(_batch(plain, plain_kind or kind))
            plain = []
        if kind.codec is Codec.NONE:
            plain += records
            plain_kind = kind
        else:
            batches.append(_batch(records, kind))
    if plain and plain_kind:
        batches.append(_batch(plain, plain_kind))
    if not batches:
        raise InvalidRecordError("no message was sent")
    return b"".join(batches)


def _kind(entry: LegacyEntry) -> _Kind:
    log_append = entry.timestamp_type is TimestampType.LOG_APPEND_TIME
    return _Kind(entry.codec, entry.timestamp_type, entry.timestamp if log_append else None)


def _batch(records: list[Record], kind: _Kind) -> bytes:
    return encode_batch(
        [record.value for record in records],
        [record.key for record in records],
        timestamps=[record.timestamp for record in records],
        fields=BatchFields(codec=kind.codec, timestamp_type=kind.timestamp_type),
    )
