"""The clock of a simulated machine: virtual time, and a wall clock that a nemesis may move."""

from __future__ import annotations

from typing import Final

from streamlog.sim.loop import SimLoop

WALL_START_MS: Final = 1_700_000_000_000
"""What the wall shows when a simulation begins (November 2023)."""


class SimClock:
    """One a machine: it outlives processes, and so do the jumps of its wall clock."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.jump_ms = 0  # added to the wall clock; set it to move the clock either way

    def monotonic(self) -> float:
        return self._loop.now

    def wall_ms(self) -> int:
        return WALL_START_MS + int(self._loop.now * 1000) + self.jump_ms
