"""The acknowledgements as they come: what `tests.cluster.clients.workload` reports to a watch, the measure of I19."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection
from itertools import pairwise

from streamlog.model import Offset, TopicPartition
from tests.cluster.checking.watch import Watch


class Flow(Watch):
    """A watch that sees no node from inside. `measured`: partitions that must live."""

    def __init__(self, now: Callable[[], float], measured: Collection[TopicPartition]) -> None:
        super().__init__()
        self._now = now
        self._acks: dict[TopicPartition, list[float]] = {partition: [] for partition in measured}
        self.given_count = 0

    def acknowledged(self, client: str, partition: TopicPartition, offset: Offset, min_insync: int) -> None:
        times = self._acks.get(partition)
        if times is not None:
            times.append(self._now())

    def given(self, client: str, partition: TopicPartition, offset: Offset) -> None:
        self.given_count += 1

    def longest_pause(self, begin: float, end: float) -> float:
        """The longest time in [begin, end] in which some partition was acknowledged nothing."""
        longest = 0.0
        for times in self._acks.values():
            inside = times[bisect_left(times, begin) : bisect_right(times, end)]
            edges = [begin, *inside, end]
            longest = max(longest, *(later - earlier for earlier, later in pairwise(edges)))
        return longest

    async def wait_for_acks(self, since: float, timeout_s: float) -> float | None:
        """Until each partition was acknowledged something after `since`: how long after; None: not within the time."""
        while True:
            firsts = [self._first_after(times, since) for times in self._acks.values()]
            found = [first for first in firsts if first is not None]
            if len(found) == len(firsts):
                return max(found) - since
            if self._now() > since + timeout_s:
                return None
            await asyncio.sleep(0.05)

    @staticmethod
    def _first_after(times: list[float], since: float) -> float | None:
        at = bisect_right(times, since)
        return times[at] if at < len(times) else None
