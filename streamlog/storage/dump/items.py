"""The contents of the files of a log, as values: `read` yields them, the command line formats them."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

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
from streamlog.storage.segments.transaction_index import AbortedTransaction


class LogStart(Struct, frozen=True, kw_only=True):
    """First item of a log. Its name says which offset it starts at; None for a file of another name."""

    start_offset: Offset | None


class Batch(Struct, frozen=True, kw_only=True):
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


class ControlMarker(Struct, frozen=True, kw_only=True):
    """The contents of a control record."""

    type_id: int
    name: str  # COMMIT, ABORT ..., UNKNOWN
    coordinator_epoch: int | None  # of COMMIT and ABORT


class LogRecord(Struct, frozen=True, kw_only=True):
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


class OffsetIndexEntry(Struct, frozen=True, kw_only=True):
    file_position: int
    offset: Offset
    position: int  # in the log


class TimeIndexEntry(Struct, frozen=True, kw_only=True):
    file_position: int
    timestamp_ms: int
    offset: Offset


class EmptyIndex(Struct, frozen=True, kw_only=True):
    """A `.index` without entries; it may be preallocated."""


class SanityPassed(Struct, frozen=True, kw_only=True):
    """A start would accept the index as it is."""


class ProducerEntry(Struct, frozen=True, kw_only=True):
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


class PartitionOffset(Struct, frozen=True, kw_only=True):
    """A line of a log directory's checkpoint."""

    topic: str
    partition: PartitionId
    offset: Offset


class EpochStartOffset(Struct, frozen=True, kw_only=True):
    """A line of `leader-epoch-checkpoint`."""

    epoch: LeaderEpoch
    start_offset: Offset


class Damage(Struct, frozen=True, kw_only=True):
    """Bytes that cannot be trusted. What follows in the stream is intact again."""

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
    | EpochStartOffset
    | Damage
)
