"""The producer for programs without an event loop.

    with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
        sent = producer.send("logs", b"a line")
        print(sent.result().offset)

`send` adds records to batches in the caller's thread, under a lock, and waits only while the buffer is full;
AsyncProducer does the rest on a thread of its own. Any number of threads may use one producer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Self

from streamlog.client.connection.sync_loop import LoopThread, blocking
from streamlog.client.producer.async_producer import AsyncProducer
from streamlog.client.producer.batches.accumulator import NO_HEADERS
from streamlog.client.producer.given_records import GivenHeaders
from streamlog.client.producer.partitioner import Partitioner
from streamlog.client.producer.sent_records import SentMany, SentRecord
from streamlog.client.producer.threaded_producer import ThreadedProducer
from streamlog.client.settings import merged


class Producer:
    """Settings as for AsyncProducer. Open as soon as it is made; `close` it, or use `with`."""

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        partitioner: Partitioner | None = None,
        thread: LoopThread | None = None,
        **settings: object,
    ) -> None:
        """`thread`: a shared one; None: its own."""
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.close(timeout_s=None if kind is None else 0)

    def close(self, *, timeout_s: float | None = None) -> None:
        """Send what is left, and close. As of AsyncProducer."""
        self._closed()
        if self._thread.closed:
            return
        try:
            self._thread.call(self._client.close(timeout_s=timeout_s))
        finally:
            self._thread.close()

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
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
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: GivenHeaders = NO_HEADERS,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> SentMany:
        """Send many records; waits while the buffer is full. As of AsyncProducer."""
        many = self._thread.call(
            self._client.send_many(
                topic, values, keys=keys, headers=headers, partition=partition, timestamp_ms=timestamp_ms
            )
        )
        return SentMany(many, self._thread)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction: the end of the block commits, an exception aborts. As of AsyncProducer."""
        stack = AsyncExitStack()
        self._thread.call(stack.enter_async_context(self._client.transaction()))
        try:
            yield
        except BaseException as error:
            self._thread.call(stack.__aexit__(type(error), error, error.__traceback__))
            raise
        self._thread.call(stack.aclose())

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
