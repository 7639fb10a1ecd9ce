"""The state that a partition keeps of its producers, to refuse duplicates and gaps (SEMANTICS 6, KIP-98).

For each producer id: its epoch and its last five batches (first and last sequence, last offset). The rules for a new
batch of the same epoch:

    it is one of the five                  -> a retry: success, with its first offset
    first sequence = last + 1              -> new (2^31-1 is followed by 0)
    otherwise                              -> OUT_OF_ORDER_SEQUENCE
    lower epoch                            -> PRODUCER_FENCED
    newer epoch                            -> must start at sequence 0
    producer id not known here             -> any sequence: its state may have expired, or been deleted with the records

Transactions (SEMANTICS 7, KIP-98, KIP-890). A producer's first transactional batch opens one, a marker ends it. Each
transaction has an epoch of its own, and its marker carries the epoch above:

    a transaction is open, plain batch     -> INVALID_TXN_STATE, and so is a batch of a newer epoch
    none is open, transactional batch      -> opens one, and must start at sequence 0, as its epoch does. The broker
                                              verifies with the coordinator that it may
    marker, epoch of the producer          -> a repeated one: success, nothing is written. The transaction open under
                                              this epoch is the next one, not the one that the marker was meant for
    marker, lower epoch                    -> PRODUCER_FENCED
    marker of an older coordinator         -> TRANSACTION_COORDINATOR_FENCED

`check` decides and changes nothing; `update` applies a batch that is in the log, without checks; followers and recovery
call nothing else. The same batches give the same state, so a snapshot (`.snapshot`, `snapshot_format`) only saves
reading the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from streamlog.errors import (
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    TransactionCoordinatorFencedError,
)
from streamlog.model import INT32_MAX, NO_OFFSET, NO_TIMESTAMP, Offset, ProducerEpoch, ProducerId
from streamlog.records import BatchHeader, EndTransactionMarker
from streamlog.records.header import CONTROL_BIT, TRANSACTIONAL_BIT
from streamlog.storage.producers.unstable_transactions import UnstableTransactions
from streamlog.storage.segments.transaction_index import VERSION, AbortedTransaction

BATCHES_KEPT: Final = 5  # Kafka's NUM_BATCHES_TO_RETAIN: max.in.flight.requests.per.connection of idempotent producers
NO_SEQUENCE: Final = -1
IDLE_MS: Final = 60 * 60 * 1000


class BatchSeen(NamedTuple):
    """A batch in the log, as its producer numbered it."""

    first_sequence: int
    last_sequence: int
    last_offset: Offset
    offset_delta: int  # last offset - first offset
    timestamp_ms: int

    @property
    def first_offset(self) -> Offset:
        return Offset(self.last_offset - self.offset_delta)


class ProducerStateEntry(Struct):
    """State of one producer id. `batches`: oldest first, at most five, all of `epoch`."""

    producer_id: ProducerId
    epoch: ProducerEpoch
    batches: list[BatchSeen]
    timestamp_ms: int  # of its last batch
    coordinator_epoch: int = -1
    transaction_start: Offset = NO_OFFSET  # first offset of its open transaction
    # Timestamp of that transaction's first batch; of a later one where it was loaded from a snapshot.
    transaction_timestamp_ms: int = NO_TIMESTAMP

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> Offset:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET


def next_sequence(last: int) -> int:
    return 0 if last == INT32_MAX else last + 1


class ProducerStates:
    """Owned by the log; `map_end_offset` is one past the last batch that it has seen."""

    __slots__ = ("_by_id", "_idle", "_last_offset", "_transactions", "map_end_offset")

    def __init__(self, producers: Iterable[ProducerStateEntry] = (), map_end_offset: int = 0) -> None:
        self._by_id: dict[ProducerId, ProducerStateEntry] = {p.producer_id: p for p in producers}
        self._transactions = UnstableTransactions(
            (p.producer_id, p.transaction_start) for p in self._by_id.values() if p.transaction_start >= 0
        )
        self.map_end_offset = Offset(map_end_offset)
        self._idle: dict[ProducerId, tuple[Offset, float]] = {}  # old ones: their last offset, and since when known
        # No batch of a producer is above it.
        self._last_offset = map_end_offset - 1 if self._by_id else -1

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[ProducerStateEntry]:
        return iter(self._by_id.values())

    def get(self, producer_id: ProducerId) -> ProducerStateEntry | None:
        return self._by_id.get(producer_id)

    def first_unstable_offset(self, high_watermark: Offset) -> Offset | None:
        """As `UnstableTransactions.first_unstable_offset`."""
        return self._transactions.first_unstable_offset(high_watermark)

    def in_transaction(self) -> list[ProducerStateEntry]:
        """Those with an open transaction, the oldest first."""
        found = [p for p in self._by_id.values() if p.transaction_start >= 0]
        return sorted(found, key=lambda p: p.transaction_start)

    def has_open(self, producer_id: ProducerId, epoch: ProducerEpoch) -> bool:
        """Whether a transaction of this producer id and epoch is open."""
        producer = self._by_id.get(producer_id)
        return producer is not None and producer.epoch == epoch and producer.transaction_start >= 0

    def is_unmoved_by_cut(self, end_offset: Offset) -> bool:
        """Whether a truncation to `end_offset` removes no batch of a producer."""
        return self._last_offset < end_offset

    def check(self, batch: BatchHeader) -> BatchSeen | None:
        """The batch that this one repeats, or None where it is new. Raises as the table above says."""
        producer = self._by_id.get(batch.producer_id)
        if producer is None:
            if batch.is_transactional and batch.base_sequence != 0:
                raise self._out_of_order(batch, 0)
            return None
        if batch.producer_epoch < producer.epoch:
            raise self._fenced(batch, producer)
        if producer.transaction_start >= 0 and (not batch.is_transactional or batch.producer_epoch > producer.epoch):
            raise InvalidTransactionStateError(
                f"producer {batch.producer_id} has a transaction open since offset {producer.transaction_start}, in"
                f" epoch {producer.epoch}: only batches of this transaction are accepted until it ends",
                producer_id=batch.producer_id,
                field="producer_epoch",
                limit=producer.epoch,
            )
        if batch.producer_epoch > producer.epoch:
            if batch.base_sequence != 0:
                raise self._out_of_order(batch, 0)
            return None
        first, last = batch.base_sequence, batch.last_sequence
        for seen in producer.batches:
            if seen.first_sequence == first and seen.last_sequence == last:
                return seen
        if producer.batches and first == producer.batches[-1].last_sequence + 1:
            return None
        expected = next_sequence(producer.last_sequence)
        if first != expected:
            raise self._out_of_order(batch, expected, producer.batches)
        return None

    def check_marker(self, batch: BatchHeader, marker: EndTransactionMarker) -> bool:
        """Whether this marker repeats one that is in the log. Raises as the table above says."""
        producer = self._by_id.get(batch.producer_id)
        if producer is None:
            return False
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFencedError(
                f"stale coordinator epoch {marker.coordinator_epoch} in a marker of producer {batch.producer_id};"
                f" current is {producer.coordinator_epoch}",
                producer_id=batch.producer_id,
                field="coordinator_epoch",
                limit=producer.coordinator_epoch,
            )
        if batch.producer_epoch < producer.epoch:
            raise self._fenced(batch, producer)
        return batch.producer_epoch == producer.epoch

    def update(self, batch: BatchHeader, marker: EndTransactionMarker | None = None) -> AbortedTransaction | None:
        """Apply a batch that was appended, replicated or read; returns the transaction that it aborted.

        `marker`: of a control batch; None where its record was compacted away or is of another kind.
        """
        last_offset = Offset(batch.base_offset + batch.last_offset_delta)
        self.map_end_offset = Offset(last_offset + 1)
        if batch.producer_id < 0:
            return None
        self._last_offset = last_offset
        producer = self._by_id.get(batch.producer_id)
        if producer is None:
            producer = ProducerStateEntry(batch.producer_id, batch.producer_epoch, [], batch.max_timestamp)
            self._by_id[batch.producer_id] = producer
        if batch.producer_epoch != producer.epoch:
            producer.epoch = batch.producer_epoch
            producer.batches = []
        producer.timestamp_ms = batch.max_timestamp
        if batch.attributes & CONTROL_BIT:
            return self._end_transaction(producer, last_offset, marker)
        seen = BatchSeen(
            batch.base_sequence, batch.last_sequence, last_offset, batch.last_offset_delta, batch.max_timestamp
        )
        producer.batches = [*producer.batches[1 - BATCHES_KEPT :], seen]
        if batch.attributes & TRANSACTIONAL_BIT and producer.transaction_start < 0:
            producer.transaction_start = batch.base_offset
            producer.transaction_timestamp_ms = batch.max_timestamp
            self._transactions.begin(batch.producer_id, batch.base_offset)
        return None

    def _end_transaction(
        self, producer: ProducerStateEntry, offset: Offset, marker: EndTransactionMarker | None
    ) -> AbortedTransaction | None:
        if marker is None:
            return None
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.transaction_start = NO_OFFSET
        producer.transaction_timestamp_ms = NO_TIMESTAMP
        ended = self._transactions.end(producer.producer_id, offset)
        if ended is None or marker.commit:
            return None
        return AbortedTransaction(VERSION, producer.producer_id, ended.first_offset, offset, ended.last_stable_offset)

    def expire(self, now_ms: int, now_s: float, expiration_ms: int) -> None:
        """Remove producers without batches for so long, unless they have an open transaction. Called regularly.

        The timestamps are their own, and those of a backfill are old from the start: so they must also have written
        nothing for an hour (`now_s`: monotonic), in which they repeat what they had no answer to.
        """
        idle: dict[ProducerId, tuple[Offset, float]] = {}
        for p in list(self._by_id.values()):
            if p.transaction_start >= 0 or now_ms - p.timestamp_ms < expiration_ms:
                continue
            last_offset, since_s = self._idle.get(p.producer_id, (p.last_offset, now_s))
            if last_offset != p.last_offset:
                since_s = now_s
            if (now_s - since_s) * 1000 >= min(expiration_ms, IDLE_MS):
                del self._by_id[p.producer_id]
            else:
                idle[p.producer_id] = p.last_offset, since_s
        self._idle = idle

    @staticmethod
    def _fenced(batch: BatchHeader, producer: ProducerStateEntry) -> ProducerFencedError:
        return ProducerFencedError(
            f"stale epoch {batch.producer_epoch} of producer {batch.producer_id}; current is {producer.epoch}:"
            " a newer producer with this id has fenced it",
            producer_id=batch.producer_id,
            field="producer_epoch",
            limit=producer.epoch,
        )

    @staticmethod
    def _out_of_order(batch: BatchHeader, expected: int, seen: Sequence[BatchSeen] = ()) -> OutOfOrderSequenceError:
        return OutOfOrderSequenceError(
            f"producer {batch.producer_id} sent sequence {batch.base_sequence}, {expected} was expected",
            producer_id=batch.producer_id,
            field="base_sequence",
            limit=expected,
            **({"end_offset": _end_offset(batch.last_sequence, seen)} if seen else {}),
        )


def _end_offset(sequence: int, seen: Sequence[BatchSeen]) -> Offset:
    """Below which this sequence of an earlier batch is in the log."""
    for one in seen:
        if (sequence - one.first_sequence) & INT32_MAX <= (one.last_sequence - one.first_sequence) & INT32_MAX:
            return Offset(one.last_offset + 1)
    return seen[0].first_offset
