"""The producers' state at an offset, restored from the last intact snapshot and the batch headers that follow it."""

from __future__ import annotations

from streamlog.model import Offset
from streamlog.ports import FileSystem
from streamlog.storage.producers.markers import read_marker
from streamlog.storage.producers.producer_states import ProducerStates
from streamlog.storage.producers.snapshot_files import load_snapshot
from streamlog.storage.segments.header_scan import scan_file
from streamlog.storage.segments.segment_list import Segments


async def restore_producers(fs: FileSystem, directory: str, segments: Segments, offset: Offset) -> ProducerStates:
    """The state at `offset`, from the newest snapshot at or below it. CorruptMessageError where a batch before it
    cannot be read.
    """
    first = segments.first.base_offset
    producers = load_snapshot(fs, directory, offset)
    if producers is None or producers.map_end_offset < first:
        producers = ProducerStates((), first)
    await _replay(producers, segments, offset)
    return producers


async def _replay(producers: ProducerStates, segments: Segments, end: Offset) -> None:
    """Read the headers from the state's offset to `end`, which is at most the log's end. Segments may be removed or
    replaced while another one is read.
    """
    while producers.map_end_offset < end:
        index = segments.index_of(producers.map_end_offset)
        segment, segment_end = segments.at(index), min(end, segments.end_of(index, end))
        if segment.base_offset >= end:
            break
        segment.pin()
        try:
            async for batches in scan_file(segment.file, 0, segment.size_bytes, check_crc=False):
                for position, header in batches:
                    if producers.map_end_offset <= header.base_offset < end:
                        marker = read_marker(segment.file, position, header) if header.is_control else None
                        producers.update(header, marker)
        finally:
            segment.unpin()
        producers.map_end_offset = max(producers.map_end_offset, segment_end)
