"""Batches with chosen header fields."""

from __future__ import annotations

import struct

from crc32c import crc32c

from streamlog.model import ProducerEpoch, ProducerId
from streamlog.records import BatchFields, encode_batch
from tests.records.strategies import NOW_MS

PRODUCER = BatchFields(producer_id=ProducerId(3), producer_epoch=ProducerEpoch(0), base_sequence=0)

BATCH = encode_batch([b"a", b"b"], timestamps=[NOW_MS, NOW_MS + 1], fields=PRODUCER)

# Field of the header: struct format and position.
FIELDS = {
    "length": (">i", 8),
    "magic": (">b", 16),
    "attributes": (">h", 21),
    "last_offset_delta": (">i", 23),
    "base_timestamp": (">q", 27),
    "max_timestamp": (">q", 35),
    "producer_id": (">q", 43),
    "producer_epoch": (">h", 51),
    "base_sequence": (">i", 53),
    "record_count": (">i", 57),
}


def with_fields(batch: bytes = BATCH, **fields: int) -> bytes:
    """The batch with other numbers in its header, and the CRC right again."""
    changed = bytearray(batch)
    for name, number in fields.items():
        form, position = FIELDS[name]
        struct.pack_into(form, changed, position, number)
    struct.pack_into(">I", changed, 17, crc32c(changed[21:]))
    return bytes(changed)
