"""What a leader rewrites in a producer's batches before they are written: offsets, epoch, with LogAppendTime the
timestamp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from streamlog.model import LeaderEpoch, Offset
from streamlog.ports import Buffer
from streamlog.records import BatchHeader, read_header, restamp_log_append_time, stamp
from streamlog.records.header import LOG_OVERHEAD, PREFIX_SIZE

Batches: TypeAlias = Sequence[tuple[int, BatchHeader]]
"""Position in a buffer and header, in order."""


class Stamped(NamedTuple):
    buffers: list[Buffer]  # as they are written, without a copy of what the producer sent
    batches: list[tuple[int, BatchHeader]]
    size_bytes: int
    next_offset: Offset


def stamped(buffer: Buffer, batches: Batches, first: Offset, epoch: LeaderEpoch) -> Stamped:
    """Give the batches the offsets from `first` on: 16 new bytes each, the rest as received."""
    view = memoryview(buffer)
    buffers: list[Buffer] = []
    found: list[tuple[int, BatchHeader]] = []
    offset, size = first, 0
    for position, header in batches:
        batch_size = LOG_OVERHEAD + header.length
        buffers += (stamp(offset, header.length, epoch), view[position + PREFIX_SIZE : position + batch_size])
        found.append((size, BatchHeader(offset, header.length, epoch, *header[3:])))
        offset = Offset(offset + header.last_offset_delta + 1)
        size += batch_size
    return Stamped(buffers, found, size, offset)


def with_append_time(buffer: Buffer, batches: Batches, now_ms: int) -> tuple[bytearray, list[tuple[int, BatchHeader]]]:
    """A copy with LogAppendTime timestamps: the only case in which the broker computes a CRC."""
    copy = bytearray(buffer)
    restamped = []
    with memoryview(copy) as view:
        for position, header in batches:
            with view[position : position + header.size_bytes] as batch:
                restamp_log_append_time(batch, now_ms)
            restamped.append((position, read_header(copy, position)))
    return copy, restamped


def split_by_space(batches: Batches, space: int, segment_bytes: int) -> list[list[tuple[int, BatchHeader]]]:
    """Split what a follower received by segments: `space` bytes in the first, `segment_bytes` in the others."""
    groups: list[list[tuple[int, BatchHeader]]] = []
    size = 0
    for position, header in batches:
        if not groups or size + header.size_bytes > space:
            space = segment_bytes if groups else space
            groups.append([])
            size = 0
        groups[-1].append((position, header))
        size += header.size_bytes
    return groups
