"""What is found in the files of a log, as values: `read` yields them, whoever prints them chooses the words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from streamlog.model import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    LeaderEpoch,
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
)
from streamlog.storage.transaction_index import AbortedTransaction


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStart:
    """First item of a log. Its name says which offset it starts at; None for a file of another name."""

    start_offset: Offset | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A record batch (magic 2), or an entry of the older formats (magic 0 and 1), which is one message or, with a
    codec, a set of them. What a format lacks is -1 or None, as Kafka's tools print it.
    """

    position: int  # in the file
    size_bytes: int
    magic: int
    is_valid: bool  # its CRC and lengths are right
    crc: int  # as stored
    codec: str  # none, gzip, snappy, lz4, zstd
    base_offset: Offset  # magic 0 and 1: equal to last_offset
    last_offset: Offset
    timestamp_type: str  # CreateTime, LogAppendTime, NoTimestampType (magic 0)
    max_timestamp_ms: int
    record_count: int | None = None
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    last_sequence: int = NO_SEQUENCE
    is_transactional: bool = False
    is_control: bool = False
    delete_horizon_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlMarker:
    """What a control record says."""

    type_id: int
    name: str  # COMMIT, ABORT ..., UNKNOWN
    coordinator_epoch: int | None  # of COMMIT and ABORT


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """A record in `batch`; its position is the batch's."""

    batch: Batch
    offset: Offset
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    sequence: int = NO_SEQUENCE
    crc: int | None = None  # magic 0 and 1: every message has its own
    control: ControlMarker | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetIndexEntry:
    file_position: int
    offset: Offset
    position: int  # in the log


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeIndexEntry:
    file_position: int
    timestamp_ms: int
    offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyIndex:
    """A `.index` without entries; it may be preallocated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SanityPassed:
    """An index would be taken as it is at a start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerEntry:
    """A producer in a snapshot. The fields of its last batch are None where it has none."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: int
    transaction_start: Offset | None  # first offset of its open transaction
    last_timestamp_ms: int
    first_sequence: int | None
    last_sequence: int | None
    last_offset: Offset | None
    offset_delta: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffset:
    """A line of a log directory's checkpoint."""

    topic: str
    partition: PartitionId
    offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStart:
    """A line of `leader-epoch-checkpoint`."""

    epoch: LeaderEpoch
    start_offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Something that cannot be trusted. What follows in the stream is sound again."""

    position: int
    reason: str


Item: TypeAlias = (
    LogStart
    | Batch
    | LogRecord
    | OffsetIndexEntry
    | TimeIndexEntry
    | EmptyIndex
    | SanityPassed
    | AbortedTransaction
    | ProducerEntry
    | PartitionOffset
    | EpochStart
    | Damage
)
