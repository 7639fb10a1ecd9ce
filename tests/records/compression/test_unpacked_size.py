"""A bomb is known without being unpacked, and nothing else is taken for one."""

from __future__ import annotations

import gzip
import random

import lz4.frame
import pytest
import zstandard

from streamlog.errors import InvalidRecordError, MessageTooLargeError
from streamlog.records import Codec
from streamlog.records.compression import codecs, unpacked_size
from streamlog.records.compression.codecs import compress
from streamlog.records.compression.unpacked_size import check_unpacked_size

MIB = 1 << 20
PACKED = [codec for codec in Codec if codec is not Codec.NONE]


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[Codec]:
    """The codecs of what had to be unpacked."""
    seen: list[Codec] = []
    real = codecs.decompress

    def noticed(codec: Codec, data: bytes, size_bytes_max: int) -> bytes:
        seen.append(codec)
        return real(codec, data, size_bytes_max)

    monkeypatch.setattr(unpacked_size, "decompress", noticed)
    return seen


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_is_refused(codec: Codec) -> None:
    with pytest.raises(MessageTooLargeError) as raised:
        check_unpacked_size(codec, compress(codec, bytes(64 * MIB)), 8 * MIB)
    assert raised.value.details["limit"] == 8 * MIB


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("ratio", [1, 4, 12])
def test_what_logs_look_like_is_never_unpacked(codec: Codec, ratio: int, unpacked: list[Codec]) -> None:
    rng = random.Random(ratio)
    words = [rng.randbytes(48) for _ in range(40_000 // ratio**2)]
    data = b"".join(rng.choice(words) for _ in range(40_000))
    check_unpacked_size(codec, compress(codec, data), 100 * MIB)
    assert not unpacked


@pytest.mark.parametrize("size", [8 * MIB - 1, 8 * MIB, 8 * MIB + 1])
@pytest.mark.parametrize("codec", PACKED)
def test_the_limit_itself_is_allowed(codec: Codec, size: int) -> None:
    data = compress(codec, bytes(size))
    if size <= 8 * MIB:
        check_unpacked_size(codec, data, 8 * MIB)
    else:
        with pytest.raises(MessageTooLargeError):
            check_unpacked_size(codec, data, 8 * MIB)


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("checksums", [False, True])
@pytest.mark.parametrize("block_size", [lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX4MB])
def test_lz4_frames_of_all_shapes_are_bounded(block_size: int, checksums: bool, linked: bool) -> None:
    """As other clients make them."""
    for size in (0, 1, 70_000, 5 * MIB):
        for data in (bytes(size), random.Random(size).randbytes(size)):
            frame = lz4.frame.compress(
                data, block_size=block_size, block_checksum=checksums, block_linked=linked, store_size=checksums
            )
            assert unpacked_size._lz4_output_max(frame) >= size


def test_a_frame_that_does_not_say_its_size(unpacked: list[Codec]) -> None:
    """As Kafka's Java clients write zstd."""
    packer = zstandard.ZstdCompressor().compressobj()
    frame = packer.compress(bytes(64 * MIB)) + packer.flush()
    with pytest.raises(MessageTooLargeError):
        check_unpacked_size(Codec.ZSTD, frame, 8 * MIB)
    check_unpacked_size(Codec.ZSTD, frame, 64 * MIB)


def test_a_bomb_in_gzip_that_lies_about_its_size_reaches_no_reader_whole() -> None:
    """It is stored, which is allowed, and never unpacked beyond the limit."""
    data = gzip.compress(bytes(64 * MIB), 9)[:-4] + (5).to_bytes(4, "little")
    check_unpacked_size(Codec.GZIP, data, 8 * MIB)
    with pytest.raises(MessageTooLargeError):
        codecs.decompress(Codec.GZIP, data, 8 * MIB)


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_is_no_stream_is_refused_where_it_is_looked_at(codec: Codec) -> None:
    with pytest.raises(InvalidRecordError):
        check_unpacked_size(codec, b"\x05" * 5_000, 1_000)
