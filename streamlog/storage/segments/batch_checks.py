"""Whether batches on the disk are what was written there: their CRCs, and the bytes that the CRC does not cover.

The CRC covers a batch from byte 21 on. Before it are the base offset, the length, the leader epoch and the magic. A
wrong length makes the CRC fail; the others are checked against the neighbours of the batch:

    base offset   not below the end of the previous batch, and its own end not above the next batch (the next segment,
                  the log's end). After a gap left by compaction, the next batch shows whether it has moved
    leader epoch  neither below the previous batch nor above the next; where the log's epoch table has a batch and its
                  neighbour in one epoch, both must carry it. Where the table alone contradicts it, one of the two is
                  damaged; which one, another replica shows: a fault if `strict_epochs`, else left to the caller
    magic         2

Nearly all batches join: each begins where the one before ends, in the epoch that the table has there. `plain_run.py`
follows these in less time; whatever stops it is looked at by `check_batches`.

Pure: takes bytes and a `BatchContext`, returns the position of the first corrupt batch. Runs in the threads that read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from crc32c import crc32c
from msgspec import Struct

from streamlog.errors import CorruptMessageError
from streamlog.model import NO_LEADER_EPOCH, LeaderEpoch, Offset
from streamlog.records import BatchHeader, read_header
from streamlog.records.header import CRC_START, HEADER_SIZE, MAGIC
from streamlog.storage.files.checkpoints import EpochEntry

NO_EPOCHS: Final[tuple[EpochEntry, ...]] = ()


class BatchContext(Struct, frozen=True, kw_only=True):
    """What must hold for batches that are read from one segment, the first of them at `position` of the file."""

    path: str
    position: int
    stop: int  # end of the last batch; in the bytes the header of the next one may follow
    expected: Offset  # end of the previous batch: the first one starts here or after a gap
    first_last_offset: Offset | None = None  # last offset of the first batch, by the index
    bound: Offset  # no batch ends above it: the next segment's base offset, the log's end
    epochs: Sequence[EpochEntry] = NO_EPOCHS  # the log's table
    previous_epoch: LeaderEpoch = NO_LEADER_EPOCH  # of the previous batch
    gapless_from: Offset | None = None  # no offset from here on is missing; None: some may be, or the caller looks
    strict_epochs: bool = False  # a leader epoch that is not the table's is a fault by itself


class IntactBatches(NamedTuple):
    """Batches that passed all checks, up to `end` (a position in the file)."""

    end: int
    next_offset: Offset
    last_epoch: LeaderEpoch
    batches: list[tuple[int, BatchHeader]]  # position in the file


def check_batches(data: bytes, context: BatchContext) -> IntactBatches:
    """CorruptMessageError, with path and position, at the first corrupt one."""
    intact, fault = intact_prefix(data, context)
    if fault is not None:
        raise fault
    return intact


def intact_prefix(data: bytes, context: BatchContext) -> tuple[IntactBatches, CorruptMessageError | None]:
    """The intact batches at the start of `data`, and what is wrong with the next one. An incomplete last batch is left
    to the caller, unless it must end at `stop`.
    """
    view = memoryview(data)
    found: list[tuple[int, BatchHeader]] = []
    position, expected, epoch = 0, context.expected, context.previous_epoch
    stop = min(len(data), context.stop - context.position)
    fault: CorruptMessageError | None = None
    while stop - position >= HEADER_SIZE:
        header = read_header(data, position)
        size = header.size_bytes
        if header.magic != MAGIC or size < HEADER_SIZE:
            fault = _fault(context, position, f"not a record batch: magic {header.magic}, length {header.length}")
            break
        if position + size > stop:
            break
        if crc32c(view[position + CRC_START : position + size]) != header.crc:
            fault = _fault(context, position, "CRC mismatch")
            break
        reason = _header_fault(data, position, header, expected, epoch, context, is_first=not found)
        if reason:
            fault = _fault(context, position, reason)
            break
        found.append((context.position + position, header))
        position, expected, epoch = position + size, header.next_offset, header.leader_epoch
    if fault is None and position < stop and stop == context.stop - context.position:
        fault = _fault(context, position, "the batch is incomplete")
    return IntactBatches(context.position + position, expected, epoch, found), fault


def _fault(context: BatchContext, position: int, reason: str) -> CorruptMessageError:
    return CorruptMessageError(reason, path=context.path, position=context.position + position)


def _header_fault(
    data: bytes,
    position: int,
    header: BatchHeader,
    expected: Offset,
    epoch: LeaderEpoch,
    context: BatchContext,
    *,
    is_first: bool,
) -> str:
    """What is wrong with the bytes that the CRC does not cover; "": nothing."""
    if header.last_offset_delta < 0 or header.base_offset < expected:
        return f"offset {header.base_offset} where {expected} was expected"
    if header.next_offset > context.bound:
        return f"offsets {header.base_offset}..{header.last_offset} reach beyond their bound {context.bound}"
    joins = header.base_offset == expected
    if is_first and context.first_last_offset is not None:
        if header.last_offset != context.first_last_offset:
            return f"last offset {header.last_offset}, but the index says {context.first_last_offset}"
        joins = True
    if not joins and context.gapless_from is not None:
        missing = max(expected, context.gapless_from)
        if header.base_offset > missing:
            return f"no batch at offset {missing}"
    by_table = epoch_in(context.epochs, header.last_offset)
    if joins and header.leader_epoch == by_table and header.leader_epoch >= epoch:
        return ""
    after = position + header.size_bytes
    following = read_header(data, after) if len(data) - after >= HEADER_SIZE else None
    if following is not None and following.magic != MAGIC:
        following = None
    if not joins and following is not None and following.base_offset < header.next_offset:
        return (
            f"offsets {header.base_offset}..{header.last_offset} before a batch that begins at {following.base_offset}"
        )
    return _epoch_fault(header, epoch, by_table, following, context)


def _epoch_fault(
    header: BatchHeader, epoch: LeaderEpoch, by_table: LeaderEpoch, following: BatchHeader | None, context: BatchContext
) -> str:
    if header.leader_epoch == by_table:  # the table agrees: a neighbour is wrong
        return ""
    if header.leader_epoch < epoch:
        return f"leader epoch {header.leader_epoch} after {epoch}"
    if following is not None:
        # The next batch is contiguous with this one, or it proves nothing.
        joins = following.base_offset >= header.next_offset and following.next_offset <= context.bound
        if joins and following.leader_epoch < header.leader_epoch:
            return f"leader epoch {header.leader_epoch} before {following.leader_epoch}"
        next_by_table = epoch_in(context.epochs, following.last_offset)
        if joins and next_by_table == by_table == following.leader_epoch:
            return f"leader epoch {header.leader_epoch}, but the log's table and the next batch say {by_table}"
    elif epoch != NO_LEADER_EPOCH and epoch == by_table:
        return f"leader epoch {header.leader_epoch}, but the log's table and the batch before say {by_table}"
    return epoch_doubt(header, by_table) if context.strict_epochs else ""


def epoch_doubt(header: BatchHeader, by_table: LeaderEpoch) -> str:
    """What is wrong, in the batch or in the table; "": nothing. The table may begin behind the batch."""
    if by_table in (NO_LEADER_EPOCH, header.leader_epoch):
        return ""
    return f"leader epoch {header.leader_epoch}, but the log's table says {by_table}"


def epoch_in(epochs: Sequence[EpochEntry], offset: Offset) -> LeaderEpoch:
    """As `LeaderEpochs.epoch_of`."""
    i = bisect_right(epochs, offset, key=lambda entry: entry.start_offset)
    return epochs[i - 1].epoch if i else NO_LEADER_EPOCH
