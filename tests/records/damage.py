"""Mutated batches."""

from __future__ import annotations

import random
import struct

from crc32c import crc32c

NUMBERS = (0, 1, 127, 128, 255, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)


def mutated(rng: random.Random, raw: bytes, start: int = 0) -> bytes:
    """The bytes with one to three things wrong behind `start`."""
    out = bytearray(raw)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        size = len(out)
        at = rng.randrange(start, size) if size > start else size
        match rng.randrange(7):
            case 0 if size > at:
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                number = rng.choice(NUMBERS)
                width = rng.choice([1, 2, 4, 8])
                out[at : at + width] = (number & (1 << 8 * width) - 1).to_bytes(width, "big")
            case 2:
                del out[at:]
            case 3:
                out[at:] = bytes(size - at)
            case 4:
                out += rng.choice([b"\x00", b"\xff" * 9, bytes(rng.randrange(40)), rng.randbytes(7)])
            case 5:
                piece = out[at : at + rng.randrange(30)]
                del out[at : at + len(piece)]
                to = rng.randrange(start, len(out) + 1) if len(out) >= start else len(out)
                out[to:to] = piece
            case _:
                out[at : at + 1] = rng.choice([b"\xff\xff\xff\xff\x0f", b"\xfe\xff\xff\xff\x0f", b"\x01", b"\x80"])
    return bytes(out)


def made_right(batch: bytes) -> bytes:
    """Length and CRC fitted to whatever the batch has become."""
    if len(batch) < 61:
        return batch
    fitted = bytearray(batch)
    struct.pack_into(">i", fitted, 8, len(fitted) - 12)
    struct.pack_into(">I", fitted, 17, crc32c(fitted[21:]))
    return bytes(fitted)
