"""The aborted transactions of a closed segment, recomputed from its batches where its index is damaged."""

from __future__ import annotations

from streamlog.errors import CorruptMessageError
from streamlog.ports import FileSystem
from streamlog.storage.producers.markers import read_marker
from streamlog.storage.producers.producer_states import ProducerStates
from streamlog.storage.producers.state_replay import restore_producers
from streamlog.storage.segments.header_scan import scan_file
from streamlog.storage.segments.segment import Segment
from streamlog.storage.segments.segment_list import Segments
from streamlog.storage.segments.transaction_index import AbortedTransaction


async def producers_before(
    fs: FileSystem, directory: str, segments: Segments, segment: Segment
) -> ProducerStates | None:
    """The producers' state at the beginning of `segment`; None: an earlier segment is damaged too."""
    try:
        return await restore_producers(fs, directory, segments, segment.base_offset)
    except CorruptMessageError:
        return None


async def aborted_in(
    fs: FileSystem, directory: str, segments: Segments, segment: Segment
) -> list[AbortedTransaction] | None:
    """By rising last offset; None: the batches themselves are damaged."""
    producers = await producers_before(fs, directory, segments, segment)
    if producers is None:
        return None
    found: list[AbortedTransaction] = []
    segment.pin()
    try:
        async for batches in scan_file(segment.file, 0, segment.size_bytes, check_crc=True):
            for position, header in batches:
                marker = read_marker(segment.file, position, header) if header.is_control else None
                aborted = producers.update(header, marker)
                if aborted is not None:
                    found.append(aborted)
    except CorruptMessageError:
        return None
    finally:
        segment.unpin()
    return found
