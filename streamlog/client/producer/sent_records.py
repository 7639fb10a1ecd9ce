"""What the synchronous producer's `send` and `send_many` return."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from streamlog.client.connection.sync_loop import LoopThread, wait_on
from streamlog.client.producer.batches.producer_batch import (
    AppendedRange,
    ManyFuture,
    Promise,
    RecordFuture,
    RecordMetadata,
)
from streamlog.errors import RequestTimedOutError


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
            loop.call_soon_threadsafe(super().add_done_callback, callback)  # sim: for the synchronous producer only


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
