"""How long to wait before a retry: twice as long each time, up to a bound (KIP-580)."""

from __future__ import annotations

import asyncio
from typing import Final

from streamlog.ports import Random

# Clients that failed together do not retry together. Kafka's value.
JITTER: Final = 0.2
# 2^30 times the first wait is beyond any bound.
DOUBLINGS_MAX: Final = 30


class Backoff:
    def __init__(self, random: Random, *, first_s: float = 0.1, longest_s: float = 1.0) -> None:
        self._random = random
        self._first_s = first_s
        self._longest_s = max(first_s, longest_s)

    def delay_s(self, attempt: int) -> float:
        """After the `attempt`-th failure in a row, from 1."""
        doubled = self._first_s * float(1 << min(max(attempt, 1) - 1, DOUBLINGS_MAX))
        return min(doubled, self._longest_s) * self._random.uniform(1 - JITTER, 1 + JITTER)

    async def wait(self, attempt: int, *, left_s: float = float("inf")) -> None:
        """Not longer than `left_s`."""
        await asyncio.sleep(max(0.0, min(self.delay_s(attempt), left_s)))
