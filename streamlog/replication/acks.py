"""Producers that wait for the high watermark to pass their records (acks=all, SEMANTICS 5).

waiting --high watermark at or above the end--> acknowledged, or NOT_ENOUGH_REPLICAS_AFTER_APPEND where the ISR has
                                                shrunk below the minimum meanwhile
        --leadership lost--------------------> OUTCOME_UNKNOWN: the next leader may or may not have them
"""

from __future__ import annotations

import asyncio
import heapq

from streamlog.errors import NotEnoughReplicasAfterAppendError, StreamlogError
from streamlog.model import Offset


class AckWaiters:
    """Owned by the partition's leader. In order of their end offsets; a cancelled waiter is skipped."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Offset, int, asyncio.Future[None]]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, end_offset: Offset) -> asyncio.Future[None]:
        """Done when the high watermark reaches `end_offset`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._waiting, (end_offset, self._count, future))
        return future

    def passed(self, high_watermark: Offset, *, enough_replicas: bool) -> None:
        while self._waiting and self._waiting[0][0] <= high_watermark:
            end, _, future = heapq.heappop(self._waiting)
            if future.done():
                continue
            if enough_replicas:
                future.set_result(None)
            else:
                future.set_exception(
                    NotEnoughReplicasAfterAppendError(
                        f"the records up to {end} are in the log, but fewer replicas than min.insync.replicas hold them"
                    )
                )

    def fail_all(self, error: StreamlogError) -> None:
        waiting, self._waiting = self._waiting, []
        for _, _, future in waiting:
            if not future.done():
                future.set_exception(error)
