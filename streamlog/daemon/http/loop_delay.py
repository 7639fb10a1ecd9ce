"""How late the node's event loop runs its timers: the first sign of an overloaded node, or of blocking code."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from streamlog.metrics import Family, Histogram
from streamlog.metrics.families import histogram, single

INTERVAL_S: Final = 0.25


class LoopDelay:
    """`run` must be a task of the measured loop."""

    def __init__(self) -> None:
        self._delays_s = Histogram()

    async def run(self) -> None:
        while True:
            due = time.monotonic() + INTERVAL_S
            await asyncio.sleep(INTERVAL_S)
            self._delays_s.observe(max(0.0, time.monotonic() - due))

    def families(self) -> list[Family]:
        return [
            histogram(
                "streamlog_event_loop_delay_seconds",
                "How much later than planned the node's event loop ran a timer, looked at four times a second.",
                single(self._delays_s),
            )
        ]
