"""What the coordinator remembers of one transactional id: the newest record of the id counts, None deletes it."""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from msgspec import Struct

from streamlog.model import NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicPartition

NO_TIME: Final = -1


class TransactionStatus(enum.IntEnum):
    """Kafka's numbers. The transitions are in lifecycle.py."""

    EMPTY = 0  # a producer, and no transaction yet
    ONGOING = 1
    PREPARE_COMMIT = 2  # decided: markers are being written
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4  # all markers are written
    COMPLETE_ABORT = 5


PREPARED: Final = frozenset({TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT})


class TransactionValue(Struct, frozen=True, kw_only=True):
    """`partitions` is not empty only while ONGOING or PREPARE_*; `next_*` tells of something only in PREPARE_*."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch  # that holds: of the markers in PREPARE_*, of the next transaction after it
    previous_producer_id: ProducerId = NO_PRODUCER_ID  # when the epochs of one id were used up
    timeout_ms: int  # of a transaction; TWO_PHASE: none
    state: TransactionStatus
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIME  # wall clock
    updated_ms: int
    next_partitions: frozenset[TopicPartition] = frozenset()  # of the transaction behind the one that is being ended
    next_started_ms: int = NO_TIME  # NO_TIME: none is open there
    former_committed: bool | None = None  # how the one before ended; known where this one was open before its markers

    @property
    def has_next(self) -> bool:
        """Whether a transaction is open behind the one that is being ended."""
        return self.next_started_ms != NO_TIME


TWO_PHASE: Final = -1
"""As a time-out: an outside coordinator ends the transaction."""


class TransactionRecord(NamedTuple):
    transactional_id: str
    value: TransactionValue | None
