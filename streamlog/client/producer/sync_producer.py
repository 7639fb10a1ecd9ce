"""The producer for programs without an event loop.

    with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
        sent = producer.send("logs", b"a line")
        print(sent.result().offset)

`send` adds records to batches in the caller's thread, under a lock, and waits only while the buffer is full;
AsyncProducer does the rest on a thread of its own. Any number of threads may use one producer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Self

from streamlog.client.connection.sync_loop import LoopThread, blocking
from streamlog.client.producer.async_producer import AsyncProducer
from streamlog.client.producer.batches.accumulator import NO_HEADERS
from streamlog.client.producer.given_records import GivenHeaders, check_timeout, check_topic
from streamlog.client.producer.partitioner import Partitioner
from streamlog.client.producer.sent_records import SentMany, SentRecord
from streamlog.client.producer.threaded_producer import ThreadedProducer
from streamlog.client.serialization.formats import GivenSerializer
from streamlog.client.serialization.record_serializers import RecordSerializers
from streamlog.client.settings import merged


class Producer:
    """Settings as for AsyncProducer. Open as soon as it is made; `close` it, or use `with`."""

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        partitioner: Partitioner | None = None,
        key_serializer: GivenSerializer | None = None,
        value_serializer: GivenSerializer | None = None,
        thread: LoopThread | None = None,
        **settings: object,
    ) -> None:
        """`thread`: a shared one; None: its own. The serializers are called in the thread that sends."""
        self._serializers = RecordSerializers.of(key_serializer, value_serializer)
        thread = thread or LoopThread("streamlog-producer")
        try:
            self._client = ThreadedProducer(merged(config, settings), partitioner, thread)
            thread.call(self._client.start())
        except BaseException:
            thread.close()
            raise
        self._thread = thread
        self._value_ways, self._keyed_ways = self._client.value_ways, self._client.keyed_ways
        self._closed = self._client.close_with(self, thread)
        if self._serializers is not None:
            self.send = _serializing(self._client, self._serializers)  # type: ignore[method-assign]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.close(timeout_s=None if kind is None else 0)

    def close(self, *, timeout_s: float | None = None) -> None:
        """Send what is left, and close. As of AsyncProducer. On its own thread, as in a callback: without a wait."""
        check_timeout(timeout_s)
        self._closed()
        if self._thread.is_current:
            self._client.close_time.limit(timeout_s)
            self._client.begin_close(self._thread, timeout_s)
            return
        self._thread.soon(self._client.close_time.limit, timeout_s)  # also another thread's, which is waited for below
        with self._thread.closing() as is_open:
            if is_open:
                self._thread.call_to_its_end(self._client.close(timeout_s=timeout_s))

    def metrics(self) -> dict[str, float]:
        """By Kafka's names, since the start: how long quotas held responses up, in ms."""
        return self._client.metrics()

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: GivenHeaders = NO_HEADERS,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> SentRecord:
        """Send one record; waits while the buffer is full, at most max.block.ms (RequestTimedOutError). Other errors
        as of AsyncProducer.
        """
        # The hot path: it is inlined as far as it pays.
        if partition is None and timestamp_ms is None and not headers:
            try:
                sent = self._value_ways[topic](value) if key is None else self._keyed_ways[topic](value, key)
            except (KeyError, TypeError):  # no way yet, or not a topic; the ways raise neither
                sent = None
            if sent is not None:
                return sent
        return self._client.send_here(topic, value, key, headers, partition, timestamp_ms)

    def send_many(
        self,
        topic: str,
        values: Sequence[Any],
        *,
        keys: Sequence[Any] | None = None,
        headers: GivenHeaders = NO_HEADERS,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> SentMany:
        """Send many records; waits while the buffer is full. As of AsyncProducer."""
        if self._serializers is not None:
            values, keys = self._serializers.encode_many(topic, keys, values)
        many = self._thread.call(
            self._client.send_many(
                topic, values, keys=keys, headers=headers, partition=partition, timestamp_ms=timestamp_ms
            )
        )
        return SentMany(many, self._thread)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction: the end of the block commits, an exception aborts. As of AsyncProducer. Ctrl-C during the
        commit aborts it, unless it may be decided already, and waits for that, `max.block.ms` at most; a second one
        does not wait.
        """
        stack = AsyncExitStack()
        try:
            self._thread.call_to_its_end(stack.enter_async_context(self._client.transaction()))
            yield
            self._thread.call_to_its_end(stack.aclose())
        except BaseException as error:
            # Where the commit was tried, the stack is empty already.
            self._thread.call_to_its_end(stack.__aexit__(type(error), error, error.__traceback__))
            raise

    init_transactions = blocking(AsyncProducer.init_transactions)
    begin_transaction = blocking(AsyncProducer.begin_transaction)
    commit_transaction = blocking(AsyncProducer.commit_transaction)
    abort_transaction = blocking(AsyncProducer.abort_transaction)
    prepare_transaction = blocking(AsyncProducer.prepare_transaction)
    hand_over_transaction = blocking(AsyncProducer.hand_over_transaction)
    resume_transaction = blocking(AsyncProducer.resume_transaction)
    send_offsets = blocking(AsyncProducer.send_offsets)
    flush = blocking(AsyncProducer.flush)
    partition_count = blocking(AsyncProducer.partition_count)


def _serializing(client: ThreadedProducer, serializers: RecordSerializers) -> Callable[..., SentRecord]:
    """`send` of a producer with serializers. Not of the front, which is collected when the program drops it."""

    def send(
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: GivenHeaders = NO_HEADERS,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> SentRecord:
        check_topic(topic)
        key, value = serializers.encode(topic, key, value)
        return client.send_here(topic, value, key, headers, partition, timestamp_ms)

    return send
