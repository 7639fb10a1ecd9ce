"""What a leader has to make anew of a producer's batches before it can append them, off the event loop.

    messages of magic 0 and 1          converted to batches
    another codec than the topic's     packed anew (`compression.type`)
    compacted topic, packed batches    unpacked once here, to see that every record has a key

All else is appended as it came: nobody looks at a record. The batches that come out are checked like any others when
they are appended; those that go in are checked before work is spent on them.
"""

from __future__ import annotations

import struct
from typing import Final

from streamlog.broker.topic_settings import TopicSettings
from streamlog.ports import Buffer
from streamlog.records import Codec, codec_of, convert, is_legacy, repacked, validate
from streamlog.records.header import ATTRIBUTES_POSITION, CODEC_MASK, HEADER_SIZE, LOG_OVERHEAD

_LENGTH: Final = struct.Struct(">i")


def needed(batches: Buffer, settings: TopicSettings) -> bool:
    """A look at a few header bytes. False where they make no sense: the append will refuse them."""
    codec, keys_required = settings.codec, settings.limits.keys_required
    if is_legacy(batches, 0):
        return True  # the first tells: what mixes the formats is refused
    if codec is None and not keys_required:
        return False
    position, end = 0, len(batches)
    while position + HEADER_SIZE <= end:
        packed = batches[position + ATTRIBUTES_POSITION + 1] & CODEC_MASK
        if (codec is not None and packed != codec) or (keys_required and packed != Codec.NONE):
            return True
        size = _LENGTH.unpack_from(batches, position + 8)[0] + LOG_OVERHEAD
        if size < HEADER_SIZE:
            return False
        position += size
    return False


def prepare(batches: Buffer, settings: TopicSettings, now_ms: int) -> Buffer:
    """The batches as they are to be appended. Raises what `records.convert` and `records.validate` raise."""
    limits = settings.limits
    if is_legacy(batches, 0):
        batches = convert(batches, 0, len(batches), unpacked_bytes_max=limits.unpacked_bytes_max)
    found = validate(batches, 0, len(batches), limits, now_ms)
    codec = settings.codec
    if codec is None or all(codec_of(header.attributes) is codec for _, header in found):
        return batches
    return b"".join(
        repacked(batches, position, header, codec, unpacked_bytes_max=limits.unpacked_bytes_max)
        for position, header in found
    )
