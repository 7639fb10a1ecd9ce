"""Encode record batches: for producers, and for compaction.

A producer collects columns (values, keys ...; see `builder`) and encodes them at once. The leader, not the producer,
sets base offset and leader epoch, so a producer leaves them at 0 and -1 (`header.stamp`).

Compaction removes records from a batch and keeps everything else: offsets, sequence numbers, and the range of offsets
that the batch covers (`rebuilt_batch`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from crc32c import crc32c
from msgspec import Struct

from streamlog.errors import InvalidRecordError, MessageTooLargeError
from streamlog.model import (
    INT32_MAX,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
)
from streamlog.records.columns.lazy_numpy import np
from streamlog.records.compression.codecs import compress
from streamlog.records.encode import encode_records
from streamlog.records.header import (
    BATCH_SIZE_MAX,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    Codec,
    TimestampType,
)
from streamlog.records.record import Headers, Record
from streamlog.records.varint import Int64Array

_BEFORE_CRC: Final = struct.Struct(">qiibI")
_COVERED: Final = struct.Struct(">hiqqqhii")

_FIRST_OFFSET: Final = Offset(0)
_INT64_MAX: Final = 2**63 - 1


class BatchFields(Struct, frozen=True, kw_only=True):
    """The header fields of a new batch that do not follow from its records."""

    base_offset: Offset = _FIRST_OFFSET
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    codec: Codec = Codec.NONE
    compression_level: int | None = None  # the codec's own scale; None: its default
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    is_transactional: bool = False
    is_control: bool = False

    @property
    def attributes(self) -> int:
        return (
            self.codec
            | (TIMESTAMP_TYPE_BIT if self.timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
            | (TRANSACTIONAL_BIT if self.is_transactional else 0)
            | (CONTROL_BIT if self.is_control else 0)
        )


_DEFAULT_FIELDS: Final = BatchFields()


def encode_batch(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Headers] | None = None,
    *,
    timestamps: int | Sequence[int] | Int64Array,
    fields: BatchFields = _DEFAULT_FIELDS,
) -> bytes:
    """A batch of len(values) > 0 records, with offsets that count from the base offset.

    `keys` and `headers` have an entry for each value, or are None: no record has any. `timestamps` (ms) likewise,
    or one for all. Raises InvalidRecordError for columns of different lengths, MessageTooLargeError for a batch larger
    than any segment, InvalidRequestError for a compression level that the codec does not have.
    """
    count = len(values)
    if not 0 < count <= INT32_MAX:
        raise InvalidRecordError(f"a batch of {count} records", field="record_count")
    for name, column in (("keys", keys), ("headers", headers), ("timestamps", timestamps)):
        if column is not None and not isinstance(column, int) and len(column) != count:
            raise InvalidRecordError(f"{len(column)} {name} for {count} values", field=name)
    if isinstance(timestamps, int):
        first = largest = timestamps
        deltas = None
    else:
        first, largest = (
            int(timestamps[0]),
            int(max(timestamps) if isinstance(timestamps, Sequence) else timestamps.max()),
        )
        deltas = _deltas(timestamps, first)
    records = encode_records(values, keys, headers, deltas)
    return _sealed(fields, fields.attributes, count - 1, first, largest, count, records)


def rebuilt_batch(header: BatchHeader, records: Sequence[Record], *, delete_horizon_ms: int | None = None) -> bytes:
    """The batch with only these of its records, in order. Without records it is only the header, without a codec.

    Offsets, codec, producer fields, leader epoch and the range up to `last_offset` stay. A delete horizon, once set,
    stays as well; `delete_horizon_ms` sets one on a batch that has none (KIP-534).
    """
    attributes = header.attributes
    first = records[0].timestamp if records else header.base_timestamp
    if delete_horizon_ms is not None and not header.has_delete_horizon:
        attributes |= DELETE_HORIZON_BIT
        first = delete_horizon_ms
    elif header.has_delete_horizon:
        first = header.base_timestamp
    fields = BatchFields(
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        codec=header.codec,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    if not records:
        attributes &= ~CODEC_MASK  # no compressed stream follows
        return _sealed(fields, attributes, header.last_offset_delta, first, header.max_timestamp, 0, [])
    offsets, times, keys, values, headers = zip(*records, strict=True)
    offset_deltas = np.array(offsets, np.int64) - header.base_offset
    _check_offsets(offset_deltas, header)
    largest = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else max(times)
    deltas = _deltas(times, first)
    packed = encode_records(values, keys, headers if any(headers) else None, deltas, offset_deltas)
    return _sealed(fields, attributes, header.last_offset_delta, first, largest, len(records), packed)


def _deltas(timestamps: Sequence[int] | Int64Array, first: int) -> Int64Array | None:
    """Relative to the first; None where all are 0. Raises InvalidRecordError beyond 64 bits."""
    try:
        times = np.array(timestamps, np.int64)
    except OverflowError:
        raise InvalidRecordError("a timestamp exceeds 64 bits", field="timestamps") from None
    if max(abs(int(times.max()) - first), abs(int(times.min()) - first)) > _INT64_MAX:
        raise InvalidRecordError("the difference of two timestamps exceeds 64 bits", field="timestamps")
    deltas = times - first
    return deltas if bool(deltas.any()) else None


def _check_offsets(deltas: Int64Array, header: BatchHeader) -> None:
    if int(deltas[0]) < 0 or int(deltas[-1]) > header.last_offset_delta or bool((deltas[1:] <= deltas[:-1]).any()):
        raise InvalidRecordError(f"offsets do not rise within {header.base_offset} to {header.last_offset}")


def _sealed(
    fields: BatchFields,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
    records: list[Buffer],
) -> bytes:
    """Header, CRC and the encoded records, compressed; without records there is no stream at all."""
    if records and fields.codec is not Codec.NONE:
        records = [compress(fields.codec, b"".join(records), fields.compression_level)]
    size = HEADER_SIZE + sum(piece.nbytes if isinstance(piece, memoryview) else len(piece) for piece in records)
    if size > BATCH_SIZE_MAX:
        raise MessageTooLargeError(f"a batch of {size} bytes", limit=BATCH_SIZE_MAX, size_bytes=size)
    covered = _COVERED.pack(
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        fields.producer_id,
        fields.producer_epoch,
        fields.base_sequence,
        count,
    )
    crc = crc32c(covered)
    for piece in records:
        crc = crc32c(piece, crc)
    start = _BEFORE_CRC.pack(fields.base_offset, size - LOG_OVERHEAD, fields.leader_epoch, MAGIC, crc)
    return b"".join((start, covered, *records))
