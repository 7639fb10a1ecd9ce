"""The five codecs of a batch's records, with bounded unpacking.

Each codec packs the records of one batch as one stream:

    gzip    one member (RFC 1952)
    snappy  xerial's framing of raw snappy blocks, as Kafka's Java clients write; raw snappy is read too
    lz4     one frame of independent 64 KiB blocks, no checksum of the content (Kafka's readers refuse linked blocks)
    zstd    one frame

The caller limits the unpacked size. The limit is applied while the stream is read: more is refused with
MESSAGE_TOO_LARGE before memory is allocated for it, whatever sizes the stream announces. A stream must end where the
batch ends; an incomplete one, or bytes after it, are CORRUPT_MESSAGE.
"""

from __future__ import annotations

import zlib
from typing import Final

import lz4.frame
import zstandard

from streamlog.errors import CorruptMessageError, InvalidRequestError
from streamlog.records.compression import snappy
from streamlog.records.compression.bounds import NOT_SAID, too_large
from streamlog.records.header import Buffer, Codec

# Compression levels that a user may set (KIP-390): lowest, highest, default.
LEVELS: Final = {Codec.GZIP: (1, 9, 6), Codec.LZ4: (0, 16, 0), Codec.ZSTD: (-131072, 22, 3)}

_GZIP_WBITS: Final = 31  # for zlib: 32 KiB window, gzip header and trailer

LZ4_FRAME_MAGIC: Final = b"\x04\x22\x4d\x18"
# First estimate of the unpacked size: most logs compress to a quarter or less.
_LZ4_EXPECTED_RATIO: Final = 4
_LZ4_OUTPUT_MIN: Final = 65_536

# A frame's window is allocated before anything is unpacked. Level 22 needs 2^27.
_ZSTD_WINDOW_MAX: Final = 2**27
_ZSTD_BLOCK_MAX: Final = 131_072
_ZSTD_RLE_BLOCK: Final = 1
_ZSTD_RESERVED_BLOCK: Final = 3


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Pack the records of a batch. `level` is the codec's own; None takes the default of LEVELS.

    Raises InvalidRequestError for a level that the codec does not have.
    """
    if codec is Codec.NONE or codec is Codec.SNAPPY:
        if level is not None:
            raise InvalidRequestError(f"{codec.name.lower()} has no compression levels", field="compression.level")
        return bytes(data) if codec is Codec.NONE else snappy.compress(data)
    lowest, highest, default = LEVELS[codec]
    level = default if level is None else level
    if not lowest <= level <= highest:
        message = f"compression level {level} of {codec.name.lower()} is not in [{lowest}, {highest}]"
        raise InvalidRequestError(message, field="compression.level", limit=(lowest, highest))
    match codec:
        case Codec.GZIP:
            packer = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WBITS)
            return packer.compress(data) + packer.flush()
        case Codec.LZ4:
            return _pack_lz4(data, level)
        case Codec.ZSTD:
            return zstandard.ZstdCompressor(level=level).compress(data)


def _pack_lz4(data: Buffer, level: int) -> bytes:
    packed: bytes = lz4.frame.compress(
        data,
        compression_level=level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return packed


def decompress(codec: Codec, data: Buffer, size_bytes_max: int) -> bytes:
    """Unpack the records of a batch to at most `size_bytes_max` bytes.

    Raises MessageTooLargeError beyond that, CorruptMessageError for a stream that is damaged, incomplete, or followed
    by other bytes.
    """
    match codec:
        case Codec.NONE:
            if len(data) > size_bytes_max:
                raise too_large(size_bytes_max)
            return bytes(data)
        case Codec.GZIP:
            return _unpack_gzip(data, size_bytes_max)
        case Codec.SNAPPY:
            return snappy.decompress(data, size_bytes_max)
        case Codec.LZ4:
            return _unpack_lz4(data, size_bytes_max)
        case Codec.ZSTD:
            return _unpack_zstd(data, size_bytes_max)


def _unpack_gzip(data: Buffer, size_bytes_max: int) -> bytes:
    unpacker = zlib.decompressobj(_GZIP_WBITS)
    try:
        out = unpacker.decompress(data, size_bytes_max + 1)
    except zlib.error as error:
        raise CorruptMessageError(f"gzip: {error}") from error
    if len(out) > size_bytes_max:
        raise too_large(size_bytes_max)
    _check_end("gzip", ended=unpacker.eof, trailing=len(unpacker.unused_data))
    return out


def _unpack_lz4(data: Buffer, size_bytes_max: int) -> bytes:
    if data[:4] != LZ4_FRAME_MAGIC:
        raise CorruptMessageError("lz4: not a frame")
    unpacker = lz4.frame.LZ4FrameDecompressor()
    # The library allocates the maximum output that it is given, so it gets a small one at a time.
    expected = max(_LZ4_OUTPUT_MIN, _LZ4_EXPECTED_RATIO * len(data))
    parts: list[bytes] = []
    size = 0
    try:
        while not unpacker.eof and (size == 0 or not unpacker.needs_input):
            part = unpacker.decompress(b"" if parts else data, max_length=min(expected, size_bytes_max + 1 - size))
            parts.append(part)
            size += len(part)
            if size > size_bytes_max:
                raise too_large(size_bytes_max)
            if not part:
                break
    except RuntimeError as error:
        raise CorruptMessageError(f"lz4: {error}") from error
    _check_end("lz4", ended=unpacker.eof, trailing=len(unpacker.unused_data or b""))
    return b"".join(parts)


def _unpack_zstd(data: Buffer, size_bytes_max: int) -> bytes:
    try:
        bound = zstd_output_max(data)
        with zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX).stream_reader(data) as reader:
            # One byte more than possible, otherwise the reader stops before the frame's checksum.
            out = reader.read(min(bound, size_bytes_max) + 1)
    except zstandard.ZstdError as error:
        raise CorruptMessageError(f"zstd: {error}") from error
    if len(out) > size_bytes_max:
        raise too_large(size_bytes_max)
    return out


def zstd_output_max(data: Buffer, blocks_max: int | None = None) -> int:
    """The maximum unpacked size of the frame, by its block headers (RFC 8878, 3.1.1.2); it need not announce it.
    CorruptMessageError; ZstdError for what is not a frame. NOT_SAID where it has more than `blocks_max` blocks.

    The library's reader takes an incomplete frame for a shorter one, so this checks that the frame is complete and
    fills the data.
    """
    position = zstandard.frame_header_size(data)
    output_max = blocks = 0
    last = False
    while not last:
        blocks += 1
        if blocks_max is not None and blocks > blocks_max:
            return NOT_SAID
        block = int.from_bytes(data[position : position + 3], "little")
        last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
        position += 3 + (1 if kind == _ZSTD_RLE_BLOCK else size)
        if position > len(data):
            break
        if kind == _ZSTD_RESERVED_BLOCK or size > _ZSTD_BLOCK_MAX:
            raise CorruptMessageError("zstd: impossible block header")
        output_max += size if kind <= _ZSTD_RLE_BLOCK else _ZSTD_BLOCK_MAX
    if zstandard.get_frame_parameters(data).has_checksum:
        position += 4
    _check_end("zstd", ended=position <= len(data), trailing=len(data) - position)
    return output_max


def _check_end(codec: str, *, ended: bool, trailing: int) -> None:
    if not ended:
        raise CorruptMessageError(f"{codec}: the compressed records are incomplete")
    if trailing:
        raise CorruptMessageError(f"{codec}: {trailing} trailing bytes after the compressed records")
