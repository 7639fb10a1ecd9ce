"""A producer's queue for one partition: batches that accumulate records, batches in flight, batches to be retried.

    accumulating (batches) --take--> in_flight --result--> settled
                                      |  ^
                     retriable error, |  | take, in order, one at a time, before any new batch
                     stream broken    v  |
                                     retry

No duplicates, no reordering (idempotence, SEMANTICS 6)
- Batches get their sequences in the order in which they are first sent; all unsettled ones stay in that order.
- After a failure nothing is sent until every batch in flight has an outcome (its result, the end of its stream, or a
  new leader, after which the results of the old one are ignored). Then they are retried one at a time, as Kafka's
  producer does: a leader without any state of this producer accepts any sequence as the first.
- For the same reason a new epoch starts with a single batch in flight.
- OUT_OF_ORDER_SEQUENCE or UNKNOWN_PRODUCER_ID for the first unsettled batch means that the leader's state of this
  producer differs (an older batch failed permanently, the state has expired, or was lost in an unclean election): the
  batch was not appended, nor were those after it. The partition starts a new epoch at sequence 0 (KIP-360, here for
  each partition on its own). For a later batch the same codes only mean that an earlier one failed.

Without idempotence batches are retried as well; then a broken connection may duplicate records, and with more than one
request in flight reorder them, as in Kafka.

Owned by the producer's loop. `send` in other threads appends to `batches` under the producer's guard.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, Protocol

from msgspec import Struct

from streamlog.client.connection.metadata import Leader
from streamlog.client.producer.batches.producer_batch import ProducerBatch
from streamlog.client.producer.batches.wire_batch import ProducerIdAndEpoch, Slice, WireBatch
from streamlog.errors import StreamlogError
from streamlog.model import INT32_MAX, NO_SEQUENCE, PRODUCER_EPOCH_MAX, ProducerEpoch, TopicPartition

# uvloop counts whole milliseconds, so its timers fire up to one early.
TIMER_EARLY_S: Final = 1.5e-3


class QueueRules(Struct, frozen=True, kw_only=True):
    """The rules of all queues of a producer."""

    linger_s: float
    in_flight_max: int  # batches of one partition; with idempotence not above 5
    wire_bytes_max: int  # of a wire batch that is made of several batches
    idempotent: bool
    transactional: bool = False


class QueueLink(Protocol):
    """The stream to a partition's leader (`produce_link`)."""

    @property
    def address(self) -> str: ...

    @property
    def broken(self) -> str:
        """Why the last stream ended; empty: none has."""
        ...

    def offer(self, queue: PartitionQueue) -> None:
        """The queue may have a batch to send."""
        ...

    def withdraw(self, queue: PartitionQueue) -> None:
        """The partition has another leader."""
        ...

    def forget(self, wire: WireBatch) -> None:
        """Ignore the result of this batch: it is sent to another leader."""
        ...


class PartitionQueue:
    def __init__(self, partition: TopicPartition, topic_id: bytes, rules: QueueRules) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.leader: Leader | None = None
        self.link: QueueLink | None = None  # to the leader
        self.batches: deque[ProducerBatch] = deque()  # only the last one may be open
        self.in_flight: list[WireBatch] = []  # in order
        self.in_flight_link: QueueLink | None = None  # on which they were sent
        self.retry: list[WireBatch] = []  # in order
        # None: not assigned yet.
        self.identity: ProducerIdAndEpoch | None = None if rules.idempotent else ProducerIdAndEpoch()
        self.not_before = 0.0  # end of the back-off, on the loop's clock
        self.failures = 0  # in a row
        self.flushing = 0  # flushes that wait for the batches
        self._rules = rules
        self._next_sequence = 0
        self._established = False  # a batch of this epoch is in the leader's log
        self._next_identity: ProducerIdAndEpoch | None = None  # for all that follows, once nothing is in flight
        self._orders = 0
        self._wire_bytes_max = rules.wire_bytes_max

    @property
    def idle(self) -> bool:
        return not (self.batches or self.in_flight or self.retry)

    def unsettled(self) -> Iterator[ProducerBatch]:
        """In order."""
        for wire in sorted([*self.in_flight, *self.retry], key=lambda wire: wire.order):
            for part in wire.slices:
                yield part.batch
        yield from self.batches

    # Sending.

    def take(self, now: float) -> WireBatch | None:
        """The next batch to be sent, which is in flight from now on; None: there is none, or it must wait."""
        if self._next_identity is not None:
            if self.in_flight:
                return None  # with the present epoch it would belong to the previous transaction
            self._restart(self._next_identity)
        if self.identity is None or self.leader is None or now < self.not_before - TIMER_EARLY_S:
            return None
        if self.in_flight and self.in_flight_link is not self.link:
            return None
        if self.retry:
            if self.in_flight:
                return None
            wire = self.retry.pop(0)
        elif self.in_flight and self.in_flight[0].attempts > 1:
            # The leader remembers few batches: if others were appended meanwhile, it might not recognize this one.
            return None
        else:
            if len(self.in_flight) >= self._window or not self._is_due(now):
                return None
            gathered = self._gather(now)
            if gathered is None:
                return None
            wire = gathered
        if self._rules.idempotent and wire.sequence == NO_SEQUENCE:
            wire.number(self.identity, self._take_sequences(len(wire)))
        wire.attempts += 1
        self.in_flight.append(wire)
        self.in_flight_link = self.link
        return wire

    @property
    def _window(self) -> int:
        """How many batches may be in flight: one until the leader knows this producer, since an unknown producer may
        start with any sequence, and the second batch could be accepted without the first. Transactions start with 0.
        """
        rules = self._rules
        return rules.in_flight_max if self._established or rules.transactional or not rules.idempotent else 1

    def _is_due(self, now: float) -> bool:
        return bool(self.batches) and self._batch_is_due(self.batches[0], now)

    def _batch_is_due(self, batch: ProducerBatch, now: float) -> bool:
        return batch.limit < 0 or self.flushing > 0 or now - batch.opened_at >= self._rules.linger_s - TIMER_EARLY_S

    def _gather(self, now: float) -> WireBatch | None:
        """The first batch, and as many of the following as are due and fit. None where they have no records."""
        slices: list[Slice] = []
        size = 0
        while self.batches:
            batch = self.batches[0]
            if slices and (size + batch.size > self._wire_bytes_max or not self._batch_is_due(batch, now)):
                break
            self.batches.popleft()
            batch.seal()
            if batch.values:
                slices.append(Slice(batch, 0, len(batch)))
                size += batch.size
        if not slices:
            return None
        self._orders += 1
        return WireBatch(slices, (self._orders,), size)

    def _take_sequences(self, count: int) -> int:
        first = self._next_sequence
        self._next_sequence = first + count
        if self._next_sequence > INT32_MAX:
            self._next_sequence -= INT32_MAX + 1
        return first

    # Outcomes. Each removes a batch from those in flight.

    def succeeded(self, wire: WireBatch) -> None:
        self.in_flight.remove(wire)
        self.failures = 0
        self._established = True

    def failed(self, wire: WireBatch) -> None:
        """Permanently."""
        self.in_flight.remove(wire)

    def retry_later(self, wire: WireBatch, error: StreamlogError) -> None:
        wire.correlation = None
        wire.last_error = error
        self.in_flight.remove(wire)
        self._put_back(wire)

    def retry_in_halves(self, wire: WireBatch, error: StreamlogError) -> bool:
        """It was too large for the topic. False where it is a single record.

        Nothing of it was appended, and the halves take its sequences.
        """
        halves = wire.halves()
        if halves is None:
            return False
        self._wire_bytes_max = max(1, min(self._wire_bytes_max, wire.size // 2))
        self.in_flight.remove(wire)
        sequence = wire.sequence
        for half in halves:
            half.last_error = error
            half.attempts = wire.attempts
            if sequence != NO_SEQUENCE:
                half.number(wire.identity, sequence)
                sequence = (sequence + len(half)) & INT32_MAX
            self._put_back(half)
        return True

    def _put_back(self, wire: WireBatch) -> None:
        self.retry.append(wire)
        self.retry.sort(key=lambda each: each.order)

    def reclaim(self, error: StreamlogError) -> list[WireBatch]:
        """Retry all that are in flight, which are returned."""
        wires = list(self.in_flight)
        for wire in wires:
            self.retry_later(wire, error)
        return wires

    def is_first(self, wire: WireBatch) -> bool:
        """Whether no unsettled batch comes before it."""
        return all(wire.order <= other.order for other in (*self.in_flight, *self.retry))

    def waits_since(self) -> float | None:
        """When the oldest unsettled batch was opened; None: there is none."""
        return next((batch.opened_at for batch in self.unsettled() if not batch.done), None)

    def expire(self, opened_before: float) -> list[ProducerBatch]:
        """Batches that were opened before then and are unsettled. The caller fails them and calls `drop_done`."""
        return [batch for batch in self.unsettled() if batch.opened_at < opened_before and not batch.done]

    def why_undelivered(self) -> str:
        """For people."""
        if self.leader is None:
            return "the partition has no known leader"
        leader = f"the leader, node {self.leader.broker} at {self.leader.address}"
        for wire in (*self.in_flight, *self.retry):
            if wire.last_error is not None:
                return f"last error of {leader}: {wire.last_error.code}: {wire.last_error.message}"
        if self.needs_identity:
            return "no node returned a producer id"
        if self.in_flight:
            return f"{leader}, has not answered"
        why = "" if self.link is None or not self.link.broken else f": {self.link.broken}"
        return f"not sent to {leader}{why}"

    def drop_done(self) -> None:
        """Drop batches that have failed, unless they are in flight."""
        for wire in self.retry:
            if wire.done:
                for part in wire.slices:
                    part.batch.release()
        self.retry = [wire for wire in self.retry if not wire.done]
        while self.batches and self.batches[0].done:
            self.batches.popleft().release()

    # Producer id and epoch.

    @property
    def needs_identity(self) -> bool:
        """Whether it needs a new producer id."""
        return self.identity is None and self._next_identity is None

    @property
    def latest_identity(self) -> ProducerIdAndEpoch | None:
        """That of batches that have no sequence yet."""
        return self._next_identity or self.identity

    def begin(self, identity: ProducerIdAndEpoch) -> None:
        """The producer has an id for it, or begins a transaction."""
        self._next_identity = identity

    def begin_epoch(self) -> None:
        """The leader's state differs: all unsettled batches get new sequences, from 0, once nothing is in flight."""
        if self.identity is None:
            return
        if self.identity.epoch < PRODUCER_EPOCH_MAX:
            self._next_identity = self.identity._replace(epoch=ProducerEpoch(self.identity.epoch + 1))
        else:
            self.identity = None

    def _restart(self, identity: ProducerIdAndEpoch) -> None:
        self.identity, self._next_identity = identity, None
        self._next_sequence = 0
        self._established = False
        self.drop_done()
        for wire in self.retry:
            wire.leave_out_done()
            wire.number(identity, self._take_sequences(len(wire)))
