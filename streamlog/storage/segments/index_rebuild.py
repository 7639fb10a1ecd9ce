"""The indexes of a segment, rebuilt from its batches."""

from __future__ import annotations

from itertools import takewhile

from streamlog.errors import CorruptMessageError
from streamlog.model import INT32_MAX
from streamlog.records import BatchHeader
from streamlog.storage.files import names
from streamlog.storage.segments.header_scan import Scanned, scan_file
from streamlog.storage.segments.segment import Segment


async def rebuild_indexes(segment: Segment) -> None:
    """Offset and time index of a closed segment. CorruptMessageError at an impossible batch: the indexes end before it,
    and are closed nevertheless. They stay as they are where a truncation makes the segment the active one meanwhile,
    and where it is closed again since.
    """
    truncations = segment.truncations

    def is_as_it_was() -> bool:
        return segment.tail is None and segment.truncations == truncations

    segment.pin()
    segment.reset_indexes(preallocate=False)
    try:
        with segment.rebuilding():
            async for batches in scan_file(segment.file, 0, segment.size_bytes, check_crc=False):
                if not is_as_it_was():
                    return
                possible = list(takewhile(lambda one: _has_offsets_of(segment, one.header), batches))
                if possible:
                    segment.note_all(possible)
                if len(possible) < len(batches):
                    raise _misplaced(segment, batches[len(possible)])
    except CorruptMessageError:
        if is_as_it_was():
            raise
    finally:
        if is_as_it_was():
            segment.become_closed()
        segment.unpin()


def _has_offsets_of(segment: Segment, header: BatchHeader) -> bool:
    """Whether an index can name the batch: its base offset is outside of the CRC."""
    return segment.base_offset <= header.base_offset <= header.last_offset <= segment.base_offset + INT32_MAX


def _misplaced(segment: Segment, batch: Scanned) -> CorruptMessageError:
    header = batch.header
    return CorruptMessageError(
        f"batch {header.base_offset}..{header.last_offset} in the segment of base offset {segment.base_offset}",
        path=segment.path(names.LOG),
        position=batch.position,
    )
