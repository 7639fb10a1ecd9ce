"""The codecs: round trips, the shape of what we write, and bounds while unpacking."""

from __future__ import annotations

import struct
import tracemalloc
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import CorruptMessageError, InvalidRequestError, MessageTooLargeError
from streamlog.records import Codec
from streamlog.records.compression.codecs import LEVELS, compress, decompress

PACKED = tuple(codec for codec in Codec if codec is not Codec.NONE)
TEXT = b"".join(b"%d INFO block %d served\n" % (index, index * 7919 % 1000) for index in range(6_000))


@pytest.mark.parametrize("codec", list(Codec))
@given(data=st.one_of(st.binary(max_size=200), st.integers(0, 200_000).map(lambda size: (TEXT * 2)[:size])))
def test_what_is_packed_is_unpacked_to_the_byte_and_to_the_bound(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    assert decompress(codec, memoryview(packed), 2**26) == data
    if data:
        with pytest.raises(MessageTooLargeError):
            decompress(codec, packed, len(data) - 1)


@pytest.mark.parametrize("codec", LEVELS)
def test_levels(codec: Codec) -> None:
    lowest, highest, _ = LEVELS[codec]
    for level in (lowest, highest):
        assert decompress(codec, compress(codec, TEXT, level), len(TEXT)) == TEXT
    for level in (lowest - 1, highest + 1):
        with pytest.raises(InvalidRequestError) as caught:
            compress(codec, TEXT, level)
        assert caught.value.details["field"] == "compression.level"


def test_codecs_without_levels() -> None:
    for codec in (Codec.NONE, Codec.SNAPPY):
        with pytest.raises(InvalidRequestError):
            compress(codec, TEXT, 1)


def test_the_framings_are_kafkas() -> None:
    assert compress(Codec.GZIP, TEXT)[:3] == b"\x1f\x8b\x08"
    snappy = compress(Codec.SNAPPY, TEXT)
    assert snappy[:16].hex() == "82534e415050590000000001" + "00000001"
    (first,) = struct.unpack_from(">i", snappy, 16)
    assert len(cramjam.snappy.decompress_raw(snappy[20 : 20 + first])) == 32_768
    frame = lz4.frame.get_frame_info(compress(Codec.LZ4, TEXT))
    assert not frame["block_linked"]
    assert frame["block_size"] == 65_536
    assert not frame["content_checksum"]
    assert frame["content_size"] == 0
    assert zstandard.get_frame_parameters(compress(Codec.ZSTD, TEXT)).dict_id == 0


def test_raw_snappy_and_little_endian_framing_are_read() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Codec.SNAPPY, raw, len(TEXT)) == TEXT
    framed = compress(Codec.SNAPPY, TEXT)
    swapped = framed[:8] + struct.pack("<ii", 1, 1) + framed[16:]
    assert decompress(Codec.SNAPPY, swapped, len(TEXT)) == TEXT
    with pytest.raises(CorruptMessageError, match="version 2"):
        decompress(Codec.SNAPPY, framed[:8] + struct.pack(">ii", 2, 2) + framed[16:], len(TEXT))


def test_frames_of_other_writers() -> None:
    """Linked blocks, checksums, announced sizes: we do not write them, and read them."""
    linked = lz4.frame.compress(TEXT, block_linked=True, content_checksum=True, block_checksum=True, store_size=True)
    assert decompress(Codec.LZ4, linked, len(TEXT)) == TEXT
    streamed = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    assert decompress(Codec.ZSTD, streamed.compress(TEXT) + streamed.flush(), len(TEXT)) == TEXT


@pytest.mark.parametrize("codec", PACKED)
def test_streams_cut_off_anywhere(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    for size in [*range(30), *range(30, len(packed), 997), len(packed) - 1]:
        try:
            out = decompress(codec, packed[:size], len(TEXT))
        except CorruptMessageError:
            continue
        assert codec is Codec.SNAPPY  # which has no end mark: a cut between blocks shows in the record count
        assert out == TEXT[: len(out)]
        assert len(out) % 32_768 == 0


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("trailing", [b"\x00", b"garbage", b"a whole stream again"])
def test_trailing_bytes(codec: Codec, trailing: bytes) -> None:
    packed = compress(codec, TEXT)
    with pytest.raises(CorruptMessageError):
        decompress(codec, packed + (packed if b"again" in trailing and codec is not Codec.SNAPPY else trailing), 2**26)


def bombs() -> dict[str, tuple[Codec, bytes]]:
    """Name -> codec, and a small stream that unpacks to 16 MiB or more, or says so."""
    zeros = bytes(2**24)
    raw_claim = b"\xff\xff\xff\xff\x0f" + b"\x00" * 40
    zstd_claim = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 2**40) + b"\x03\x00\x00" + b"\x61"
    rle = struct.pack("<I", 131_072 << 3 | 1 << 1)[:3] + b"\x00"
    zstd_runs = b"\x28\xb5\x2f\xfd\x00\x58" + rle * 5_000 + b"\x01\x00\x00"
    return {
        "gzip": (Codec.GZIP, compress(Codec.GZIP, zeros)),
        "snappy": (Codec.SNAPPY, compress(Codec.SNAPPY, zeros)),
        "snappy-raw": (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(zeros))),
        "snappy-claim": (Codec.SNAPPY, raw_claim),
        "lz4": (Codec.LZ4, compress(Codec.LZ4, zeros)),
        "lz4-announced": (Codec.LZ4, lz4.frame.compress(zeros, store_size=True)),
        "zstd": (Codec.ZSTD, compress(Codec.ZSTD, zeros)),
        "zstd-claim": (Codec.ZSTD, zstd_claim),
        "zstd-runs": (Codec.ZSTD, zstd_runs),
    }


@pytest.mark.parametrize(("name", "bomb"), bombs().items())
def test_bombs_are_stopped_at_the_bound(name: str, bomb: tuple[Codec, bytes]) -> None:
    codec, packed = bomb
    bound = 100_000
    tracemalloc.start()
    try:
        with pytest.raises((MessageTooLargeError, CorruptMessageError)) as caught:
            decompress(codec, packed, bound)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    if not name.endswith("claim"):
        assert isinstance(caught.value, MessageTooLargeError)
        assert caught.value.details["limit"] == bound
    assert peak < len(packed) + 10 * bound


def test_a_window_of_gigabytes_is_not_allocated() -> None:
    wide = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(window_log=30, enable_ldm=True)
    ).compressobj()
    packed = wide.compress(TEXT) + wide.flush()
    assert zstandard.get_frame_parameters(packed).window_size == 2**30
    with pytest.raises(CorruptMessageError, match="zstd"):
        decompress(Codec.ZSTD, packed, len(TEXT))


def test_checksums_of_the_content_are_checked() -> None:
    packed = zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)
    assert decompress(Codec.ZSTD, packed, len(TEXT)) == TEXT
    for bound in (len(TEXT), 2**24):
        with pytest.raises(CorruptMessageError, match="zstd"):
            decompress(Codec.ZSTD, packed[:-1] + bytes([packed[-1] ^ 1]), bound)
    frame = lz4.frame.compress(TEXT, content_checksum=True)
    with pytest.raises(CorruptMessageError, match="lz4"):
        decompress(Codec.LZ4, frame[:-1] + bytes([frame[-1] ^ 1]), len(TEXT))


def test_gzip_members_and_checksums() -> None:
    packed = compress(Codec.GZIP, TEXT)
    wrong = packed[:-8] + struct.pack("<I", zlib.crc32(TEXT) ^ 1) + packed[-4:]
    with pytest.raises(CorruptMessageError, match="gzip"):
        decompress(Codec.GZIP, wrong, len(TEXT))
    with pytest.raises(CorruptMessageError, match="gzip"):
        decompress(Codec.GZIP, zlib.compress(TEXT), len(TEXT))
