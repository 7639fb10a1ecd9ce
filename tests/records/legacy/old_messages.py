"""Messages of the old formats."""

from __future__ import annotations

import struct
import zlib

from kafka.codec import lz4_encode_old_kafka

from streamlog.records import (
    Codec,
)
from streamlog.records.compression.codecs import compress
from tests.records.strategies import NOW_MS


def message(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *,
    magic: int = 1,
    attributes: int = 0,
    timestamp: int = NOW_MS,
) -> bytes:
    """An entry of a message set, written after the description of the format."""
    time = struct.pack(">q", timestamp) if magic == 1 else b""
    fields = b"".join(
        struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field for field in (key, value)
    )
    body = struct.pack(">bb", magic, attributes) + time + fields
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(offset: int, inner: bytes, codec: Codec, *, magic: int = 1, log_append: bool = False) -> bytes:
    packed = lz4_encode_old_kafka(inner) if (codec, magic) == (Codec.LZ4, 0) else compress(codec, inner)
    return message(
        offset, None, packed, magic=magic, attributes=codec | (8 if log_append else 0), timestamp=NOW_MS + 99
    )
