"""What a node tells of its disks and replicas when an operator asks (DescribeLogDirs, DigestReplicas)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamlog.errors import StreamlogError
from streamlog.model import LeaderEpoch, Offset, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSize:
    partition: TopicPartition
    size_bytes: int  # of its files
    log_start: Offset
    log_end: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    path: str
    directory_id: bytes
    total_bytes: int  # of the file system; -1: not known
    usable_bytes: int  # what can still be written; -1: not known
    replicas: Sequence[ReplicaSize]  # rising
    error: StreamlogError | None  # None: it works


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDigest:
    """One replica, over [start, end) as it was asked for."""

    digest: bytes  # SHA-256 of the batches in the range, as they stand in the log; of nothing for an empty range
    batch_count: int
    log_start: Offset
    high_watermark: Offset  # as this replica knows it
    log_end: Offset
    epochs: Sequence[tuple[LeaderEpoch, Offset]]  # epoch and its first offset, rising, those that bear on the range
