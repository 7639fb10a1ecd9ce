"""The producer for programs without an event loop.

    with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
        sent = producer.send("logs", b"a line")
        print(sent.result().offset)

`send` gathers records in the caller's own thread, under a lock, and waits only while the buffer is full; the rest is
done by AsyncProducer on a thread of its own. Any number of threads may use one producer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self

from streamlog.client.partitioner import Partitioner
from streamlog.client.producer import AsyncProducer
from streamlog.client.producer_batch import AppendedRange, ManyFuture, Promise, RecordFuture, RecordMetadata
from streamlog.client.settings import merged
from streamlog.client.sync_loop import LoopThread, blocking
from streamlog.errors import RequestTimedOutError, ThrottledError
from streamlog.records import Headers

_NO_HEADERS: Final[Headers] = ()
_new_sent: Final = tuple.__new__


class SentRecord(tuple[Promise, int, LoopThread]):
    """The outcome of one record. A tuple, as RecordFuture."""

    __slots__ = ()

    def done(self) -> bool:
        return self[0].done

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Waits for it. StreamlogError where it was not written; RequestTimedOutError after `timeout_s`."""
        promise, index, thread = self
        if not promise.done:
            thread.call(_wait(promise, timeout_s))
        return promise.outcome(index)

    def add_done_callback(self, callback: Callable[[RecordFuture], None]) -> None:
        """Called on the producer's own thread, with a future that is done: let it be quick."""
        promise, index, thread = self
        thread.run(RecordFuture((promise, index)).add_done_callback, callback)


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
    """Settings as of AsyncProducer. Open from the moment that it is made; `close` it, or use `with`."""

    def __init__(
        self, config: Mapping[str, object] | None = None, *, partitioner: Partitioner | None = None, **settings: object
    ) -> None:
        self._guard = threading.RLock()
        self._client = AsyncProducer(merged(config, settings), partitioner=partitioner, guard=self._guard)
        self._thread = LoopThread("streamlog-producer")
        self._thread.call(self._client.start())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.close(timeout_s=None if kind is None else 0)

    def close(self, *, timeout_s: float | None = None) -> None:
        """Send what is left, and end. As of AsyncProducer."""
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
        headers: Headers = _NO_HEADERS,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> SentRecord:
        """Take one record; waits while the buffer is full, at most max.block.ms (RequestTimedOutError). Other errors
        as of AsyncProducer.
        """
        while True:
            try:
                with self._guard:
                    promise, index = self._client.send(
                        topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
                    )
                return _new_sent(SentRecord, (promise, index, self._thread))
            except ThrottledError:
                size = len(value or b"") + len(key or b"") + 1024
                self._thread.call(self._client.wait_until_room(size))

    def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> SentMany:
        """Take many records; waits while the buffer is full. Errors as of AsyncProducer."""
        many = self._thread.call(
            self._client.send_many(topic, values, keys=keys, partition=partition, timestamp_ms=timestamp_ms)
        )
        return SentMany(many, self._thread)

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
