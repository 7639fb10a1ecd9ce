"""Whether a stream unpacks to more than a limit, mostly decided without unpacking it.

A leader checks this for every compressed batch before it is stored, so it must be cheap:

    packed size x highest ratio of the codec     enough for most batches
    gzip                                         its trailer has the size; readers refuse a stream with a forged one
    zstd, lz4                                    the headers of its blocks bound it
    otherwise                                    it is unpacked, up to the limit

So a decompression bomb is refused at produce, and costs consumers nothing. Bytes that are not a stream of their codec
are refused where that is noticed, which is not always.
"""

from __future__ import annotations

import struct
from typing import Final

import zstandard

from streamlog.errors import CorruptMessageError, InvalidRecordError
from streamlog.records.compression import snappy
from streamlog.records.compression.bounds import NOT_SAID, too_large
from streamlog.records.compression.codecs import LZ4_FRAME_MAGIC, decompress, zstd_output_max
from streamlog.records.header import Buffer, Codec

# Highest ratio of unpacked to packed bytes.
_DENSEST: Final = {
    Codec.GZIP: 1_032,  # RFC 1951: 258 bytes for a match of 2 bits
    Codec.SNAPPY: 22,  # 64 bytes for an element of 3
    Codec.LZ4: 255,
    Codec.ZSTD: 32_768,  # a block of 131,072 bytes for 4
}
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_SIZE: Final = struct.Struct("<I")  # RFC 1952, 2.3.1: ISIZE, modulo 2^32
_LZ4_BLOCK: Final = struct.Struct("<I")
_LZ4_HEADER_MIN: Final = 7  # magic, FLG, BD, checksum
_LZ4_PLAIN: Final = 1 << 31


def check_unpacked_size(codec: Codec, data: Buffer, size_bytes_max: int) -> None:
    """`data`: the compressed records of one batch. MessageTooLargeError, InvalidRecordError."""
    if codec is Codec.NONE or len(data) * _DENSEST[codec] <= size_bytes_max:
        return
    try:
        if codec is Codec.GZIP:
            (announced,) = _GZIP_SIZE.unpack_from(data, len(data) - _GZIP_SIZE.size)
            if announced > size_bytes_max:
                raise too_large(size_bytes_max)
            return
        bound = zstd_output_max(data) if codec is Codec.ZSTD else _lz4_output_max(data) if codec is Codec.LZ4 else None
        if bound is None or bound > size_bytes_max:
            decompress(codec, data, size_bytes_max)
    except (CorruptMessageError, zstandard.ZstdError) as error:
        raise InvalidRecordError(
            f"the records are not a {codec.name.lower()} stream: {error}", field="batches"
        ) from error


def unpacked_size_max(codec: Codec, data: Buffer, *, blocks_max: int | None = None) -> int:
    """The maximum unpacked size of `data`, the compressed records of one batch, as the stream announces it. It may be
    wrong, so it has to be enforced when unpacking. InvalidRecordError for what is not a stream of the codec.

    `blocks_max`: with more blocks than that they are not all read, and the result is NOT_SAID.
    """
    try:
        match codec:
            case Codec.NONE:
                return len(data)
            case Codec.GZIP:
                if data[: len(_GZIP_MAGIC)] != _GZIP_MAGIC:
                    raise CorruptMessageError("not a member")
                (announced,) = _GZIP_SIZE.unpack_from(data, max(0, len(data) - _GZIP_SIZE.size))
                return int(announced)
            case Codec.SNAPPY:
                return snappy.unpacked_size(data, blocks_max)
            case Codec.LZ4:
                return _lz4_output_max(data, blocks_max)
            case Codec.ZSTD:
                announced = zstandard.frame_content_size(data)
                by_blocks = zstd_output_max(data, blocks_max)
                if by_blocks == NOT_SAID:
                    return NOT_SAID
                return by_blocks if announced < 0 else min(announced, by_blocks)
    except (CorruptMessageError, zstandard.ZstdError, struct.error, IndexError) as error:
        reason = error.reason if isinstance(error, CorruptMessageError) else str(error)
        raise InvalidRecordError(
            f"the records are not a {codec.name.lower()} stream: {reason}", field="batches"
        ) from None


def _lz4_output_max(data: Buffer, blocks_max: int | None = None) -> int:
    """By the headers of its blocks (LZ4 frame format 1.6); of an incomplete frame, by those that exist."""
    if data[:4] != LZ4_FRAME_MAGIC:
        raise CorruptMessageError("not a frame")
    flags, descriptor = data[4], data[5]
    block_max = 1 << (8 + 2 * (descriptor >> 4 & 7))
    position = _LZ4_HEADER_MIN + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    checksum = 4 if flags & 0x10 else 0
    output_max = blocks = 0
    while position + _LZ4_BLOCK.size <= len(data):
        blocks += 1
        if blocks_max is not None and blocks > blocks_max:
            return NOT_SAID
        (size,) = _LZ4_BLOCK.unpack_from(data, position)
        if size == 0:
            break
        packed = size & ~_LZ4_PLAIN
        output_max += packed if size & _LZ4_PLAIN else block_max
        position += _LZ4_BLOCK.size + packed + checksum
    return output_max
