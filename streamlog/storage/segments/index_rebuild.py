"""The indexes of a segment, rebuilt from its batches."""

from __future__ import annotations

from streamlog.errors import CorruptMessageError
from streamlog.storage.segments.header_scan import scan_file
from streamlog.storage.segments.segment import Segment


async def rebuild_indexes(segment: Segment) -> None:
    """Offset and time index of a closed segment. CorruptMessageError at an impossible batch: the indexes end before it,
    and are closed nevertheless. They stay as they are where a truncation makes the segment the active one meanwhile.
    """
    segment.pin()
    segment.reset_indexes(preallocate=False)
    try:
        with segment.rebuilding():
            async for batches in scan_file(segment.file, 0, segment.size_bytes, check_crc=False):
                if segment.tail is not None:
                    return
                segment.note_all(batches)
    except CorruptMessageError:
        if segment.tail is None:
            raise
    finally:
        if segment.tail is None:
            segment.become_closed()
        segment.unpin()
