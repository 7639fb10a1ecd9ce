"""The producer: records in, batches out, one promise a batch.

    async with AsyncProducer(bootstrap_servers="127.0.0.1:9092", linger_ms=5) as producer:
        sent = await producer.enqueue("logs", b"a line", key=b"host-1")   # waits while the buffer is full
        print((await sent).offset)

    send --> TopicTable: partition, open batch --> PartitionQueue --Delivery--> ProduceLink --> the leader

`send` (`accumulator`) appends to a list and returns; records are sent when their batch is full, when it has lingered,
or at `flush`. It never waits: it raises ThrottledError when buffer.memory is full. `enqueue` and `send_many`
(`waiting_sends`) wait for free bytes instead. A record of a topic that is not known yet waits for its metadata, at most
max.block.ms. This module starts, flushes and closes.

Idempotent by default: retries neither duplicate nor reorder records (`partition_queue`). An error that reaches the user
is final for its records; after RequestTimedOutError they may have been written.

States: not started -> open (`start`, or `async with`) -> closed. Owned by one event loop; nothing is durable before it
is acknowledged. `guard` is for the synchronous producer, whose `send` runs in the callers' threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from types import TracebackType
from typing import Self

from streamlog.client import settings as client_config
from streamlog.client.connection import unclosed
from streamlog.client.connection.backoff import Backoff
from streamlog.client.connection.client_ports import ClientPorts, RealPorts, real_ports
from streamlog.client.connection.close_time import CloseTime
from streamlog.client.connection.connections import Connections
from streamlog.client.connection.metadata import MetadataCache
from streamlog.client.producer.batches.pending_records import PendingRecords
from streamlog.client.producer.batches.producer_batch import RecordFuture
from streamlog.client.producer.batches.wire_batch import ProducerIdAndEpoch
from streamlog.client.producer.delivery import Delivery
from streamlog.client.producer.flushing import Flushing
from streamlog.client.producer.given_records import check_timeout
from streamlog.client.producer.partitioner import Partitioner, check_partitioner, partitioner_of
from streamlog.client.producer.producer_rules import ProducerRules
from streamlog.client.producer.producer_topics import ProducerTopics
from streamlog.client.producer.waiting_sends import WaitingSends
from streamlog.client.serialization.formats import GivenSerializer
from streamlog.client.serialization.record_serializers import RecordSerializers
from streamlog.client.transactions.transaction_commands import TransactionCommands
from streamlog.client.transactions.transaction_manager import (
    TransactionManager,
    TransactionPhase,
    TransactionRules,
)
from streamlog.config import load_producer
from streamlog.config.settings import client_settings
from streamlog.config.settings import producer_settings as producing
from streamlog.errors import ClientClosedError, InvariantError, StreamlogError
from streamlog.ports.malloc import free_one_large_block


class AsyncProducer(WaitingSends, TransactionCommands):
    """Settings by Kafka's names: `linger_ms=5`, or `{"linger.ms": 5}`. InvalidConfigError names everything that is
    wrong with them.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        partitioner: Partitioner | None = None,
        key_serializer: GivenSerializer | None = None,
        value_serializer: GivenSerializer | None = None,
        ports: ClientPorts | None = None,
        guard: AbstractContextManager[object] | None = None,
        future_type: type[RecordFuture] = RecordFuture,
        **settings: object,
    ) -> None:
        """`partitioner`: instead of partitioner.class. `key_serializer`, `value_serializer`: a function, an object with
        `serialize`, or a format (`client.serialization.formats`). `ports`: of a simulation; None: the real ones.
        `guard`: held by callers of `send` in other threads. `future_type`: what `send` returns.
        """
        self._config = client_config.loaded(load_producer, config, settings)
        super().__init__(
            ProducerRules.of(self._config), guard or nullcontext(), future_type, threaded=guard is not None
        )
        check_partitioner(partitioner)
        self._partitioner = partitioner
        self._given_ports = ports
        self._own_ports: RealPorts | None = None
        self._open = False
        self._closing = False
        self._closed = False
        self.close_time = CloseTime()
        self._ended = asyncio.Event()  # nothing of it runs any more
        self._crash: BaseException | None = None
        self._traced = self._config[client_settings.TRACING_ENABLE]
        if self._traced:
            self._trace()
        serializers = RecordSerializers.of(key_serializer, value_serializer)
        if serializers is not None:
            self._serialize(serializers)
        self._unclosed = unclosed.Unclosed(
            client_config.name_of("producer", self._config), self._stopped_loop, self.close
        )

    def _trace(self) -> None:
        """InvalidConfigError where OpenTelemetry is not installed."""
        spans = client_config.tracing("sending").SendSpans(self._config)
        self.send = spans.send(self.send)  # type: ignore[method-assign]
        self.send_many = spans.send_many(self.send_many)  # type: ignore[method-assign]

    # Lifecycle.

    def _stopped_loop(self) -> asyncio.AbstractEventLoop | None:
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
            free_one_large_block()
        self._ports = ports
        self._loop = asyncio.get_running_loop()
        backoff = client_config.backoff(self._config, ports.random)
        network = client_config.calling_network(self._config, ports.network)
        self._connections = Connections(
            network, ports.clock, ports.random, client_config.bootstrap(self._config), backoff=backoff
        )
        max_age_s = self._config[client_settings.METADATA_MAX_AGE_MS] / 1000
        self._metadata = MetadataCache(self._connections, ports.clock, backoff, max_age_s=max_age_s)
        self._delivery = Delivery(
            self._connections, self._metadata, backoff, ports.workers, self._rules.delivery, self._guard
        )
        partitioner = self._partitioner or partitioner_of(
            self._config[producing.PARTITIONER_CLASS],
            ports.random,
            ignore_keys=self._config[producing.PARTITIONER_IGNORE_KEYS],
        )
        rules = self._rules.transactions
        self._transactions = None if rules is None else self._make_transactions(rules, backoff)
        self._pending = PendingRecords(
            self._find_table,
            lambda failed: self._flushing.note_failure(failed),
            self._on_background_end,
            self._buffer,
            self._guard,
        )
        self._flushing = Flushing(self._delivery, self._pending, self._transactions, self._guard)
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
        with client_config.background(self._config):
            self._background = asyncio.ensure_future(self._run())  # sim: its end fails all records, see below
        self._background.add_done_callback(self._on_background_end)
        self._open = True
        if self._own_ports is not None and not self._threaded:
            unclosed.flush_at_exit(self._unclosed)
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
        try:
            unclosed.warn(self._unclosed)
        except Exception:
            await self._send_rest()
            raise
        except BaseException:
            await self._end()
            raise
        await self._send_rest()

    async def _send_rest(self) -> None:
        work = asyncio.ensure_future(self._work())  # sim: cancelled below
        try:
            self._pending.search_again()
            self.close_time.limit(unclosed.FLUSH_S)
            await self._flush_last()
        except Exception as error:  # noqa: BLE001  no caller is left to catch it
            unclosed.report_lost(self._unclosed, error)
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
        Raises as `flush`. Idempotent: a later call waits for the end of the first, which it allows `timeout_s` from now
        on at most; what is not acknowledged then, the first call raises.
        """
        check_timeout(timeout_s)
        if not self._open:
            self._closing = self._closed = True
            return
        self.close_time.limit(timeout_s)
        if self._closing:
            await self._ended.wait()
            return
        self._closing = True
        try:
            self._empty_inbox()
            if timeout_s is None or timeout_s > 0:
                await self._flush_last()
        finally:
            await self._end()

    async def _flush_last(self) -> None:
        begun = self._loop.time()
        try:
            async with self.close_time.limited():
                await self._flushing.settle()
        except TimeoutError:
            if unsettled := self._flushing.unsettled:  # else they have failed at the same moment
                raise self._flushing.late(unsettled, round(self._loop.time() - begun, 2)) from None
        self._flushing.raise_failure()
        with suppress(TimeoutError):  # acks=0 promises nothing
            async with self.close_time.limited():
                await self._delivery.finish(self.close_time.left_s)

    async def _end(self) -> None:
        try:
            await self._stop()
        finally:
            self._ended.set()

    async def _stop(self) -> None:
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

    async def flush(self, *, timeout_s: float | None = None) -> None:
        """Send all batches at once, and wait until all records sent before are acknowledged or have failed.

        Raises the error of a record that failed since the last flush, unless its future has raised it;
        RequestTimedOutError after `timeout_s`.
        """
        if not self._open:
            raise ClientClosedError("the producer is not started")
        check_timeout(timeout_s)
        self._empty_inbox()
        await self._flushing.flush(timeout_s)

    def metrics(self) -> dict[str, float]:
        """By Kafka's names, since the start: how long quotas held responses up, in ms."""
        return self._connections.throttle_time.metrics("produce")

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
        self._empty_inbox()  # after the guard: also what another thread is just sending, which belongs to this one
        self._fail_all(error)
        self._flushing.forget_failures()

    async def _settle_transaction(self) -> None:
        self._empty_inbox()
        await asyncio.sleep(0)  # what another thread has just sent to an unknown topic: its search begins
        await self._flushing.settle()
        self._flushing.forget_failures()
