"""Ids and small values that all layers use. Pure: imports nothing of streamlog.

Each kind of integer has its own NewType, so that an offset is never mistaken for an epoch. Times are milliseconds
since 1970 (wall clock) and carry the suffix `_ms`; durations name their unit last as well.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final, NamedTuple, NewType

from msgspec import Struct

Offset = NewType("Offset", int)
"""Position of a record in its partition: from 0, 64 bits."""
LeaderEpoch = NewType("LeaderEpoch", int)
"""Counts a partition's leaders, from 0, 32 bits."""
BrokerId = NewType("BrokerId", int)
"""A node of the cluster (`node.id`)."""
BrokerEpoch = NewType("BrokerEpoch", int)
"""Counts a broker's registrations: the Raft index of the registration."""
TopicId = NewType("TopicId", bytes)
"""Identifies a topic: 16 random bytes. A topic that is recreated with the same name has another id."""
PartitionId = NewType("PartitionId", int)
"""Index of a partition in its topic, from 0."""
PartitionEpoch = NewType("PartitionEpoch", int)
"""Counts all changes of a partition's state in the metadata, from 0, 32 bits."""
RaftIndex = NewType("RaftIndex", int)
"""Index of an entry of the metadata quorum's log, from 1."""
RaftTerm = NewType("RaftTerm", int)
"""Term of the metadata quorum."""
ProducerId = NewType("ProducerId", int)
"""Idempotent or transactional producer, 64 bits; -1: none."""
ProducerEpoch = NewType("ProducerEpoch", int)
"""Fences older instances of a producer id, 16 bits; -1: none."""

TOPIC_CHARACTER: Final = "[a-zA-Z0-9._-]"
"""A regular expression: one of the name of a topic."""

NO_BROKER: Final = BrokerId(-1)
NO_OFFSET: Final = Offset(-1)
NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
NO_PRODUCER_ID: Final = ProducerId(-1)
NO_PRODUCER_EPOCH: Final = ProducerEpoch(-1)
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1

# A batch's last offset delta and a segment's relative offsets are int32 (Kafka's format).
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
PRODUCER_EPOCH_MAX: Final = 2**15 - 1


class TopicPartition(Struct, frozen=True, order=True):
    """One partition of one topic. Its directory on disk is `topic-partition`."""

    topic: str
    partition: PartitionId

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Appended(NamedTuple):
    """What an append did. `buffers` are the bytes as they stand in the log, as they are sent to followers."""

    first_offset: Offset
    next_offset: Offset  # one past the last record: acknowledged once the high watermark reaches it
    log_append_time_ms: int  # -1 with CreateTime
    size_bytes: int
    buffers: Sequence[bytes | bytearray | memoryview]
    duplicate: bool = False  # a retry: nothing was written, the offsets are those of the first append


class EpochEnd(NamedTuple):
    """A leader epoch and one past its last offset in a log. (-1, -1): unknown."""

    epoch: LeaderEpoch
    end_offset: Offset


class Acks(enum.IntEnum):
    """Who must have a record before it is acknowledged (SEMANTICS 5). The numbers are Kafka's `acks`."""

    NONE = 0
    LEADER = 1
    ALL = -1


class IsolationLevel(enum.IntEnum):
    """Which records of transactions a reader gets. The numbers are Kafka's."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
