"""What a leader does to a producer's batches in a worker thread, before it can append them.

    messages of magic 0 and 1              converted to batches
    another codec than the topic's         recompressed (`compression.type`)
    compacted topic, compressed batches    decompressed once, to check that every record has a key
    large batches                          their records are checked (`records.checks.record_check`)

All others are checked on the event loop and appended as they are: a small batch costs less than a thread switch.
Batches are validated before work is spent on them.
"""

from __future__ import annotations

import struct
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from streamlog.broker.topic_settings import TopicSettings
from streamlog.errors import StreamlogError
from streamlog.ports import Buffer
from streamlog.records import BatchHeader, Codec, codec_of, convert, is_legacy, repacked, validate
from streamlog.records.compression.unpacked_size import unpacked_size_max
from streamlog.records.header import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
)

INLINE_BYTES_MAX: Final = (1 << 20) + (64 << 10)
"""Of uncompressed records, all batches of a partition together, checked on the loop: 0.2 to 1.1 ms. Larger ones exceed
the default max.message.bytes, or are highly compressed. In a thread the check would take the interpreter's lock from
the loop some hundred times, which was measured to cost three times the check.
"""
INLINE_RECORDS_MAX: Final = 16_384
"""Likewise: records of a few bytes."""
INLINE_HEADER_BYTES_MAX: Final = 16 << 10
"""Of headers of records, which are read one by one: 3 ms at worst."""
_INLINE_BLOCKS_MAX: Final = 1_024  # of a compressed stream; an ordinary one has some twenty

_LENGTH: Final = struct.Struct(">i")
_COUNT: Final = struct.Struct(">i")
_COUNT_POSITION: Final = 57


class PreparedBatches(Struct, frozen=True):
    batches: Buffer
    found: list[tuple[int, BatchHeader]]  # as of `records.validate`


def needed(batches: Buffer, settings: TopicSettings) -> bool:
    """From a few header bytes. False where they make no sense: validation will refuse them."""
    codec, limits = settings.codec, settings.limits
    end = len(batches)
    if end > MAGIC_POSITION and batches[MAGIC_POSITION] != MAGIC:
        return is_legacy(batches, 0)  # the first batch decides: mixed formats are refused
    if codec is None and not limits.keys_required and not limits.check_records:
        return False
    position = 0
    left_bytes, left_records = INLINE_BYTES_MAX, INLINE_RECORDS_MAX
    while position + HEADER_SIZE <= end:
        packed = batches[position + ATTRIBUTES_POSITION + 1] & CODEC_MASK
        if (codec is not None and packed != codec) or (limits.keys_required and packed != Codec.NONE):
            return True
        size = _LENGTH.unpack_from(batches, position + 8)[0] + LOG_OVERHEAD
        if not HEADER_SIZE <= size <= end - position:
            return False
        if limits.check_records:
            count = _COUNT.unpack_from(batches, position + _COUNT_POSITION)[0]
            left_bytes -= (
                size - HEADER_SIZE if packed == Codec.NONE else _unpacked_bytes(batches, position, size, packed)
            )
            left_records -= count if count > 0 else 0
            if left_bytes < 0 or left_records < 0:
                return True
        position += size
    return False


def _unpacked_bytes(batches: Buffer, position: int, size: int, codec_number: int) -> int:
    """The largest possible uncompressed size of the batch; 0 if it cannot be decompressed: validation refuses it."""
    try:
        packed = memoryview(batches)[position + HEADER_SIZE : position + size]
        return unpacked_size_max(codec_of(codec_number), packed, blocks_max=_INLINE_BLOCKS_MAX)
    except StreamlogError:
        return 0


def prepare(batches: Buffer, settings: TopicSettings, now_ms: int) -> PreparedBatches:
    """The batches as they will be appended. Raises what `records.convert` and `records.validate` raise."""
    limits, checked = settings.limits, replace(settings.limits, keys_required=False, check_records=False)
    if is_legacy(batches, 0):
        batches = convert(batches, 0, len(batches), unpacked_bytes_max=limits.unpacked_bytes_max)
        limits = replace(limits, check_records=False)  # every record was decoded and encoded here
    found = validate(batches, 0, len(batches), limits, now_ms)
    codec = settings.codec
    if codec is None or all(codec_of(header.attributes) is codec for _, header in found):
        return PreparedBatches(batches, found)
    batches = b"".join(
        repacked(batches, position, header, codec, unpacked_bytes_max=limits.unpacked_bytes_max)
        for position, header in found
    )
    return PreparedBatches(batches, validate(batches, 0, len(batches), checked, now_ms))
