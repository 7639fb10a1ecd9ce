"""What a partition remembers of its producers, to refuse duplicates and gaps (SEMANTICS 6, KIP-98).

For each producer id: its epoch and its last five batches (first and last sequence, last offset). The rules for a new
batch of the same epoch:

    it is one of the five                  -> a retry: success, with the old offset
    first sequence = last + 1              -> new (2^31-1 is followed by 0)
    otherwise                              -> OUT_OF_ORDER_SEQUENCE
    lower epoch                            -> PRODUCER_FENCED
    newer epoch                            -> must start at sequence 0
    producer id not known here             -> any sequence: its state may have expired, or been deleted with the records

`check` decides and changes nothing; `update` follows a batch that is in the log, without checks, and is all that a
follower and recovery call. The same batches give the same state, so the log is the truth and a snapshot (`.snapshot`,
in `producer_snapshot`) only saves reading it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from streamlog.errors import OutOfOrderSequenceError, ProducerFencedError
from streamlog.model import INT32_MAX, NO_OFFSET, Offset, ProducerEpoch, ProducerId
from streamlog.records import BatchHeader

BATCHES_KEPT: Final = 5  # Kafka's NUM_BATCHES_TO_RETAIN: max.in.flight.requests.per.connection of idempotent producers
NO_SEQUENCE: Final = -1


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


@dataclass(slots=True)
class Producer:
    """State of one producer id. `batches`: oldest first, at most five, all of `epoch`."""

    producer_id: ProducerId
    epoch: ProducerEpoch
    batches: list[BatchSeen]
    timestamp_ms: int  # of its last batch: expiry counts from here
    coordinator_epoch: int = -1
    transaction_start: Offset = NO_OFFSET  # first offset of its open transaction

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

    __slots__ = ("_by_id", "_open_transactions", "map_end_offset")

    def __init__(self, producers: Iterable[Producer] = (), map_end_offset: int = 0) -> None:
        self._by_id: dict[ProducerId, Producer] = {p.producer_id: p for p in producers}
        self._open_transactions: dict[ProducerId, Offset] = {
            p.producer_id: p.transaction_start for p in self._by_id.values() if p.transaction_start >= 0
        }
        self.map_end_offset = Offset(map_end_offset)

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._by_id.values())

    def get(self, producer_id: ProducerId) -> Producer | None:
        return self._by_id.get(producer_id)

    @property
    def first_unstable_offset(self) -> Offset | None:
        """First offset of the oldest open transaction; None where none is open."""
        return min(self._open_transactions.values(), default=None)

    def check(self, batch: BatchHeader) -> BatchSeen | None:
        """The batch that this one repeats, or None where it is new. Raises as the table above says."""
        producer = self._by_id.get(batch.producer_id)
        if producer is None:
            return None
        if batch.producer_epoch < producer.epoch:
            raise ProducerFencedError(
                f"producer {batch.producer_id} sent epoch {batch.producer_epoch}, but epoch {producer.epoch} is in"
                " use: another producer has taken its place",
                producer_id=batch.producer_id,
                field="producer_epoch",
                limit=producer.epoch,
            )
        if batch.is_control:  # from a coordinator: no sequence
            return None
        if batch.producer_epoch > producer.epoch:
            if batch.base_sequence != 0:
                raise self._out_of_order(batch, 0)
            return None
        first, last = batch.base_sequence, batch.last_sequence
        for seen in producer.batches:
            if seen.first_sequence == first and seen.last_sequence == last:
                return seen
        expected = next_sequence(producer.last_sequence)
        # A producer whose epoch was opened by a control batch has no sequence yet, and may begin anywhere.
        if producer.batches and first != expected:
            raise self._out_of_order(batch, expected)
        return None

    def update(self, batch: BatchHeader) -> None:
        """Follow a batch that was appended (or replicated, or read again)."""
        self.map_end_offset = batch.next_offset
        if batch.producer_id < 0:
            return
        producer = self._by_id.get(batch.producer_id)
        if producer is None:
            producer = Producer(batch.producer_id, batch.producer_epoch, [], batch.max_timestamp)
            self._by_id[batch.producer_id] = producer
        if batch.producer_epoch != producer.epoch:
            producer.epoch = batch.producer_epoch
            producer.batches = []
        producer.timestamp_ms = batch.max_timestamp
        if batch.is_control:
            producer.transaction_start = NO_OFFSET
            self._open_transactions.pop(batch.producer_id, None)
            return
        seen = BatchSeen(
            batch.base_sequence, batch.last_sequence, batch.last_offset, batch.last_offset_delta, batch.max_timestamp
        )
        producer.batches = [*producer.batches[1 - BATCHES_KEPT :], seen]
        if batch.is_transactional and producer.transaction_start < 0:
            producer.transaction_start = batch.base_offset
            self._open_transactions[batch.producer_id] = batch.base_offset

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that have been silent for longer, unless a transaction of theirs is open."""
        old = [
            p.producer_id
            for p in self._by_id.values()
            if p.transaction_start < 0 and now_ms - p.timestamp_ms >= expiration_ms
        ]
        for producer_id in old:
            del self._by_id[producer_id]

    @staticmethod
    def _out_of_order(batch: BatchHeader, expected: int) -> OutOfOrderSequenceError:
        return OutOfOrderSequenceError(
            f"producer {batch.producer_id} sent sequence {batch.base_sequence}, {expected} was expected",
            producer_id=batch.producer_id,
            field="base_sequence",
            limit=expected,
        )
