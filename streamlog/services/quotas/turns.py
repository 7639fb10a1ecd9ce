"""The uses of one bucket that wait for their turn.

Thousands may wait, for up to twenty seconds, so none of them looks whether it is its turn: one timer is set for the
first of them, and again when the bucket says that turns may come sooner (a higher rate, a use that did not happen).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from heapq import heapify, heappop, heappush
from typing import Final

from streamlog.aio.timeouts import timeout
from streamlog.ports import Clock
from streamlog.services.quotas.rate_bucket import RateBucket

WAIT_MIN_S: Final = 0.001
"""Far above the rounding of floating point: a shorter wait may not advance the clock."""
_LEFT_MAX: Final = 64
"""Uses that no longer wait, or as many as do, are kept in the queue."""


class TurnQueue:
    def __init__(self, bucket: RateBucket, clock: Clock) -> None:
        self._bucket = bucket
        self._clock = clock
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []  # a heap, by place and order
        self._joined = 0
        self._left = 0  # of `_waiting`: they were cancelled, or wait no longer
        self._timer: asyncio.TimerHandle | None = None
        bucket.on_sooner = self.look

    async def wait(self, place: float, wait_max_s: float | None) -> None:
        """Until it is the turn of `place`, `wake` is called, or for so long."""
        turn = asyncio.get_running_loop().create_future()
        self._joined += 1
        heappush(self._waiting, (place, self._joined, turn))
        if self._waiting[0][2] is turn:
            self.look()
        try:
            with suppress(TimeoutError):
                async with timeout(wait_max_s):
                    await turn
        finally:
            if turn.cancelled() or not turn.done():
                turn.cancel()
                self._leave()

    def look(self) -> None:
        """Let those go on whose turn it is."""
        waiting, left_s = self._waiting, 0.0
        while waiting:
            left_s = 0.0 if waiting[0][2].done() else self._bucket.left_s(waiting[0][0], self._clock.monotonic())
            if left_s > 0:
                break
            self._end(heappop(waiting)[2])
        self._set_timer(left_s)

    def wake(self) -> None:
        """All of them, to look for themselves."""
        for _, _, turn in self._waiting:
            self._end(turn)
        self._waiting.clear()
        self._set_timer(0.0)

    def _end(self, turn: asyncio.Future[None]) -> None:
        if turn.done():
            self._left -= 1
        else:
            turn.set_result(None)

    def _leave(self) -> None:
        self._left += 1
        if self._left > max(_LEFT_MAX, len(self._waiting) // 2) or self._left == len(self._waiting):
            self._waiting = [one for one in self._waiting if not one[2].done()]
            heapify(self._waiting)
            self._left = 0
            self.look()

    def _set_timer(self, left_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(max(left_s, WAIT_MIN_S), self.look)
