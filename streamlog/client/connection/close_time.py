"""How long the `close` of a client may take: each call of it gives a timeout, and the earliest end holds for all.

Later calls wait for the end of the first. So a signal handler or a watchdog can hurry it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from streamlog.aio.timeouts import timeout_at


class CloseTime:
    """Of one client. Used on its loop only."""

    def __init__(self) -> None:
        self._end: float | None = None
        self._scope: asyncio.Timeout | None = None  # of the block that runs

    def limit(self, timeout_s: float | None) -> None:
        """It ends after so long from now on, if not before."""
        if timeout_s is None:
            return
        end = asyncio.get_running_loop().time() + timeout_s
        if self._end is None or end < self._end:
            self._end = end
            if self._scope is not None and not self._scope.expired():
                self._scope.reschedule(end)

    @property
    def left_s(self) -> float | None:
        """None: without end."""
        return None if self._end is None else max(0.0, self._end - asyncio.get_running_loop().time())

    @asynccontextmanager
    async def limited(self) -> AsyncIterator[None]:
        """The block ends by then. TimeoutError."""
        try:
            async with timeout_at(self._end) as self._scope:
                yield
        finally:
            self._scope = None
