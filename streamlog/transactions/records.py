"""What the coordinator stores for one transactional id: the newest record of the id is valid, None deletes it."""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from msgspec import Struct

from streamlog.model import INT32_MAX, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicPartition

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
    """`partitions` is empty except in ONGOING and PREPARE_*; `next_*` is used in PREPARE_* only."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch  # current one; in PREPARE_* that of the markers, and of the next transaction
    previous_producer_id: ProducerId = NO_PRODUCER_ID  # set when the epochs of one id were exhausted
    timeout_ms: int  # of a transaction; TWO_PHASE: none
    state: TransactionStatus
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIME  # wall clock
    updated_ms: int
    next_partitions: frozenset[TopicPartition] = frozenset()  # of the next transaction
    next_started_ms: int = NO_TIME  # NO_TIME: none is open
    former_committed: bool | None = (
        None  # outcome of the previous one; set if this one was opened before its markers were written
    )

    # In ONGOING, after a producer that kept it (two-phase commit): the epoch with which the transaction was prepared.
    kept_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    # In EMPTY, PREPARE_ABORT and COMPLETE_ABORT: the epoch that the producer named which was initialized last, or for
    # which the transaction was aborted. The same call again is not fenced: its response was lost.
    claimed_epoch: ProducerEpoch = NO_PRODUCER_EPOCH

    @property
    def has_next(self) -> bool:
        """Whether the next transaction is open while this one is being completed."""
        return self.next_started_ms != NO_TIME


TWO_PHASE: Final = -1
"""As a time-out: an external coordinator ends the transaction."""
TIMEOUT_MS_MAX: Final = INT32_MAX - 1
"""In the log, INT32_MAX is TWO_PHASE."""


class TransactionRecord(NamedTuple):
    transactional_id: str
    value: TransactionValue | None
