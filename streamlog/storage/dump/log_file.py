"""`.log`: its batches, or their records.

A batch whose CRC is wrong is unpacked all the same where it can be: its records are shown as not valid, since a
person may know better what is left of them. A large one is not: nothing is worth the memory that its lengths ask for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from streamlog.errors import StreamlogError
from streamlog.model import INT32_MAX, Offset
from streamlog.ports import File
from streamlog.records.decode import decode_batch
from streamlog.records.record import Record
from streamlog.storage.dump.framing import Framing
from streamlog.storage.dump.items import Batch, ControlMarker, Damage, Item, LogRecord, LogStart

SUSPECT_BYTES_MAX: Final = 16 << 20

# Control record: key version i16, type i16; value of an end marker version i16, coordinator epoch i32 (KIP-98);
# types from 2 on are those of Kafka's metadata quorum (KIP-595, KIP-630, KIP-853).
_CONTROL_KEY: Final = struct.Struct(">hh")
_END_MARKER: Final = struct.Struct(">hi")
_CONTROL_TYPES: Final = (
    "ABORT",
    "COMMIT",
    "LEADER_CHANGE",
    "SNAPSHOT_HEADER",
    "SNAPSHOT_FOOTER",
    "KRAFT_VERSION",
    "KRAFT_VOTERS",
)
_END_MARKERS: Final = (0, 1)


def read_log(log: File, start_offset: Offset | None, *, deep: bool) -> Iterator[Item]:
    """LogStart, then the records (`deep`) or the batches, with the damage among them."""
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
    try:
        records = decode_batch(framing.content(batch))
    except StreamlogError as e:
        if batch.is_valid:  # otherwise its CRC is reported already
            yield Damage(position=batch.position, reason=f"the records cannot be read: {e}")
        return
    for record in records:
        yield _log_record(batch, record)


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


def _control_marker(record: Record) -> ControlMarker:
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        return ControlMarker(type_id=-1, name="UNKNOWN", coordinator_epoch=None)
    _, type_id = _CONTROL_KEY.unpack_from(record.key)
    coordinator_epoch = None
    if type_id in _END_MARKERS and record.value is not None and len(record.value) >= _END_MARKER.size:
        _, coordinator_epoch = _END_MARKER.unpack_from(record.value)
    known = 0 <= type_id < len(_CONTROL_TYPES)
    name = _CONTROL_TYPES[type_id] if known else "UNKNOWN"
    return ControlMarker(type_id=type_id, name=name, coordinator_epoch=coordinator_epoch)
