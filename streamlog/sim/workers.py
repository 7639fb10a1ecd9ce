"""Workers without threads: each piece of work is one atomic step at a seeded moment of its latency."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from streamlog.sim.process import Process

P = ParamSpec("P")
T = TypeVar("T")

LATENCY_S: Final = (0.0, 2e-3)


class SimWorkers:
    def __init__(self, process: Process, rng: random.Random) -> None:
        self._process = process
        self._rng = rng

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._process.enter()
        await asyncio.sleep(self._rng.uniform(*LATENCY_S))
        result = work(*args, **kwargs)
        await asyncio.sleep(self._rng.uniform(*LATENCY_S))
        return result
