"""Record batches made by hand: an oracle that shares no code with `streamlog.records`."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from crc32c import crc32c


def varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def record(index: int, value: bytes | None, key: bytes | None = None, timestamp_delta: int = 0) -> bytes:
    def field(data: bytes | None) -> bytes:
        return b"\x01" if data is None else varint(len(data)) + data

    body = b"\0" + varint(timestamp_delta) + varint(index) + field(key) + field(value) + b"\0"
    return varint(len(body)) + body


def batch(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    base_offset: int = 0,
    epoch: int = -1,
    timestamp: int = 1000,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
) -> bytes:
    """A batch of magic 2; `producer` is (id, epoch, base sequence)."""
    records = b"".join(record(i, value, keys[i] if keys else None) for i, value in enumerate(values))
    covered = (
        struct.pack(">hiqqqhii", attributes, len(values) - 1, timestamp, timestamp, *producer, len(values)) + records
    )
    return struct.pack(">qiibI", base_offset, len(covered) + 9, epoch, 2, crc32c(covered)) + covered


def poison(*, codec: int = 0, attributes: int = 0, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    """A batch of one record with a right header and CRC, whose records no reader can decode."""
    covered = struct.pack(">hiqqqhii", attributes | codec, 0, 1000, 1000, *producer, 1) + b"\xff" * 100
    return struct.pack(">qiibI", 0, len(covered) + 9, -1, 2, crc32c(covered)) + covered
