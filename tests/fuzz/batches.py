"""Batches of records, sound and damaged."""

from __future__ import annotations

import random
import struct

from streamlog.model import Offset
from streamlog.records import BatchFields, Codec, encode_batch


def sound_batch(rng: random.Random) -> bytes:
    values = [rng.randbytes(20) for _ in range(rng.randint(1, 5))]
    fields = BatchFields(base_offset=Offset(0), base_sequence=-1, codec=rng.choice(list(Codec)))
    return encode_batch(values, fields=fields, timestamps=1_700_000_000_000)


def batches(rng: random.Random) -> bytes:
    """As a producer makes them, or nearly."""
    batch = bytearray(sound_batch(rng))
    if rng.random() < 0.6:
        for _ in range(rng.randint(1, 3)):
            at = rng.choice((rng.randrange(len(batch)), rng.randrange(61)))
            batch[at] ^= 1 << rng.randrange(8)
    if rng.random() < 0.2:
        struct.pack_into(">i", batch, 8, rng.choice((-1, 0, (1 << 31) - 1, 49)))
    return bytes(batch) * rng.choice((1, 1, 2))
