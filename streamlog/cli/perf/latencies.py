"""Latencies of any number of records in bounded memory, with percentiles. Pure.

Each is counted under its value rounded to three significant digits, so there are at most 900 counters for each power of
ten, and a percentile is off by half a per cent at most.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)
_DIGITS: Final = 3
_SMALLEST_MS: Final = 0.001


class Latencies:
    def __init__(self) -> None:
        self._counts: Counter[float] = Counter()
        self.count = 0
        self.max_ms = 0.0
        self._sum_ms = 0.0

    def add(self, milliseconds: float, count: int = 1) -> None:
        self._counts[_rounded(milliseconds)] += count
        self.count += count
        self._sum_ms += milliseconds * count
        self.max_ms = max(self.max_ms, milliseconds)

    @property
    def average_ms(self) -> float:
        return self._sum_ms / self.count if self.count else 0.0

    def percentile_ms(self, percent: float) -> float:
        """The smallest latency that this share of the records did not exceed; 0 without records."""
        wanted, seen = math.ceil(self.count * percent / 100), 0
        for value in sorted(self._counts):
            seen += self._counts[value]
            if seen >= wanted:
                return min(value, self.max_ms)
        return 0.0


def _rounded(milliseconds: float) -> float:
    if milliseconds < _SMALLEST_MS:
        return 0.0
    return round(milliseconds, _DIGITS - 1 - math.floor(math.log10(milliseconds)))
