"""Clocks that jump."""

from __future__ import annotations

LIMIT_MS = 10_000

HOUR_MS = 3_600_000


class FakeClock:
    def __init__(self) -> None:
        self.now_s, self.ahead_ms = 100.0, 0

    def monotonic(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return 1_000_000 + round(self.now_s * 1000) + self.ahead_ms
