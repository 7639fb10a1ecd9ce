"""A digest of a replica's log, to compare replicas (`partition verify`).

SHA-256 over the batches as they stand in the log. All replicas hold the same bytes, including the 16 that the leader
rewrites, so equal ranges have equal digests; the replicas of a compacted topic are compacted independently, and may
differ. One chunk at a time is in memory; it is hashed in the workers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from streamlog.errors import CorruptMessageError, OutcomeUnknownError
from streamlog.model import Offset
from streamlog.ports import Workers
from streamlog.records import check_crc, scan_headers
from streamlog.storage.files.checkpoints import EpochEntry
from streamlog.storage.log.log import Log

CHUNK_BYTES: Final = 1 << 20


class LogDigest(Struct, frozen=True, kw_only=True):
    """`digest`: of the batches with a first offset in [start_offset, end_offset), and the one that holds the start."""

    start_offset: Offset
    end_offset: Offset
    digest: bytes  # 32 bytes
    batch_count: int
    log_start: Offset
    high_watermark: Offset
    log_end: Offset
    epochs: tuple[EpochEntry, ...]  # those with offsets in the range, ascending


class _Hash:
    """Incremental: fed in the workers, chunk by chunk."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()
        self.batch_count = 0

    def feed(self, data: bytes, offset: Offset, end_offset: Offset) -> Offset:
        """Hash the batches in `data`, which begin at `offset` or contain it. Returns where the next one begins.

        CorruptMessageError where a batch does not match its CRC.
        """
        stop = 0
        for position, header in scan_headers(data, 0, len(data)):
            if header.base_offset >= end_offset:
                offset = end_offset
                break
            check_crc(data, position, header)
            self.batch_count += 1
            offset, stop = header.next_offset, position + header.size_bytes
        if not stop and offset < end_offset:
            raise CorruptMessageError("no whole batch was read", position=0)
        self.sha256.update(memoryview(data)[:stop])
        return offset


async def digest_of(
    log: Log,
    high_watermark: Callable[[], Offset],
    workers: Workers,
    start_offset: Offset | None,
    end_offset: Offset | None,
) -> LogDigest:
    """Of [start, end) of `log`; None: its start, its high watermark. For an empty range, wherever it is, only the
    offsets and epochs of the replica.

    Raises OffsetOutOfRangeError, StorageError, CorruptMessageError; OutcomeUnknownError if the log was truncated
    meanwhile.
    """
    start = log.log_start_offset if start_offset is None else start_offset
    end = high_watermark() if end_offset is None else end_offset
    for offset in (start, end) if start_offset is None or start_offset != end_offset else ():
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise log.out_of_range(offset)
    generation = log.durability.generation
    found, offset = _Hash(), start
    while offset < end:
        data = await log.read(offset, CHUNK_BYTES, end_offset=end)
        if not data:
            break  # compaction has left nothing up to the end
        offset = await workers.run(found.feed, data, offset, end)
    if generation != log.durability.generation:
        raise OutcomeUnknownError(f"{log.partition}: the log was truncated while it was read: retry")
    return LogDigest(
        start_offset=start,
        end_offset=end,
        digest=found.sha256.digest(),
        batch_count=found.batch_count,
        log_start=log.log_start_offset,
        high_watermark=high_watermark(),
        log_end=log.log_end_offset,
        epochs=_epochs_in(log.epochs.entries, start, end),
    )


def _epochs_in(entries: tuple[EpochEntry, ...], start: Offset, end: Offset) -> tuple[EpochEntry, ...]:
    """The entries of the epochs that have offsets in the range. One that begins before the range is listed with the
    range's start: where the epoch itself began depends on how far the replica's own log goes back.
    """
    found: list[EpochEntry] = []
    for entry in entries:
        if entry.start_offset >= end:
            break
        if entry.start_offset <= start:
            found = [EpochEntry(entry.epoch, start)]
        else:
            found.append(entry)
    return tuple(found)
