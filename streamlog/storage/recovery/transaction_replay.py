"""The aborted transactions of a closed segment, found again from its batches: where its index was damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamlog.errors import CorruptMessageError
from streamlog.ports import FileSystem
from streamlog.storage.files.snapshot_files import load_snapshot
from streamlog.storage.log.markers import read_marker
from streamlog.storage.log.producer_restore import follow
from streamlog.storage.log.producers import ProducerStates
from streamlog.storage.segments.header_scan import scan_file
from streamlog.storage.segments.segment import Segment
from streamlog.storage.segments.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from streamlog.storage.log.log import Log


async def producers_before(fs: FileSystem, log: Log, segment: Segment) -> ProducerStates | None:
    """The producers' state where the segment begins; None: an earlier segment is damaged too."""
    base, first = segment.base_offset, log.segments.first.base_offset
    producers = load_snapshot(fs, log.directory, base)
    if producers is None or producers.map_end_offset < first:
        producers = ProducerStates((), first)
    try:
        await follow(producers, log.segments, base, base)
    except CorruptMessageError:
        return None
    return producers


async def aborted_in(fs: FileSystem, log: Log, segment: Segment) -> list[AbortedTransaction] | None:
    """By rising last offset; None: the batches themselves are damaged."""
    producers = await producers_before(fs, log, segment)
    if producers is None:
        return None
    found: list[AbortedTransaction] = []
    try:
        async for batches in scan_file(segment.file, 0, segment.size_bytes, check_crc=True):
            for position, header in batches:
                marker = read_marker(segment.file, position, header) if header.is_control else None
                aborted = producers.update(header, marker)
                if aborted is not None:
                    found.append(aborted)
    except CorruptMessageError:
        return None
    return found
