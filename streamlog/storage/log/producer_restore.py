"""The producers' state at a log's end, read again: the last sound snapshot, and the headers that follow it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamlog.model import Offset
from streamlog.ports import FileSystem
from streamlog.storage.files.snapshot_files import load_snapshot
from streamlog.storage.log.markers import read_marker
from streamlog.storage.log.producers import ProducerStates
from streamlog.storage.segments.header_scan import scan_file
from streamlog.storage.segments.segment_list import Segments

if TYPE_CHECKING:
    from streamlog.storage.log.log import Log


async def follow(producers: ProducerStates, segments: Segments, upto: Offset, log_end: Offset) -> None:
    """Read the headers from the state's offset to `upto`."""
    if producers.map_end_offset >= upto:
        return
    for index in range(segments.index_of(producers.map_end_offset), len(segments)):
        segment = segments.at(index)
        if segment.base_offset >= upto:
            break
        segment.pin()
        try:
            async for batches in scan_file(segment.file, 0, segment.size_bytes, check_crc=False):
                for position, header in batches:
                    if producers.map_end_offset <= header.base_offset < upto:
                        marker = read_marker(segment.file, position, header) if header.is_control else None
                        producers.update(header, marker)
        finally:
            segment.unpin()
        producers.map_end_offset = max(producers.map_end_offset, min(upto, segments.end_of(index, log_end)))


async def restore_producers(fs: FileSystem, log: Log) -> ProducerStates:
    """The state at the log's end as it was when the call began or later."""
    first = log.segments.first.base_offset
    producers = load_snapshot(fs, log.directory, log.log_end_offset)
    if producers is None or producers.map_end_offset < first:
        producers = ProducerStates((), first)
    while producers.map_end_offset < log.log_end_offset:
        await follow(producers, log.segments, log.log_end_offset, log.log_end_offset)
    return producers
