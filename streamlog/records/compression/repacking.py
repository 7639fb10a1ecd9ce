"""Recompress a batch with another codec: the records stay the same, byte for byte."""

from __future__ import annotations

import struct
from typing import Final

from crc32c import crc32c

from streamlog.errors import MessageTooLargeError
from streamlog.records.compression.bounds import UNPACKED_BYTES_MAX
from streamlog.records.compression.codecs import compress, decompress
from streamlog.records.header import (
    ATTRIBUTES_POSITION,
    BATCH_SIZE_MAX,
    CODEC_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    Buffer,
    Codec,
    codec_of,
)

_BEFORE_CRC: Final = struct.Struct(">qiibI")
_ATTRIBUTES: Final = struct.Struct(">h")


def repacked(
    buffer: Buffer, position: int, header: BatchHeader, codec: Codec, *, unpacked_bytes_max: int = UNPACKED_BYTES_MAX
) -> bytes:
    """The batch at `position`, whose CRC has been checked, with its records packed by `codec`.

    Raises CorruptMessageError (damaged stream), MessageTooLargeError, UnsupportedCompressionError.
    """
    view = memoryview(buffer)[position : position + header.size_bytes]
    if codec_of(header.attributes) is codec:
        return bytes(view)
    records = decompress(codec_of(header.attributes), view[HEADER_SIZE:], unpacked_bytes_max)
    packed = records if codec is Codec.NONE else compress(codec, records)
    size = HEADER_SIZE + len(packed)
    if size > BATCH_SIZE_MAX:
        raise MessageTooLargeError(f"a batch of {size} bytes", limit=BATCH_SIZE_MAX, size_bytes=size)
    attributes = _ATTRIBUTES.pack(header.attributes & ~CODEC_MASK | codec)
    rest = view[ATTRIBUTES_POSITION + _ATTRIBUTES.size : HEADER_SIZE]
    crc = crc32c(packed, crc32c(rest, crc32c(attributes)))
    start = _BEFORE_CRC.pack(header.base_offset, size - LOG_OVERHEAD, header.leader_epoch, MAGIC, crc)
    return b"".join((start, attributes, rest, packed))
