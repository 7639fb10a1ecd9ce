"""Requests of the Batches service as values: validated, clamped, with defaults filled in.

Only streamlog.api.convert makes them, so they need no further checks.
"""

from __future__ import annotations

import enum
from typing import Final

from msgspec import Struct

from streamlog.model import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Acks,
    IsolationLevel,
    LeaderEpoch,
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    TopicId,
)


class MetadataQuery(Struct, frozen=True, kw_only=True):
    """Topics by name and id, each once; or all topics."""

    topics: tuple[str, ...]  # valid names
    topic_ids: tuple[TopicId, ...]
    all_topics: bool  # then the two above are empty


class PartitionRef(Struct, frozen=True, kw_only=True):
    """A partition as the client named it. At least one of `topic` and `topic_id` is set."""

    topic: str  # a valid name; empty: by id
    topic_id: TopicId | None  # None: by name
    partition: PartitionId  # >= 0; may not exist
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH  # that the client knows; NO_LEADER_EPOCH: not checked


class PartitionAppend(Struct, frozen=True, kw_only=True):
    ref: PartitionRef
    correlation_id: int
    batches: bytes  # not validated: the append does
    traceparents: tuple[str, ...] = ()  # contexts of its records, not validated; the first is the parent of spans


class ProduceRequest(Struct, frozen=True, kw_only=True):
    acks: Acks
    timeout_ms: int  # 1 to PRODUCE_TIMEOUT_MS_MAX
    transactional_id: str  # empty: none
    appends: tuple[PartitionAppend, ...]  # not empty


class FetchSettings(Struct, frozen=True, kw_only=True):
    """bytes_min <= response_bytes_max <= receive_bytes_max."""

    isolation_level: IsolationLevel
    bytes_min: int  # >= 1
    wait_ms_max: int  # 0: no waiting
    response_bytes_max: int
    receive_bytes_max: int


class PartitionFetch(Struct, frozen=True, kw_only=True):
    ref: PartitionRef
    correlation_id: int
    fetch_offset: Offset  # >= 0
    last_fetched_epoch: LeaderEpoch  # NO_LEADER_EPOCH: not checked
    bytes_max: int  # >= 1
    end_offset: Offset | None  # one past the last offset to read, > fetch_offset; None: no end


class FetchRequest(Struct, frozen=True, kw_only=True):
    settings: FetchSettings
    fetches: tuple[PartitionFetch, ...]  # not empty, no partition twice


class FetchChange(Struct, frozen=True, kw_only=True):
    """A message of a fetch stream."""

    settings: FetchSettings | None  # None: unchanged
    add: tuple[PartitionFetch, ...]
    remove: tuple[PartitionRef, ...]


class OffsetPlace(enum.Enum):
    EARLIEST = 1
    LATEST = 2
    MAX_TIMESTAMP = 3


class OffsetQuery(Struct, frozen=True, kw_only=True):
    ref: PartitionRef
    place: OffsetPlace | int  # int: the first record with this timestamp (ms since 1970, >= 0) or a later one


class ListOffsetsRequest(Struct, frozen=True, kw_only=True):
    isolation_level: IsolationLevel
    queries: tuple[OffsetQuery, ...]  # not empty


class EpochQuery(Struct, frozen=True, kw_only=True):
    ref: PartitionRef
    leader_epoch: LeaderEpoch  # whose end offset is wanted, >= 0


class InitProducerIdRequest(Struct, frozen=True, kw_only=True):
    transactional_id: str  # empty: an idempotent producer
    transaction_timeout_ms: int  # >= 1
    producer_id: ProducerId = NO_PRODUCER_ID  # both or none
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    two_phase: bool = False  # an external coordinator ends its transactions: they do not time out
    keep_prepared: bool = False  # only with `two_phase`


PRODUCE_TIMEOUT_MS: Final = 30_000  # Kafka's request.timeout.ms
PRODUCE_TIMEOUT_MS_MAX: Final = 600_000
FETCH_WAIT_MS: Final = 500  # Kafka's fetch.max.wait.ms
FETCH_WAIT_MS_MAX: Final = 60_000
PARTITION_BYTES: Final = 1 << 20  # Kafka's max.partition.fetch.bytes
RESPONSE_BYTES: Final = 1 << 20
RECEIVE_BYTES: Final = 4 << 20  # gRPC's default limit
RECEIVE_BYTES_MAX: Final = 64 << 20
PARTITIONS_PER_REQUEST_MAX: Final = 10_000
TRANSACTION_TIMEOUT_MS: Final = 60_000  # Kafka's transaction.timeout.ms
TRANSACTIONAL_ID_LENGTH_MAX: Final = 249
