"""Files scheduled for deletion: renamed at once, removed after a delay (`log.segment.delete.delay.ms`).

The delay lets readers finish, and operators undo a deletion. A process that fails in between leaves `.deleted` files,
which are removed at the next start. At most `SCHEDULED_MAX` wait; more are removed early.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Final

from streamlog.aio.timeouts import timeout
from streamlog.ports import Clock

SCHEDULED_MAX: Final = 10_000


class Reaper:
    """One a log directory. `run` is a task of the directory's owner."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counter = itertools.count()
        self._scheduled: list[
            tuple[float, int, Callable[[], None]]
        ] = []  # heap: when (monotonic), a number, what to do
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._scheduled)

    def schedule(self, remove: Callable[[], None], delay_ms: int) -> None:
        """Call `remove` after the delay. It unlinks and closes, and must accept that the files may not exist."""
        if len(self._scheduled) >= SCHEDULED_MAX:
            self._remove_next()
        heapq.heappush(self._scheduled, (self._clock.monotonic() + delay_ms / 1000, next(self._counter), remove))
        self._wake.set()

    async def run(self) -> None:
        while True:
            self._wake.clear()
            wait_s = await self.remove_due()
            try:
                async with timeout(wait_s):
                    await self._wake.wait()  # a later one may be due sooner
            except TimeoutError:
                pass

    async def remove_due(self) -> float | None:
        """Remove what is due. Returns the seconds until the next is, or None where nothing waits."""
        now = self._clock.monotonic()
        while self._scheduled and self._scheduled[0][0] <= now:
            self._remove_next()
            await asyncio.sleep(0)  # a topic may have thousands of partitions: let other tasks run
        return max(0.001, self._scheduled[0][0] - now) if self._scheduled else None

    def _remove_next(self) -> None:
        _, _, remove = heapq.heappop(self._scheduled)
        remove()
