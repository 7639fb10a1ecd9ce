"""Time. Two clocks, never mixed: one for waiting, one for stamping."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never steps. asyncio's timers use it. For timeouts and intervals."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may step in either direction. For timestamps and retention, never for timeouts."""
        ...
