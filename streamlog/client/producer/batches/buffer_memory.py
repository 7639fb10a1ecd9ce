"""buffer.memory: how many bytes of records a producer may hold, and the wait for free bytes.

An open batch takes its whole size at once, as in Kafka, so that a record needs no accounting. An empty buffer takes a
batch of any size.

Counted under the producer's guard; waits are on the producer's loop only.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from typing import Final

from streamlog.aio.timeouts import timeout
from streamlog.errors import RequestTimedOutError, ThrottledError

FREE_PART: Final = 1 / 8


class BufferMemory:
    def __init__(self, limit_bytes: int, guard: AbstractContextManager[object]) -> None:
        self.used_bytes = 0
        self._limit_bytes = limit_bytes
        self._guard = guard
        self._waiters: list[asyncio.Future[None]] = []
        self._closed = False

    def has_room(self, size: int) -> bool:
        return not self.used_bytes or self.used_bytes + size <= self._limit_bytes

    def reserve(self, size: int) -> None:
        """ThrottledError."""
        if not self.has_room(size):
            raise ThrottledError(
                f"the buffer of {self._limit_bytes} bytes (buffer.memory) is full: send with `await enqueue(...)`,"
                " which waits, or await wait_until_room() before",
                field="buffer.memory",
                limit=self._limit_bytes,
            )
        self.used_bytes += size

    def take(self, size: int) -> None:
        """As `reserve`, but beyond the limit if need be."""
        self.used_bytes += size

    def release(self, size: int) -> None:
        with self._guard:
            self.used_bytes -= size
        self.wake()

    async def wait_until_room(self, size: int, timeout_s: float) -> None:
        """Until `size` bytes are free, or the producer is closed. RequestTimedOutError."""
        await self._wait(size, size, timeout_s)

    async def wait_until_mostly_free(self, size: int, timeout_s: float) -> None:
        """As `wait_until_room`, and until FREE_PART of all is free, if there is time."""
        await self._wait(max(size, int(self._limit_bytes * FREE_PART)), size, timeout_s)

    async def _wait(self, wanted: int, needed: int, timeout_s: float) -> None:
        try:
            async with timeout(timeout_s):
                while not self._closed and not self.has_room(wanted):
                    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiters.append(waiter)
                    await waiter
        except TimeoutError:
            if self.has_room(needed):
                return
            raise RequestTimedOutError(
                f"the buffer of {self._limit_bytes} bytes (buffer.memory) had no {needed} bytes free for {timeout_s:g}"
                f" s: {self.used_bytes} bytes are not acknowledged yet; send more slowly, or raise buffer.memory"
            ) from None

    def close(self) -> None:
        """End all waits."""
        self._closed = True
        self.wake()

    def wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
