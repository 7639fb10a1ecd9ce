"""The indexes of a segment, rebuilt from its batches."""

from __future__ import annotations

from streamlog.storage.segments.header_scan import scan_file
from streamlog.storage.segments.segment import Segment


async def rebuild_indexes(segment: Segment) -> None:
    """Offset and time index of a closed segment. CorruptMessageError at an impossible batch: the indexes end before it,
    and are closed nevertheless.
    """
    segment.pin()
    segment.reset_indexes(preallocate=False)
    try:
        with segment.rebuilding():
            async for batches in scan_file(segment.file, 0, segment.size_bytes, check_crc=False):
                segment.note_all(batches)
    finally:
        segment.become_closed()
        segment.unpin()
