"""When the ISRs of this node's leaders are reviewed for followers that lag (SEMANTICS 3).

At the moment at which the first follower of any of them has been behind for too long, not at some later one: what is
due next is computed from all leaders after each round of reviews.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from streamlog.broker.leading.isr_changes import REVIEWED_AT_ONCE
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.ports import Clock
from streamlog.replication.leader import GONE_MAX_MS

PAUSE_S: Final = 0.02
"""At least, between reviews of all leaders: a proposal that cannot be made is always due."""


class LagReviews:
    """Owned by the partition table."""

    def __init__(
        self, leaders: Callable[[], Iterator[LeaderReplica]], lag_max_ms: Callable[[], int], clock: Clock
    ) -> None:
        """`leaders`: the current ones; waiting during the iteration is allowed."""
        self._leaders = leaders
        self._lag_max_ms = lag_max_ms
        self._clock = clock

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await asyncio.sleep(self._due_in_s())
            for number, leader in enumerate(self._leaders(), 1):
                if leader.ended is None:
                    leader.review_isr()
                if number % REVIEWED_AT_ONCE == 0:
                    await asyncio.sleep(0)

    def _due_in_s(self) -> float:
        """Until the first follower has been behind for too long. One that falls behind later has at least the longest
        pause, so it is not missed.
        """
        longest_ms = min(GONE_MAX_MS, self._lag_max_ms())
        now_ms = int(self._clock.monotonic() * 1000)
        due = [leader.state.next_due_ms() for leader in self._leaders() if leader.ended is None]
        first_ms = min((at_ms for at_ms in due if at_ms is not None), default=now_ms + longest_ms)
        return max(PAUSE_S, min(first_ms - now_ms, longest_ms) / 1000)
