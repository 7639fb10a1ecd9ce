"""Measures the compared variants alternately, and keeps the minimum of each, since noise only adds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

Work = Callable[[], object]


def best_cpu_seconds(works: Mapping[str, Work], *, budget_s: float) -> dict[str, float]:
    """The CPU time of each one: the minimum of as many rounds as fit into `budget_s` (at least three).

    A round runs all of them, so that a disturbance affects the baseline as well. CPU time of this process instead of
    wall time excludes other processes as far as possible.
    """
    best = dict.fromkeys(works, float("inf"))
    end = time.perf_counter() + budget_s
    rounds = 0
    while rounds < 3 or time.perf_counter() < end:
        for name, work in works.items():
            start = time.process_time()
            work()
            best[name] = min(best[name], time.process_time() - start)
        rounds += 1
    return best
