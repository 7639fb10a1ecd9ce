"""buffer.memory: how many bytes of records a producer may hold, and the wait for room.

An open batch takes its whole size at once, as in Kafka, so that a record costs no bookkeeping. An empty buffer has room
for anything.

Counted under the producer's guard; waited for on its loop alone.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager

from streamlog.errors import RequestTimedOutError, ThrottledError


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
                f"the buffer of {self._limit_bytes} bytes (buffer.memory) is full: await wait_until_room() before"
                " sending more",
                field="buffer.memory",
                limit=self._limit_bytes,
            )
        self.used_bytes += size

    def take(self, size: int) -> None:
        """As `reserve`, of what must have room."""
        self.used_bytes += size

    def release(self, size: int) -> None:
        with self._guard:
            self.used_bytes -= size
        self.wake()

    async def wait_until_room(self, size: int, timeout_s: float) -> None:
        """Until there is room, or the producer is closed. RequestTimedOutError."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self._closed and not self.has_room(size):
                    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiters.append(waiter)
                    await waiter
        except TimeoutError:
            raise RequestTimedOutError(
                f"the buffer of {self._limit_bytes} bytes (buffer.memory) had no room for {timeout_s:g} s:"
                f" {self.used_bytes} bytes wait to be acknowledged"
            ) from None

    def close(self) -> None:
        """Nobody need wait any more."""
        self._closed = True
        self.wake()

    def wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
