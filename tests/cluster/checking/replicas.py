"""What one replica holds: read from the bytes of its log, not from what it says."""

from __future__ import annotations

import zlib
from typing import NamedTuple

from msgspec import Struct

from streamlog.model import BrokerId, LeaderEpoch, Offset, TopicPartition
from streamlog.records import check_crc, iter_batch, scan_headers
from streamlog.storage.log.log import Log


class Stored(NamedTuple):
    """One record where it stands."""

    offset: Offset
    key: bytes | None
    value: bytes | None


class StoredBatch(NamedTuple):
    base_offset: Offset
    next_offset: Offset
    epoch: LeaderEpoch
    crc: int  # of the whole batch, prefix and all
    table_epoch: LeaderEpoch  # the epoch that the replica's table gives its first offset


class Replica(Struct, frozen=True, kw_only=True):
    """log_start <= high_watermark <= log_end. Records and batches rise in offset, and reach to the log's end."""

    broker: BrokerId
    partition: TopicPartition
    log_start: Offset
    high_watermark: Offset
    log_end: Offset
    batches: tuple[StoredBatch, ...] = ()
    records: tuple[Stored, ...] = ()

    def committed(self) -> dict[Offset, Stored]:
        """By offset, in [log start, high watermark)."""
        return {r.offset: r for r in self.records if self.log_start <= r.offset < self.high_watermark}


def log_bytes(log: Log) -> bytes:
    """All that stands in its segments."""
    return b"".join(segment.file.pread(segment.size_bytes, 0) for segment in log.segments)


def read_replica(broker: BrokerId, log: Log, high_watermark: Offset) -> Replica:
    """CorruptMessageError where a batch is not sound."""
    data = log_bytes(log)
    batches: list[StoredBatch] = []
    records: list[Stored] = []
    for position, header in scan_headers(data, 0, len(data)):
        check_crc(data, position, header)
        batches.append(
            StoredBatch(
                header.base_offset,
                header.next_offset,
                header.leader_epoch,
                zlib.crc32(data[position : position + header.size_bytes]),
                log.epochs.epoch_of(max(header.base_offset, log.log_start_offset)),
            )
        )
        if not header.is_control:
            records += [Stored(record.offset, record.key, record.value) for record in iter_batch(data, position)]
    return Replica(
        broker=broker,
        partition=log.partition,
        log_start=log.log_start_offset,
        high_watermark=high_watermark,
        log_end=log.log_end_offset,
        batches=tuple(batches),
        records=tuple(records),
    )
