"""Futures that wait for an offset: producers for the high watermark, replicas for the synced end."""

from __future__ import annotations

import asyncio
import heapq
from typing import Final

from streamlog.model import Offset

SWEPT_FROM: Final = 256
"""Fewer are not looked through for cancelled ones."""
Waiter = tuple[Offset, "asyncio.Future[None]"]


class OffsetWaiters:
    """In order of offset, then of arrival. A cancelled waiter is skipped in its turn, or removed before, when there are
    twice as many waiters as there were left the last time: the offset may stand still for as long as producers retry.
    """

    __slots__ = ("_added", "_heap", "_swept_at")

    def __init__(self) -> None:
        self._heap: list[tuple[Offset, int, asyncio.Future[None]]] = []
        self._added = 0
        self._swept_at = SWEPT_FROM

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, offset: Offset) -> asyncio.Future[None]:
        """The owner sets its result or exception, when `reached`, `above` or `fail_all` removes it."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._added += 1
        if len(self._heap) >= self._swept_at:
            self._heap = [waiter for waiter in self._heap if not waiter[2].done()]
            heapq.heapify(self._heap)
            self._swept_at = max(SWEPT_FROM, 2 * len(self._heap))
        heapq.heappush(self._heap, (offset, self._added, future))
        return future

    def reached(self, offset: Offset) -> list[Waiter]:
        """Removes those at or below `offset`; the ones that still wait, in order."""
        heap, found = self._heap, []
        while heap and heap[0][0] <= offset:
            end, _, future = heapq.heappop(heap)
            if not future.done():
                found.append((end, future))
        return found

    def above(self, offset: Offset) -> list[Waiter]:
        """Removes those above `offset`; the ones that still wait."""
        found = [(end, future) for end, _, future in self._heap if end > offset and not future.done()]
        self._heap = [waiter for waiter in self._heap if waiter[0] <= offset]
        heapq.heapify(self._heap)
        return found

    def fail_all(self, error: Exception) -> None:
        waiting, self._heap = self._heap, []
        for _, _, future in waiting:
            if not future.done():
                future.set_exception(error)
