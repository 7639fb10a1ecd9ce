"""The producer for programs without an event loop.

    with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
        sent = producer.send("logs", b"a line")
        print(sent.result().offset)

`send` adds records to batches in the caller's thread, under a lock, and waits only while the buffer is full;
AsyncProducer does the rest on a thread of its own. Any number of threads may use one producer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Final, Self, cast

from streamlog.client.connection.sync_loop import LoopThread, blocking, wait_on
from streamlog.client.connection.unclosed import close_at_the_end
from streamlog.client.producer.async_producer import AsyncProducer
from streamlog.client.producer.given_records import GivenHeaders
from streamlog.client.producer.partitioner import Partitioner
from streamlog.client.producer.producer_batch import AppendedRange, ManyFuture, Promise, RecordFuture, RecordMetadata
from streamlog.client.settings import merged
from streamlog.errors import RequestTimedOutError, ThrottledError
from streamlog.ports.forks import check_process
from streamlog.records import Headers

_NO_HEADERS: Final[Headers] = ()


class SentRecord(RecordFuture):
    """The outcome of one record."""

    __slots__ = ()

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait for it. StreamlogError where it was not written; RequestTimedOutError after `timeout_s`."""
        loop = self.promise.loop
        if not self.promise.done and loop is not None:
            wait_on(loop, _wait(self.promise, timeout_s))
        return self.promise.outcome(self.index)

    def add_done_callback(self, callback: Callable[[Self], None]) -> None:
        """Called on the producer's thread: must not block."""
        loop = self.promise.loop
        if loop is not None:
            loop.call_soon_threadsafe(super().add_done_callback, callback)


class SentMany:
    """The outcome of `send_many`."""

    def __init__(self, many: ManyFuture, thread: LoopThread) -> None:
        self._many = many
        self._thread = thread

    def done(self) -> bool:
        return self._many.done()

    def result(self, timeout_s: float | None = None) -> list[AppendedRange]:
        """As SentRecord's."""
        return self._thread.call(_all(self._many, timeout_s))


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
        self._guard = threading.RLock()
        self._client = AsyncProducer(
            merged(config, settings), partitioner=partitioner, guard=self._guard, future_type=SentRecord
        )
        self._thread = thread or LoopThread("streamlog-producer")
        self._thread.call(self._client.start())
        self._closed = close_at_the_end(self, self._client, self._thread)

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
        headers: GivenHeaders = _NO_HEADERS,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> SentRecord:
        """Send one record; waits while the buffer is full, at most max.block.ms (RequestTimedOutError). Other errors
        as of AsyncProducer.
        """
        check_process()  # in a forked process the guard may be held forever, and no thread sends the records
        while True:
            try:
                with self._guard:
                    sent = self._client.send(
                        topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
                    )
                return cast(SentRecord, sent)  # as `future_type` says
            except ThrottledError:
                size = len(value or b"") + len(key or b"") + 1024
                self._thread.call(self._client.wait_until_room(size))

    def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: GivenHeaders = _NO_HEADERS,
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


async def _wait(promise: Promise, timeout_s: float | None) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await promise.waiter()
    except TimeoutError:
        raise RequestTimedOutError(f"the record was not acknowledged within {timeout_s:g} s; it may still be") from None


async def _all(many: ManyFuture, timeout_s: float | None) -> list[AppendedRange]:
    try:
        async with asyncio.timeout(timeout_s):
            return await many
    except TimeoutError:
        raise RequestTimedOutError(
            f"not all records were acknowledged within {timeout_s:g} s; they may still be"
        ) from None
