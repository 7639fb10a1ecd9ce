"""What the synchronous producer's `send` and `send_many` return: with the methods of a concurrent.futures.Future.

A callback is called on the producer's thread, and must not block it; on the calling thread where all is done. What it
raises is logged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from streamlog.aio.timeouts import timeout
from streamlog.client.connection.sync_loop import LoopThread, wait_on
from streamlog.client.producer.batches.producer_batch import (
    AppendedRange,
    ManyFuture,
    Promise,
    RecordFuture,
    RecordMetadata,
    call_back,
)
from streamlog.errors import ClientClosedError, RequestTimedOutError


class SentRecord(RecordFuture):
    """The outcome of one record."""

    __slots__ = ()

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait for it. StreamlogError where it was not written; RequestTimedOutError after `timeout_s`."""
        self._wait(timeout_s)
        return self.promise.outcome(self.index)

    def exception(self, timeout_s: float | None = None) -> Exception | None:
        """Wait for it. Why the record was not written; None: it was. RequestTimedOutError after `timeout_s`."""
        self._wait(timeout_s)
        return self._failure()

    def _wait(self, timeout_s: float | None) -> None:
        loop = self.promise.loop
        if not self.promise.done and loop is not None:
            try:
                wait_on(loop, _wait(self.promise, timeout_s))
            except ClientClosedError:
                if not self.promise.done:  # otherwise the producer was closed meanwhile, and the record has its outcome
                    raise

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call `callback(self)` once it is done."""
        loop = self.promise.loop
        if self.promise.done or loop is None:
            super().add_done_callback(callback)
            return
        try:
            loop.call_soon_threadsafe(super().add_done_callback, callback)  # sim: for the synchronous producer only
        except RuntimeError:  # the producer has been closed meanwhile, and each record has its outcome
            call_back(callback, self)


class SentMany:
    """The outcome of `send_many`."""

    def __init__(self, many: ManyFuture, thread: LoopThread) -> None:
        self._many = many
        self._thread = thread

    def done(self) -> bool:
        return self._many.done()

    def result(self, timeout_s: float | None = None) -> list[AppendedRange]:
        """As SentRecord's."""
        self._wait(timeout_s)
        return self._many.result()

    def exception(self, timeout_s: float | None = None) -> Exception | None:
        """As SentRecord's, of the first part that was not written."""
        self._wait(timeout_s)
        return self._many.exception()

    def _wait(self, timeout_s: float | None) -> None:
        if not self._many.done():
            try:
                self._thread.call(_wait_for_all(self._many, timeout_s))
            except ClientClosedError:
                if not self._many.done():
                    raise

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call `callback(self)` once all are done."""
        if self._many.done():
            call_back(callback, self)
            return
        try:
            self._thread.begin(self._follow(callback))
        except ClientClosedError:  # meanwhile, and each record has its outcome
            call_back(callback, self)

    async def _follow(self, callback: Callable[[Self], object]) -> None:
        """On the producer's loop."""
        self._many.add_done_callback(lambda _error: call_back(callback, self))


async def _wait(promise: Promise, timeout_s: float | None) -> None:
    try:
        async with timeout(timeout_s):
            await promise.waiter()
    except TimeoutError:
        raise RequestTimedOutError(f"the record was not acknowledged within {timeout_s:g} s; it may still be") from None


async def _wait_for_all(many: ManyFuture, timeout_s: float | None) -> None:
    try:
        async with timeout(timeout_s):
            await many.wait()
    except TimeoutError:
        raise RequestTimedOutError(
            f"not all records were acknowledged within {timeout_s:g} s; they may still be"
        ) from None
