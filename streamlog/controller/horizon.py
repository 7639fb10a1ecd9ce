"""The metadata index of some time ago: a node that keeps up has applied it by now.

The index is sampled when it is requested, at most every STEP_S; samples older than any request are dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from streamlog.model import RaftIndex

STEP_S: Final = 0.5
SAMPLES_MAX: Final = 1024
"""Enough for a session of eight minutes; of a longer one the oldest are dropped."""


class Horizon:
    """One per leadership; has no samples from before it."""

    def __init__(self, index: Callable[[], RaftIndex]) -> None:
        self._index = index
        self._samples: deque[tuple[float, RaftIndex]] = deque(maxlen=SAMPLES_MAX)  # (time, index), both rising

    def before(self, now: float, age_s: float) -> RaftIndex:
        """The index of the latest sample at least `age_s` old; 0 if there is none."""
        samples = self._samples
        if not samples or now >= samples[-1][0] + STEP_S:
            samples.append((now, self._index()))
        while len(samples) > 1 and samples[1][0] <= now - age_s:
            samples.popleft()
        when, index = samples[0]
        return index if when <= now - age_s else RaftIndex(0)
