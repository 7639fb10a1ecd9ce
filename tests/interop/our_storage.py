"""Our log directory on the real disk, for tests beside a real Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from streamlog.model import BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionId, TopicPartition
from streamlog.ports import no_probe
from streamlog.ports.posix_disk import PosixFileSystem
from streamlog.ports.system import SystemClock, ThreadWorkers
from streamlog.records import (
    BatchFields,
    BatchHeader,
    Codec,
    ProduceLimits,
    Record,
    decode_batch,
    encode_batch,
    scan_headers,
    validate,
)
from streamlog.storage.cleaning.cleaner import Cleaner, CleaningStats
from streamlog.storage.directories.directory import LogDirectory
from streamlog.storage.log.log import Log
from streamlog.storage.log_config import LogConfig

from .workload import Sent

NODE: Final = BrokerId(1)  # that of the real broker's directories, so that both may open them
_LIMITS: Final = ProduceLimits(message_bytes_max=1 << 20)
_CONFIGS: Final = {
    "segments": LogConfig(segment_bytes=16384, index_interval_bytes=1024),
    "compacted": LogConfig(
        segment_bytes=4096, cleanup_compact=True, cleanup_delete=False, min_cleanable_dirty_ratio=0.01
    ),
    "transactions": LogConfig(segment_bytes=2048),
    "classic": LogConfig(index_interval_bytes=100),
}


def config_of(partition: TopicPartition) -> LogConfig:
    """What the real broker's topics are set to (`workload`)."""
    return _CONFIGS.get(partition.topic, LogConfig())


@asynccontextmanager
async def opened(path: Path, *, clean_stop: bool = True) -> AsyncIterator[LogDirectory]:
    """The directory with all its logs, running. Without `clean_stop` it is left as a killed process leaves it."""
    directory = await LogDirectory.open(
        PosixFileSystem(), str(path), clock=SystemClock(), random=random.Random(1), probe=no_probe, node_id=NODE
    )
    await directory.open_logs(config_of)
    running = asyncio.create_task(directory.run())
    try:
        yield directory
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await directory.close(BrokerEpoch(1) if clean_stop else None)


def partition(topic: str) -> TopicPartition:
    return TopicPartition(topic, PartitionId(0))


async def read_all(log: Log) -> list[tuple[BatchHeader, list[Record]]]:
    """Every batch from the log's start on."""
    found: list[tuple[BatchHeader, list[Record]]] = []
    offset = log.log_start_offset
    while data := await log.read(offset, 1 << 20):
        for position, header in scan_headers(data, 0, len(data)):
            found.append((header, decode_batch(data, position)))
            offset = header.next_offset
    return found


def as_sent(batches: Sequence[tuple[BatchHeader, list[Record]]]) -> list[Sent]:
    return [
        Sent(key=r.key, value=r.value, timestamp_ms=r.timestamp, headers=r.headers)
        for header, records in batches
        if not header.is_control
        for r in records
    ]


def append(log: Log, records: Sequence[Sent], *, batch: int, codec: Codec = Codec.NONE) -> None:
    """Append in batches of `batch` records, as a leader in the epoch that the log is in."""
    for start in range(0, len(records), batch):
        some = records[start : start + batch]
        data = encode_batch(
            [r.value for r in some],
            [r.key for r in some],
            [r.headers for r in some],
            timestamps=[r.timestamp_ms for r in some],
            fields=BatchFields(codec=codec),
        )
        batches = validate(data, 0, len(data), _LIMITS, SystemClock().wall_ms())
        log.append_as_leader(data, batches, LeaderEpoch(max(0, log.epochs.latest)), SystemClock().wall_ms())


async def compact(directory: LogDirectory) -> CleaningStats:
    """Clean the one compacted log up to its active segment."""
    workers = ThreadWorkers(1)
    try:
        cleaner = Cleaner(PosixFileSystem(), directory, SystemClock(), workers, no_probe)
        await directory.checkpoint()
        stats = await cleaner.clean_filthiest(lambda log: log.log_end_offset)
    finally:
        await workers.close()
    assert stats is not None
    return stats


def first_and_end(log: Log) -> tuple[Offset, Offset]:
    return log.log_start_offset, log.log_end_offset
