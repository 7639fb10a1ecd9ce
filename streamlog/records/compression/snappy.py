"""Snappy as in Kafka: raw blocks in the framing of xerial's snappy-java.

    82 53 4e 41 50 50 59 00   magic
    00 00 00 01  00 00 00 01  version, lowest version that can read it
    then per block: i32 size, and that many bytes of raw snappy

A raw block begins with its unpacked size, as an unsigned varint. That number is not trusted: 3 bytes of a block unpack
to at most 64, which is the densest element.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import cramjam

from streamlog.errors import CorruptMessageError
from streamlog.records.compression.bounds import NOT_SAID, too_large
from streamlog.records.header import Buffer

_MAGIC: Final = b"\x82SNAPPY\x00"
_VERSIONS: Final = struct.Struct(">ii")
_SIZE: Final = struct.Struct(">i")
_HEADER_SIZE: Final = len(_MAGIC) + _VERSIONS.size
_HEADER: Final = _MAGIC + _VERSIONS.pack(1, 1)
_COMPATIBLE: Final = (1, 1 << 24)  # some producers write the versions little-endian
# snappy-java's default; its reader accepts any.
_BLOCK_BYTES: Final = 32_768


def compress(data: Buffer) -> bytes:
    parts: list[bytes] = [_HEADER]
    with memoryview(data) as view:
        for start in range(0, len(view), _BLOCK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(view[start : start + _BLOCK_BYTES]))
            parts += (_SIZE.pack(len(block)), block)
    return b"".join(parts)


def decompress(data: Buffer, size_bytes_max: int) -> bytes:
    """Framed or raw, to at most `size_bytes_max` bytes. Errors as `compression.decompress`."""
    parts: list[bytes] = []
    left = size_bytes_max
    for block in _blocks(data):
        size = _size_of(block)
        if size > left:
            raise too_large(size_bytes_max)
        try:
            parts.append(bytes(cramjam.snappy.decompress_raw(block)))
        except cramjam.DecompressionError as error:
            raise CorruptMessageError(f"snappy: {error}") from error
        left -= len(parts[-1])
    return parts[0] if len(parts) == 1 else b"".join(parts)


def unpacked_size(data: Buffer, blocks_max: int | None = None) -> int:
    """What its blocks announce together; NOT_SAID where there are more than so many. CorruptMessageError for what no
    blocks can be.
    """
    size = 0
    for number, block in enumerate(_blocks(data), 1):
        if blocks_max is not None and number > blocks_max:
            return NOT_SAID
        size += _size_of(block)
    return size


def _blocks(data: Buffer) -> Iterator[Buffer]:
    """The raw blocks, framed or one alone."""
    if data[: len(_MAGIC)] != _MAGIC:
        yield data
        return
    if len(data) < _HEADER_SIZE:
        raise CorruptMessageError("snappy: the header is incomplete")
    _, compatible = _VERSIONS.unpack_from(data, len(_MAGIC))
    if compatible not in _COMPATIBLE:
        raise CorruptMessageError(f"snappy: framing version {compatible}")
    position = _HEADER_SIZE
    while position < len(data):
        if len(data) - position < _SIZE.size:
            raise CorruptMessageError("snappy: trailing bytes after the compressed records")
        (size,) = _SIZE.unpack_from(data, position)
        position += _SIZE.size
        if not 0 < size <= len(data) - position:
            raise CorruptMessageError(f"snappy: a block of {size} bytes, {len(data) - position} are left")
        yield data[position : position + size]
        position += size


def _size_of(block: Buffer) -> int:
    """As the block announces it, if that is possible."""
    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise CorruptMessageError(f"snappy: {error}") from error
    if 3 * size > 64 * len(block):
        raise CorruptMessageError(f"snappy: {len(block)} bytes cannot unpack to {size}")
    return size
