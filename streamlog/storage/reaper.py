"""Files that are doomed: renamed at once, removed after a delay (`log.segment.delete.delay.ms`).

The delay leaves readers in flight, and an operator who changes his mind, some time. A process that dies in between
leaves `.deleted` files, which are removed at the next start. At most `DOOMED_MAX` wait; more are removed early.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from streamlog.ports import Clock

DOOMED_MAX: Final = 10_000


class Reaper:
    """One a log directory. `run` is a task of the directory's owner."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._doomed: deque[tuple[float, Callable[[], None]]] = deque()  # when (monotonic), what to do
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._doomed)

    def doom(self, remove: Callable[[], None], delay_ms: int) -> None:
        """Call `remove` after the delay. It unlinks and closes, and must bear that the files are gone already."""
        if len(self._doomed) >= DOOMED_MAX:
            self._doomed.popleft()[1]()
        self._doomed.append((self._clock.monotonic() + delay_ms / 1000, remove))
        self._wake.set()

    async def run(self) -> None:
        while True:
            self._wake.clear()
            wait_s = self.remove_due()
            if wait_s is None:
                await self._wake.wait()
            else:
                await asyncio.sleep(wait_s)

    def remove_due(self) -> float | None:
        """Remove what is due; seconds until the next is, or None where nothing waits."""
        now = self._clock.monotonic()
        waiting: deque[tuple[float, Callable[[], None]]] = deque()
        while self._doomed:
            due, remove = self._doomed.popleft()
            if due <= now:
                remove()
            else:
                waiting.append((due, remove))
        self._doomed = waiting
        return max(0.001, min(due for due, _ in waiting) - now) if waiting else None
