"""Batches that join: each begins where the one before ends, in the epoch of the log's table, with a right CRC.

Nearly all do, so reads follow these first; `batch_checks` looks at whatever stops them, and names the fault. Two
implementations of one loop: in C where the optional package streamlog-kernel is installed (kernel/streamlog_batches.c),
in Python everywhere else.

Pure: takes bytes and a `BatchContext`. Runs in the threads that read.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from streamlog.model import INT64_MAX, NO_LEADER_EPOCH, LeaderEpoch, Offset
from streamlog.records import read_header
from streamlog.records.header import CRC_START, HEADER_SIZE, LOG_OVERHEAD, MAGIC
from streamlog.storage.files.checkpoints import EpochEntry
from streamlog.storage.segments.batch_checks import BatchContext

try:
    import streamlog_batches
except ImportError:
    streamlog_batches = None

# Bytes; position and end in them; offset expected at the position, bound of the last offsets, epoch; position that is
# asked for; crc32c -> position and offset after the batches that join, offset at the position that is asked for, or -1.
Joined: TypeAlias = Callable[[bytes, int, int, int, int, int, int, Callable[[memoryview], int]], tuple[int, int, int]]

_INTERFACE: Final = 1
_PREFIX: Final = struct.Struct(">qiibIhi")
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta."""


class PlainRun(NamedTuple):
    """Intact batches that join, up to `end` (a position in the file)."""

    end: int
    next_offset: Offset
    offset_at: Offset | None  # of the batch at the position that was asked for; None: none begins there


def joined_in_python(
    data: bytes,
    position: int,
    stop: int,
    expected: int,
    bound: int,
    epoch: int,
    asked: int,
    crc: Callable[[memoryview], int],
) -> tuple[int, int, int]:
    """As `joined` of kernel/streamlog_batches.c, of any size."""
    view, offset_at = memoryview(data), -1
    while stop - position >= HEADER_SIZE:
        if position == asked:
            offset_at = expected
        base_offset, length, its_epoch, magic, its_crc, _, delta = _PREFIX.unpack_from(data, position)
        end, next_offset = position + LOG_OVERHEAD + length, base_offset + delta + 1
        if base_offset != expected or its_epoch != epoch or magic != MAGIC or delta < 0 or next_offset > bound:
            break
        if length < HEADER_SIZE - LOG_OVERHEAD or end > stop or crc(view[position + CRC_START : end]) != its_crc:
            break
        position, expected = end, next_offset
    return position, expected, expected if position == asked else offset_at


def _found(compiled: ModuleType | None) -> Joined:
    if compiled is None or compiled.INTERFACE != _INTERFACE:
        return joined_in_python
    joined: Joined = compiled.joined
    return joined


_JOINED: Final = _found(streamlog_batches)


def plain_run(data: bytes, context: BatchContext, asked: int, joined: Joined = _JOINED) -> PlainRun:
    """The plain batches at the start of `data`. `asked`: a position in the file, maybe their end."""
    position, expected = 0, context.expected
    stop, asked = min(len(data), context.stop - context.position), asked - context.position
    offset_at: Offset | None = None
    if context.first_last_offset is not None and stop >= HEADER_SIZE:
        first = read_header(data, 0)
        if first.base_offset < expected or first.last_offset != context.first_last_offset:
            return PlainRun(context.position, expected, expected if asked == 0 else None)
        expected = Offset(first.base_offset)
    while True:
        epoch, until = _entry_at(context.epochs, expected)
        bound, before = min(context.bound, until), position
        position, offset, at = joined(data, position, stop, expected, bound, epoch, asked, crc32c)
        expected = Offset(offset)
        if at >= 0:
            offset_at = Offset(at)
        if position == before:
            return PlainRun(context.position + position, expected, offset_at)


def _entry_at(epochs: Sequence[EpochEntry], offset: Offset) -> tuple[LeaderEpoch, int]:
    """The epoch of `offset`, and where the next one begins."""
    i = bisect_right(epochs, offset, key=lambda entry: entry.start_offset)
    until = epochs[i].start_offset if i < len(epochs) else INT64_MAX
    return epochs[i - 1].epoch if i else NO_LEADER_EPOCH, until
