"""Time what is compared in turn, and keep the best of each: noise only ever adds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

Work = Callable[[], object]


def best_cpu_seconds(works: Mapping[str, Work], *, budget_s: float) -> dict[str, float]:
    """CPU time of each piece of work, the least of as many rounds as fit into `budget_s` (three at least).

    One round runs all of them, so that what disturbs one disturbs its yardstick as well. CPU time of this process,
    not the clock's: what other processes do to the machine is not ours, as far as that can be told apart.
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
