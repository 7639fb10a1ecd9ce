"""A distribution as counts between fixed bounds, as Prometheus' classic histograms."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

LATENCY_BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
COUNT_BOUNDS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class Histogram:
    """One event loop. A value that equals a bound counts below it."""

    __slots__ = ("_counts", "bounds", "sum")

    def __init__(self, bounds: Sequence[float] = LATENCY_BOUNDS_S) -> None:
        """`bounds` ascend."""
        self.bounds = tuple(bounds)
        self._counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self._counts)

    def cumulative(self) -> list[tuple[float, int]]:
        """(bound, number of values at or below it); the last bound is infinity."""
        total, rows = 0, []
        for bound, number in zip((*self.bounds, float("inf")), self._counts, strict=True):
            total += number
            rows.append((bound, total))
        return rows
