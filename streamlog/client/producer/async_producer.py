"""The producer: records in, batches out, one promise a batch.

    async with AsyncProducer(bootstrap_servers="127.0.0.1:9092", linger_ms=5) as producer:
        sent = await producer.enqueue("logs", b"a line", key=b"host-1")   # waits while the buffer is full
        print((await sent).offset)

    send --> TopicTable: partition, open batch --> PartitionQueue --Delivery--> ProduceLink --> the leader

`send` appends to a list and returns; records are sent when their batch is full, when it has lingered, or at `flush`. It
never waits: it raises ThrottledError when buffer.memory is full. `enqueue` and `send_many` wait for free bytes instead.
A record of a topic that is not known yet waits for its metadata, at most max.block.ms.

Idempotent by default: retries neither duplicate nor reorder records (`partition_queue`). An error that reaches the user
is final for its records; after RequestTimedOutError they may have been written.

States: not started -> open (`start`, or `async with`) -> closed. Owned by one event loop; nothing is durable before it
is acknowledged. `guard` is for the synchronous producer, whose `send` runs in the callers' threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar, cast

from streamlog.client import settings as client_config
from streamlog.client.connection import unclosed
from streamlog.client.connection.backoff import Backoff
from streamlog.client.connection.client_ports import ClientPorts, RealPorts, real_ports
from streamlog.client.connection.connections import Connections
from streamlog.client.connection.metadata import MetadataCache
from streamlog.client.producer.buffer_memory import BufferMemory
from streamlog.client.producer.delivery import Delivery
from streamlog.client.producer.given_records import (
    TIMESTAMP_MAX,
    GivenHeaders,
    check_bytes,
    check_topic,
    checked_headers,
    checked_partition,
    checked_timestamp,
)
from streamlog.client.producer.many_records import Columns, Sizes, by_partition, check_types
from streamlog.client.producer.partitioner import Partitioner, partitioner_of
from streamlog.client.producer.pending_records import OVERHEAD_BYTES, PendingRecords, PendingSend
from streamlog.client.producer.producer_batch import (
    RECORD_OVERHEAD,
    ManyFuture,
    PendingRecord,
    ProducerBatch,
    RecordFuture,
    as_streamlog_error,
)
from streamlog.client.producer.producer_rules import ProducerRules
from streamlog.client.producer.producer_topics import ProducerTopics
from streamlog.client.producer.topic_table import TopicTable
from streamlog.client.producer.wire_batch import ProducerIdAndEpoch
from streamlog.client.transactions.transaction_commands import TransactionCommands
from streamlog.client.transactions.transaction_manager import (
    TransactionManager,
    TransactionPhase,
    TransactionRules,
)
from streamlog.config import client_settings, load_producer
from streamlog.config import producer_settings as producing
from streamlog.errors import (
    ClientClosedError,
    InvalidRequestError,
    InvariantError,
    MessageTooLargeError,
    RequestTimedOutError,
    StreamlogError,
    ThrottledError,
)
from streamlog.records import Headers
from streamlog.records.encode import encode_headers
from streamlog.records.header import HEADER_SIZE

T = TypeVar("T")

_NO_HEADERS: Final[Headers] = ()
# After so many records send_many lets other tasks run.
_TURN_RECORDS: Final = 16_384


class AsyncProducer(TransactionCommands):
    """Settings by Kafka's names: `linger_ms=5`, or `{"linger.ms": 5}`. InvalidConfigError names everything that is
    wrong with them.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        partitioner: Partitioner | None = None,
        ports: ClientPorts | None = None,
        guard: AbstractContextManager[object] | None = None,
        future_type: type[RecordFuture] = RecordFuture,
        **settings: object,
    ) -> None:
        """`partitioner`: instead of partitioner.class. `ports`: of a simulation; None: the real ones.
        `guard`: held by callers of `send` in other threads. `future_type`: what `send` returns.
        """
        self._new_future = future_type
        self._config = client_config.loaded(load_producer, config, settings)
        self._rules = ProducerRules.of(self._config)
        self._partitioner = partitioner
        self._given_ports = ports
        self._own_ports: RealPorts | None = None
        self._guard: AbstractContextManager[object] = guard or nullcontext()
        self._threaded = guard is not None
        self._buffer = BufferMemory(self._rules.buffer_bytes, self._guard)
        self._tables: dict[str, TopicTable] = {}  # those of `_topics`, for `send`
        self._routing = False  # records that waited for their topic are sent; their bytes are reserved already
        self._now_ms = 0  # the time at this turn of the loop; 0: not read yet
        self._failed: list[ProducerBatch | PendingRecord] = []  # the first, until its error was raised
        self._open = False
        self._closing = False
        self._closed = False
        self._crash: BaseException | None = None
        if self._config[client_settings.TRACING_ENABLE]:
            self._trace()

    def _trace(self) -> None:
        """InvalidConfigError where OpenTelemetry is not installed."""
        spans = client_config.tracing("sending").SendSpans(self._config)
        self.send = spans.send(self.send)  # type: ignore[method-assign]
        self.send_many = spans.send_many(self.send_many)  # type: ignore[method-assign]

    # Lifecycle.

    @property
    def name(self) -> str:
        """For messages: its client.id, or where it connects to."""
        client_id = self._config[client_settings.CLIENT_ID]
        return f"producer {client_id!r}" if client_id else f"producer of {client_config.servers(self._config)}"

    @property
    def stopped_loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop where it has stopped and the producer is open: at the end of a program."""
        if not self._open or self._closing or self._threaded or self._loop.is_closed() or self._loop.is_running():
            return None
        return self._loop

    async def start(self) -> Self:
        """Start in the background; `async with` does it. Does not wait for a connection."""
        if self._open or self._closed:
            raise InvariantError("a producer is started once")
        ports = self._given_ports
        if ports is None:
            ports = self._own_ports = real_ports(self._config)
        self._ports = ports
        self._loop = asyncio.get_running_loop()
        backoff = client_config.backoff(self._config, ports.random)
        self._connections = Connections(
            ports.network, ports.clock, ports.random, client_config.bootstrap(self._config), backoff=backoff
        )
        max_age_s = self._config[client_settings.METADATA_MAX_AGE_MS] / 1000
        self._metadata = MetadataCache(self._connections, ports.clock, backoff, max_age_s=max_age_s)
        self._delivery = Delivery(
            self._connections, self._metadata, backoff, ports.workers, self._rules.delivery, self._guard
        )
        self._pending = PendingRecords(
            self._table, self._note_failure, self._on_background_end, self._buffer, self._guard
        )
        partitioner = self._partitioner or partitioner_of(
            self._config[producing.PARTITIONER_CLASS],
            ports.random,
            ignore_keys=self._config[producing.PARTITIONER_IGNORE_KEYS],
        )
        rules = self._rules.transactions
        self._transactions = None if rules is None else self._make_transactions(rules, backoff)
        self._topics = ProducerTopics(
            self._metadata,
            self._delivery,
            partitioner,
            ports.random,
            self._rules.delivery.queue,
            self._on_known,
            self._guard,
        )
        self._tables = self._topics.tables if self._transactions is None else {}
        self._background = asyncio.ensure_future(self._run())  # sim: its end fails all records, see below
        self._background.add_done_callback(self._on_background_end)
        self._open = True
        if self._own_ports is not None and not self._threaded:
            unclosed.flush_at_exit(self)
        return self

    async def _run(self) -> None:
        try:
            await self._work()
        except asyncio.CancelledError:
            if not self._closing and self._own_ports is not None:
                await self._finish_unclosed()
            raise

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._metadata.run())
            tasks.create_task(self._delivery.run())

    async def _finish_unclosed(self) -> None:
        """`asyncio.run` ends, which has cancelled all tasks, and `close` was not called: send what is left."""
        self._closing = True
        unclosed.warn(self.name)
        work = asyncio.ensure_future(self._work())  # sim: cancelled below
        try:
            self._pending.search_again()
            await self._flush(unclosed.FLUSH_S)
            await self._delivery.finish(unclosed.FLUSH_S)
        except Exception as error:  # noqa: BLE001  no caller is left to catch it
            unclosed.report_lost(self.name, error)
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await self._end()

    def _on_background_end(self, task: asyncio.Future[None]) -> None:
        """Ended by `close`, or by a bug, which then fails all records."""
        if task.cancelled():
            return
        self._crash = task.exception()
        self._fail_all(ClientClosedError(f"the producer stopped on an internal error: {self._crash!r}"))

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:
            await self.close(timeout_s=0)

    async def close(self, *, timeout_s: float | None = None) -> None:
        """Send what is left, for `timeout_s` at most (None: bounded by delivery.timeout.ms; 0: drop it), and close.
        Raises as `flush`. Idempotent.
        """
        if self._closing or not self._open:
            self._closing = self._closed = True
            return
        self._closing = True
        try:
            if timeout_s is None or timeout_s > 0:
                begun = self._loop.time()
                await self._flush(timeout_s)
                left_s = None if timeout_s is None else timeout_s - (self._loop.time() - begun)
                await self._delivery.finish(left_s)
        finally:
            await self._end()

    async def _end(self) -> None:
        self._closed = True
        self._topics.close()
        self._buffer.close()
        if self._crash is None:
            self._fail_all(ClientClosedError("the producer was closed before these records were acknowledged"))
        await self._pending.close()
        if self._background is not asyncio.current_task():
            self._background.cancel()
            await asyncio.gather(self._background, return_exceptions=True)
        self._delivery.stop()
        await self._connections.close()
        if self._own_ports is not None:
            await self._own_ports.close()

    def _check_open(self) -> None:
        if self._closed or not self._open:
            raise ClientClosedError("the producer is closed" if self._closed else "the producer is not started")

    def _fail_all(self, error: StreamlogError) -> None:
        self._pending.fail_all(error)
        for queue in self._delivery.active():
            self._delivery.fail_all(queue, error)
        self._buffer.wake()

    # Sending.

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: GivenHeaders = _NO_HEADERS,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordFuture:
        """Send one record; its future returns partition and offset. Never waits.

        `headers`: pairs (name, bytes or None), or a dict. `timestamp_ms`: None: now. Raises ThrottledError where the
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
        values.append(value)
        keys = batch.keys
        if keys is not None:
            keys.append(key)
        elif key is not None:
            batch.begin_keys(index, key)
        if headers or batch.headers is not None:
            batch.add_headers(index, cast(Headers, headers))
        if timestamp_ms is None:
            timestamp_ms = self._now_ms or self._read_clock()
        if timestamp_ms != batch.timestamp or batch.timestamps is not None:
            batch.add_timestamp(index, timestamp_ms)
        future = self._new_future()
        future.promise = batch
        future.index = index
        return future

    async def enqueue(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: GivenHeaders = _NO_HEADERS,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordFuture:
        """As `send`; waits while the buffer is full, max.block.ms at most (RequestTimedOutError)."""
        if headers:
            headers = checked_headers(headers)  # it may be an iterator, and sent twice
        deadline = self._loop.time() + self._rules.max_block_s if self._open else 0.0
        while True:
            try:
                return self.send(topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms)
            except ThrottledError:
                size = (
                    OVERHEAD_BYTES + len(value or b"") + len(key or b"") + len(encode_headers(cast(Headers, headers)))
                )
                await self.wait_until_room(HEADER_SIZE + size, timeout_s=max(0.0, deadline - self._loop.time()))

    async def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: GivenHeaders = _NO_HEADERS,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> ManyFuture:
        """Send many records; waits while the buffer is full, max.block.ms at most. `await` what it returns for the
        offsets. `headers`: of each record. Errors as `send`; RequestTimedOutError.
        """
        headers = checked_headers(headers) if headers else _NO_HEADERS
        if keys is not None and len(keys) != len(values):
            raise InvalidRequestError(f"{len(keys)} keys for {len(values)} values: give as many", field="keys")
        check_types(values, keys)
        if timestamp_ms is not None:
            timestamp_ms = checked_timestamp(timestamp_ms)
        if partition is not None:
            partition = checked_partition(partition)
        table = await self._table(topic)
        if partition is not None:
            table.check(partition)
        parts: list[tuple[ProducerBatch, int, int]] = []
        for start in range(0, len(values), _TURN_RECORDS):
            some_values = values[start : start + _TURN_RECORDS]
            some_keys = None if keys is None else keys[start : start + _TURN_RECORDS]
            if partition is None:
                columns = by_partition(table, self._topics.partitioner, some_values, some_keys)
            else:
                columns = [Columns(partition, some_values, some_keys)]
            for one in columns:
                await self._extend(table, one, headers, timestamp_ms, parts)
            await asyncio.sleep(0)
        return ManyFuture(parts)

    async def _extend(
        self,
        table: TopicTable,
        columns: Columns,
        headers: Headers,
        timestamp_ms: int | None,
        parts: list[tuple[ProducerBatch, int, int]],
    ) -> None:
        """Add the records to one partition, or to the sticky ones, a batch at a time."""
        partition, values, keys = columns
        sizes = Sizes(columns, len(encode_headers(headers)) if headers else 0)
        at = 0
        while at < len(values):
            size = HEADER_SIZE + sizes.between(at, at + 1)
            if not self._buffer.has_room(max(self._rules.batch_bytes, size)):
                await self.wait_until_room(size)
            self._check_open()
            with self._guard:
                batch = table.sticky if partition is None else table.open[partition]
                if batch.size + sizes.between(at, at + 1) > batch.limit:
                    batch = self._next_batch(table, partition, sizes.between(at, at + 1))
                index = len(batch.values)
                stop = sizes.fitting(at, batch.limit - batch.size)
                batch.size += sizes.between(at, stop)
                stamp = (self._now_ms or self._read_clock()) if timestamp_ms is None else timestamp_ms
                batch.add_timestamps(index, stamp, stop - at)
                batch.values += values[at:stop]
                if keys is not None or batch.keys is not None:
                    batch.add_keys(index, [None] * (stop - at) if keys is None else keys[at:stop])
                if headers or batch.headers is not None:
                    batch.add_same_headers(index, headers, stop - at)
            parts.append((batch, index, index + stop - at))
            at = stop

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
            self._reserve(limit)
            batch = self._open_batch(table, partition, limit)
        if sticky:
            table.sticky = batch
        return batch

    def _open_batch(self, table: TopicTable, partition: int, limit: int) -> ProducerBatch:
        queue = table.queues[partition]
        before = table.open[partition]
        batch = ProducerBatch(queue.partition, limit, self._loop)
        batch.reserved = limit
        batch.add_done_callback(partial(self._on_batch_done, batch))
        table.open[partition] = batch
        queue.batches.append(batch)
        self._post(self._delivery.opened, queue)
        if before.limit > 0:
            before.close()
            self._post(self._delivery.due, queue)
        return batch

    def _post(self, call: Callable[[T], None], argument: T) -> None:
        """Call it on the loop."""
        if self._threaded:
            self._loop.call_soon_threadsafe(call, argument)  # sim: for the synchronous producer only
        else:
            call(argument)

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

    @property
    def is_full(self) -> bool:
        """Whether another batch does not fit in the buffer: `await wait_until_room()`."""
        return not self._buffer.has_room(self._rules.batch_bytes)

    async def wait_until_room(self, record_bytes: int = 0, *, timeout_s: float | None = None) -> None:
        """Until a batch, or a record of so many bytes, fits in the buffer. RequestTimedOutError after `timeout_s`
        (None: max.block.ms).
        """
        timeout_s = self._rules.max_block_s if timeout_s is None else timeout_s
        await self._buffer.wait_until_room(max(self._rules.batch_bytes, record_bytes), timeout_s)

    def _reserve(self, size: int) -> None:
        """ThrottledError."""
        if self._routing:
            self._buffer.take(size)
        else:
            self._buffer.reserve(size)

    def _on_batch_done(self, batch: ProducerBatch) -> None:
        self._buffer.release(batch.reserved)
        self._note_failure(batch)

    def _note_failure(self, failed: ProducerBatch | PendingRecord) -> None:
        """`flush` raises an error that was raised nowhere else. One is enough."""
        if failed.error is not None:
            if self._transactions is not None:
                self._transactions.on_failure(as_streamlog_error(failed.error))
            self._failed = [one for one in self._failed if not one.error_taken]
            if not self._failed:
                self._failed.append(failed)

    # Topics.

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
        headers = checked_headers(headers) if headers else _NO_HEADERS
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
        if self._pending.add(topic, PendingSend(record, value, key, headers, partition, stamp, size)):
            self._post(self._pending.search, topic)
        future = self._new_future()
        future.promise = record
        future.index = 0
        return future

    def _on_known(self, topic: str) -> None:
        self._routing = True
        try:
            self._pending.send_all(topic, partial(self._send_routed, topic))
        finally:
            self._routing = False

    def _send_routed(self, topic: str, one: PendingSend) -> RecordFuture:
        # Not `self.send`: a traced one has made the record's span already.
        return AsyncProducer.send(
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
        return await self._topics.table(topic, self._rules.max_block_s)

    async def partition_count(self, topic: str) -> int:
        """UnknownTopicOrPartitionError, RequestTimedOutError."""
        return len((await self._table(topic)).queues)

    # Transactions.

    def _make_transactions(self, rules: TransactionRules, backoff: Backoff) -> TransactionManager:
        return TransactionManager(
            rules,
            self._connections,
            self._ports.clock,
            backoff,
            settle=self._settle_transaction,
            drop=self._drop_transaction,
            on_state=self._on_transaction,
        )

    def _on_transaction(self, state: TransactionPhase, identity: ProducerIdAndEpoch) -> None:
        """`send` has its tables while a transaction is open; at other times `_send_pending` raises the reason."""
        assert self._transactions is not None
        if state is TransactionPhase.OPEN:
            self._delivery.begin_transaction(identity, self._transactions.touch)
            self._tables = self._topics.tables
        else:
            self._tables = {}

    def _drop_transaction(self, error: StreamlogError) -> None:
        self._fail_all(error)
        self._failed = []

    async def _settle_transaction(self) -> None:
        await self._pending.wait_until_sent()
        await self._settle_batches()
        self._failed = []  # the end of the transaction raises the error

    # Flushing.

    async def flush(self, *, timeout_s: float | None = None) -> None:
        """Send all batches at once, and wait until all records sent before are acknowledged or have failed.

        Raises the error of a record that failed since the last flush, unless its future has raised it;
        RequestTimedOutError after `timeout_s`.
        """
        if not self._open:
            raise ClientClosedError("the producer is not started")
        await self._flush(timeout_s)

    async def _flush(self, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._pending.wait_until_sent()
                await self._settle_batches()
        except TimeoutError:
            unsettled = sum(len(batch) for queue in self._delivery.active() for batch in queue.unsettled())
            unsettled += self._pending.count
            raise RequestTimedOutError(
                f"{unsettled} records were not acknowledged within {timeout_s:g} s of the flush; they may still be "
                "written"
            ) from None
        for failed in self._failed:
            if not failed.error_taken:
                self._failed = []
                failed.take_error()

    async def _settle_batches(self) -> None:
        queues = self._delivery.active()
        with self._guard:
            waiters = [batch.waiter() for queue in queues for batch in queue.unsettled()]
            for queue in queues:
                queue.flushing += 1
        try:
            for queue in queues:
                self._delivery.due(queue)
            for waiter in waiters:
                await waiter
        finally:
            for queue in queues:
                queue.flushing -= 1
