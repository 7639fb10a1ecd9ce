"""`.log`: its batches, or their records; magic 0 to 2.

A batch whose CRC is wrong is unpacked nevertheless where possible, its records marked as not valid: they may still be
of use. A large one is not: its lengths could claim any amount of memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from streamlog.errors import InvalidRecordError, StreamlogError
from streamlog.model import INT32_MAX, Offset
from streamlog.ports import File
from streamlog.records import (
    Codec,
    ControlType,
    EndTransactionMarker,
    LeaderChange,
    LegacyEntry,
    OtherControl,
    Record,
    decode_control,
    entry_records,
    iter_batch,
    read_entry,
    scan_entries,
)
from streamlog.records.compression.bounds import UNPACKED_BYTES_MAX
from streamlog.records.compression.codecs import decompress
from streamlog.records.header import MAGIC
from streamlog.records.legacy.lz4_header import with_right_checksum
from streamlog.storage.dump.framing import Framing
from streamlog.storage.dump.items import Batch, ControlMarker, Damage, Item, LogRecord, LogStart

SUSPECT_BYTES_MAX: Final = 16 << 20


def read_log(log: File, start_offset: Offset | None, *, deep: bool) -> Iterator[Item]:
    """LogStart, then the records (`deep`) or the batches, with the damage in between."""
    framing = Framing(log)
    yield LogStart(start_offset=start_offset)
    for frame in framing.frames(start_offset or Offset(0)):
        if deep and isinstance(frame, Batch):
            yield from _records(framing, frame)
        else:
            yield frame


def _records(framing: Framing, batch: Batch) -> Iterator[Item]:
    if not batch.is_valid and batch.size_bytes > SUSPECT_BYTES_MAX:
        return
    content = framing.content(batch)
    try:
        found = _of_batch(content, batch) if batch.magic == MAGIC else _of_entry(content, batch)
    except StreamlogError as e:
        if batch.is_valid:  # otherwise its CRC is reported already
            yield Damage(position=batch.position, reason=f"the records cannot be read: {e}")
        return
    yield from found


def _of_batch(content: memoryview, batch: Batch) -> Iterator[LogRecord]:
    return (_log_record(batch, record) for record in iter_batch(content))


def _log_record(batch: Batch, record: Record) -> LogRecord:
    sequence = -1
    if batch.base_sequence >= 0:
        sequence = (batch.base_sequence + record.offset - batch.base_offset) & INT32_MAX
    return LogRecord(
        batch=batch,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        key=record.key,
        value=record.value,
        headers=record.headers,
        sequence=sequence,
        control=_control_marker(record) if batch.is_control else None,
    )


def _of_entry(content: memoryview, batch: Batch) -> Iterator[LogRecord]:
    """Magic 0 and 1: one message, or those that it wraps, each with its own CRC."""
    entry = read_entry(content, 0, len(content))
    return (
        LogRecord(
            batch=batch,
            offset=record.offset,
            timestamp_ms=record.timestamp,
            key=record.key,
            value=record.value,
            crc=crc,
        )
        for record, crc in zip(entry_records(entry), _crcs(entry), strict=True)
    )


def _crcs(entry: LegacyEntry) -> list[int]:
    if entry.codec is Codec.NONE or entry.value is None:
        return [entry.crc]
    is_kafkas_lz4 = entry.magic == 0 and entry.codec is Codec.LZ4
    packed = with_right_checksum(entry.value) if is_kafkas_lz4 else entry.value
    message_set = decompress(entry.codec, packed, UNPACKED_BYTES_MAX)
    return [inner.crc for _, inner in scan_entries(message_set, 0, len(message_set))]


def _control_marker(record: Record) -> ControlMarker:
    try:
        control = decode_control(record)
    except InvalidRecordError:
        return ControlMarker(type_id=-1, name="UNKNOWN", coordinator_epoch=None)
    match control:
        case EndTransactionMarker():
            kind = ControlType.COMMIT if control.commit else ControlType.ABORT
            return ControlMarker(type_id=kind, name=kind.name, coordinator_epoch=control.coordinator_epoch)
        case LeaderChange():
            return _named(ControlType.LEADER_CHANGE)
        case OtherControl():
            return _named(control.type_number)


def _named(type_id: int) -> ControlMarker:
    known = type_id in ControlType.__members__.values()
    name = ControlType(type_id).name if known else "UNKNOWN"
    return ControlMarker(type_id=type_id, name=name, coordinator_epoch=None)
