"""The LZ4 frames of magic 0: Kafka 0.8 and 0.9 hashed the wrong bytes.

A frame's header ends with a byte of xxHash-32 over the frame descriptor. Kafka's first writer hashed the frame's
magic as well, so that no other reader takes its frames (KAFKA-3160). Old messages keep that byte, and readers of
magic 0 ignore it; here the right one is put in its place, so that the library reads the frame.
"""

from __future__ import annotations

from typing import Final

from streamlog.errors import CorruptMessageError

_MAGIC_SIZE: Final = 4
_CONTENT_SIZE_BIT: Final = 0x08
_DICTIONARY_BIT: Final = 0x01

_MASK: Final = 0xFFFFFFFF
_PRIME_1: Final = 2654435761
_PRIME_2: Final = 2246822519
_PRIME_3: Final = 3266489917
_PRIME_4: Final = 668265263
_PRIME_5: Final = 374761393


def with_right_checksum(frame: bytes) -> bytes:
    """The frame with the header checksum that the LZ4 frame format requires.

    Raises CorruptMessageError for a frame that is shorter than its header.
    """
    if len(frame) < _MAGIC_SIZE + 3:
        raise CorruptMessageError("lz4: the frame header is incomplete")
    flags = frame[_MAGIC_SIZE]
    descriptor_size = 2 + (8 if flags & _CONTENT_SIZE_BIT else 0) + (4 if flags & _DICTIONARY_BIT else 0)
    at = _MAGIC_SIZE + descriptor_size
    if len(frame) <= at:
        raise CorruptMessageError("lz4: the frame header is incomplete")
    checksum = xxh32_short(frame[_MAGIC_SIZE:at]) >> 8 & 0xFF
    return b"".join((frame[:at], bytes([checksum]), frame[at + 1 :]))


def xxh32_short(data: bytes) -> int:
    """xxHash-32 with seed 0 of fewer than 16 bytes, by its specification's steps 4 to 6."""
    accumulator = _PRIME_5 + len(data)
    words = len(data) & ~3
    for start in range(0, words, 4):
        accumulator += int.from_bytes(data[start : start + 4], "little") * _PRIME_3
        accumulator = _rotated(accumulator, 17) * _PRIME_4
    for byte in data[words:]:
        accumulator += byte * _PRIME_5
        accumulator = _rotated(accumulator, 11) * _PRIME_1
    accumulator &= _MASK
    accumulator = (accumulator ^ accumulator >> 15) * _PRIME_2 & _MASK
    accumulator = (accumulator ^ accumulator >> 13) * _PRIME_3 & _MASK
    return accumulator ^ accumulator >> 16


def _rotated(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> 32 - bits) & _MASK
