"""`send`: a record into the open batch of its partition. The part of AsyncProducer that every record passes.

    send --> TopicTable: partition, open batch --full, or none is open--> another one, whose bytes are reserved
      |___ the topic is not known yet: PendingRecords, until it is

`send` appends to a list and returns. Where the producer has no table of the topic (not started, closed, no transaction
is open, no metadata yet) `_send_pending` waits for one, or raises the reason.

Filled under the producer's guard, by whichever thread sends; the loop takes batches from the queues under it. What
follows from a new batch happens on the loop (`_post`): a thread that opens many in a row wakes it once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, cast

from streamlog.client.connection.client_ports import ClientPorts
from streamlog.client.producer.batches.buffer_memory import BufferMemory
from streamlog.client.producer.batches.partition_queue import PartitionQueue
from streamlog.client.producer.batches.pending_records import OVERHEAD_BYTES, PendingRecords, PendingSend
from streamlog.client.producer.batches.producer_batch import RECORD_OVERHEAD, PendingRecord, ProducerBatch, RecordFuture
from streamlog.client.producer.batches.topic_table import TopicTable
from streamlog.client.producer.delivery import Delivery
from streamlog.client.producer.flushing import Flushing
from streamlog.client.producer.given_records import (
    TIMESTAMP_MAX,
    GivenHeaders,
    check_bytes,
    check_topic,
    checked_headers,
    checked_partition,
    checked_timestamp,
)
from streamlog.client.producer.producer_rules import ProducerRules
from streamlog.client.producer.producer_topics import ProducerTopics
from streamlog.client.transactions.transaction_manager import TransactionManager, TransactionPhase
from streamlog.errors import InvalidRequestError, MessageTooLargeError
from streamlog.records import Headers
from streamlog.records.encode import encode_headers
from streamlog.records.header import HEADER_SIZE

NO_HEADERS: Final[Headers] = ()


class Accumulator:
    _loop: asyncio.AbstractEventLoop
    _ports: ClientPorts
    _delivery: Delivery
    _pending: PendingRecords
    _topics: ProducerTopics
    _flushing: Flushing
    _transactions: TransactionManager | None

    def __init__(
        self,
        rules: ProducerRules,
        guard: AbstractContextManager[object],
        future_type: type[RecordFuture],
        *,
        threaded: bool,
    ) -> None:
        """`threaded`: `send` is called in other threads than the loop's."""
        self._new_future = future_type
        self._rules = rules
        self._guard = guard
        self._threaded = threaded
        self._buffer = BufferMemory(rules.buffer_bytes, guard)
        self._tables: dict[str, TopicTable] = {}  # those of `_topics`, for `send`
        self._routing = False  # records that waited for their topic are sent; their bytes are reserved already
        self._now_ms = 0  # the time at this turn of the loop; 0: not read yet
        self._inbox: dict[tuple[Callable[[PartitionQueue], None], PartitionQueue], None] = {}  # calls for the loop

    def _check_open(self) -> None:
        """ClientClosedError."""
        raise NotImplementedError

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: GivenHeaders = NO_HEADERS,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordFuture:
        """Send one record; its future returns partition and offset. Never waits.

        Value and key: bytes or None, or what the producer's serializers take (SerializationError). `headers`: pairs
        (name, bytes or None), or a dict. `timestamp_ms`: None: now. Raises ThrottledError where the
        buffer is full, MessageTooLargeError (max.request.size), InvalidRequestError, UnknownTopicOrPartitionError for a
        partition that the topic does not have, ClientClosedError, and what a partitioner of one's own raises. Where it
        raises nothing is taken, and other records are not affected.
        """
        # The hot path: it is inlined, as function calls cost more than the work.
        try:
            table = self._tables[topic]
        except (KeyError, TypeError):
            return self._send_pending(topic, value, key, headers, partition, timestamp_ms)
        size = RECORD_OVERHEAD
        if value.__class__ is bytes:
            size += len(value)
        elif value is not None:
            raise InvalidRequestError(f"a value must be bytes or None, not {type(value).__name__}", field="value")
        if key is not None:
            if key.__class__ is not bytes:
                raise InvalidRequestError(f"a key must be bytes or None, not {type(key).__name__}", field="key")
            size += len(key)
        if headers:
            headers = checked_headers(headers)
            size += len(encode_headers(headers))
        if timestamp_ms is not None and not (timestamp_ms.__class__ is int and 0 <= timestamp_ms <= TIMESTAMP_MAX):
            timestamp_ms = checked_timestamp(timestamp_ms)
        if partition is None and (key is not None or table.asks_without_key):
            partition = table.known.get(key)
            if partition is None:
                partition = table.choose(key, value)
        if partition is None:
            batch = table.sticky
        elif partition.__class__ is int and 0 <= partition < len(table.open):
            batch = table.open[partition]
        else:
            partition = table.check(checked_partition(partition))
            batch = table.open[partition]
        total = batch.size + size
        if total > batch.limit:
            batch = self._next_batch(table, partition, size)
            total = batch.size + size
        batch.size = total
        values = batch.values
        index = len(values)
        # The value comes last: an interrupt (Ctrl-C) in between leaves no record without its key.
        if key is not None:
            keys = batch.keys
            if keys is not None and len(keys) == index:
                keys.append(key)
            else:
                batch.add_keys(index, (key,))
        if headers:
            batch.add_headers(index, cast(Headers, headers))
        if timestamp_ms is None:
            timestamp_ms = self._now_ms or self._read_clock()
        if timestamp_ms != batch.timestamp:
            batch.add_timestamp(index, timestamp_ms)
        values.append(value)
        future = self._new_future()
        future.promise = batch
        future.index = index
        return future

    def _next_batch(self, table: TopicTable, partition: int | None, size: int) -> ProducerBatch:
        """A batch that a record of `size` bytes fits in. ThrottledError, MessageTooLargeError."""
        if size + HEADER_SIZE > self._rules.record_bytes_max:
            raise MessageTooLargeError(
                f"a record of {size} bytes exceeds max.request.size, which is {self._rules.record_bytes_max}",
                field="value",
                limit=self._rules.record_bytes_max,
            )
        limit = max(self._rules.batch_bytes, HEADER_SIZE + size)
        sticky = partition is None
        if partition is None:
            partition = table.sticky_partition(self._rules.batch_bytes, adaptive=self._rules.adaptive)
        batch = table.open[partition]
        if batch.size + size > batch.limit:
            batch = self._open_batch(table, partition, limit)
        if sticky:
            table.sticky = batch
        return batch

    def _open_batch(self, table: TopicTable, partition: int, limit: int) -> ProducerBatch:
        """ThrottledError. Where it is interrupted (Ctrl-C) there is no batch yet, or an empty one that is sent."""
        queue = table.queues[partition]
        before = table.open[partition]
        batch = ProducerBatch(queue.partition, limit, self._loop)
        batch.reserved = limit
        batch.add_done_callback(partial(self._on_batch_done, batch))
        used_bytes = self._buffer.used_bytes
        try:
            self._reserve(limit)
            if before.limit > 0:
                before.close()
                self._post(self._delivery.due, queue)
            self._post(self._delivery.opened, queue)
            queue.batches.append(batch)
        except BaseException:
            if not (queue.batches and queue.batches[-1] is batch):
                self._buffer.used_bytes = used_bytes
            raise
        table.open[partition] = batch
        return batch

    def _post(self, call: Callable[[PartitionQueue], None], queue: PartitionQueue) -> None:
        """Call it on the loop. Under the guard."""
        if not self._threaded:
            call(queue)
            return
        if not self._inbox:
            self._loop.call_soon_threadsafe(self._empty_inbox)  # sim: for the synchronous producer only
        self._inbox[call, queue] = None

    def _empty_inbox(self) -> None:
        with self._guard:
            calls, self._inbox = self._inbox, {}
        for call, queue in calls:
            call(queue)

    def _read_clock(self) -> int:
        """Read once in a turn of the loop; from other threads always."""
        now_ms = self._ports.clock.wall_ms()
        if not self._threaded:
            self._now_ms = now_ms
            self._loop.call_soon(self._reset_time)
        return now_ms

    def _reset_time(self) -> None:
        self._now_ms = 0

    # The buffer.

    def _reserve(self, size: int) -> None:
        """ThrottledError."""
        if self._routing:
            self._buffer.take(size)
        else:
            self._buffer.reserve(size)

    def _on_batch_done(self, batch: ProducerBatch) -> None:
        self._buffer.release(batch.reserved)
        self._flushing.note_failure(batch)

    # Records whose topic is not known yet.

    def _send_pending(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: GivenHeaders,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> RecordFuture:
        check_topic(topic)
        check_bytes("value", value)
        check_bytes("key", key)
        headers = checked_headers(headers) if headers else NO_HEADERS
        encoded = encode_headers(headers)
        if partition is not None:
            partition = checked_partition(partition)
        if timestamp_ms is not None:
            timestamp_ms = checked_timestamp(timestamp_ms)
        self._check_open()
        if self._transactions is not None:
            self._transactions.check_open()
        record = PendingRecord(self._loop)
        size = OVERHEAD_BYTES + len(value or b"") + len(key or b"") + len(encoded)
        stamp = self._read_clock() if timestamp_ms is None else timestamp_ms
        waiting = PendingSend(record, value, key, headers, partition, stamp, size)
        self._pending.add(topic, waiting, partial(self._begin_search, topic))
        future = self._new_future()
        future.promise = record
        future.index = 0
        return future

    def _begin_search(self, topic: str) -> None:
        if self._threaded:
            self._loop.call_soon_threadsafe(self._pending.search, topic)  # sim: for the synchronous producer only
        else:
            self._pending.search(topic)

    def _on_known(self, topic: str) -> None:
        settling = self._transactions is not None and self._transactions.state is TransactionPhase.SETTLING
        if settling:
            self._tables = self._topics.tables  # these were accepted before its end began
        self._routing = True
        try:
            self._pending.send_all(topic, partial(self._send_routed, topic))
        finally:
            self._routing = False
            if settling:
                self._tables = {}

    def _send_routed(self, topic: str, one: PendingSend) -> RecordFuture:
        # Not `self.send`: a traced one has made the record's span already.
        return Accumulator.send(
            self,
            topic,
            one.value,
            key=one.key,
            headers=one.headers,
            partition=one.partition,
            timestamp_ms=one.timestamp_ms,
        )

    async def _table(self, topic: str) -> TopicTable:
        self._check_open()
        if self._transactions is not None:
            self._transactions.check_open()
        return await self._find_table(topic)

    async def _find_table(self, topic: str) -> TopicTable:
        return await self._topics.table(topic, self._rules.max_block_s)
