"""The producers' state at a log's end, read again: the last sound snapshot, and the headers that follow it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamlog.errors import DamagedFileError
from streamlog.model import Offset
from streamlog.ports import FileSystem
from streamlog.storage import names
from streamlog.storage.header_scan import scan_file
from streamlog.storage.markers import read_marker
from streamlog.storage.producer_snapshot import SIZE_MAX, parse_snapshot
from streamlog.storage.producers import ProducerStates
from streamlog.storage.replace_file import read_file
from streamlog.storage.segments import Segments

if TYPE_CHECKING:
    from streamlog.storage.log import Log


def load_snapshot(fs: FileSystem, directory: str, files: list[str], upto: Offset) -> ProducerStates | None:
    """The newest sound snapshot among `files` (names in `directory`) at or below `upto`."""
    offsets = sorted(
        (parsed[0] for parsed in map(names.parse_file_name, files) if parsed and parsed[1:] == (names.SNAPSHOT, "")),
        reverse=True,
    )
    for offset in offsets:
        if offset > upto:
            continue
        path = names.join(directory, names.file_name(offset, names.SNAPSHOT))
        try:
            content = read_file(fs, path, SIZE_MAX)
            if content is not None:
                return ProducerStates(parse_snapshot(path, content), offset)
        except (DamagedFileError, ValueError):
            continue  # derived: an older one and more batches give the same state
    return None


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
    producers = load_snapshot(fs, log.directory, fs.list(log.directory), log.log_end_offset)
    if producers is None or producers.map_end_offset < first:
        producers = ProducerStates((), first)
    while producers.map_end_offset < log.log_end_offset:
        await follow(producers, log.segments, log.log_end_offset, log.log_end_offset)
    return producers
