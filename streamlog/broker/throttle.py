"""Bytes a second that a node sends to, or fetches for, replicas that are not in sync: reassigned, or catching up.

    leader.replication.throttled.rate      checked by the leader before it sends
    follower.replication.throttled.rate    checked by the follower before it grants credit (replication.proto)

A token bucket with debt: a caller that finds it above zero may take more than it holds, and the next ones wait until
the debt is repaid. So a batch that is larger than the bucket passes, and the rate holds over any time longer than the
burst. Replicas in sync are never throttled: what delays them delays the producers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from streamlog.ports import Clock

UNLIMITED: Final = 2**63 - 1
"""The default of both settings."""
BURST_S: Final = 0.1
"""Unused bytes are kept for so long."""


class Throttle:
    """One a node and direction, shared by all its streams."""

    def __init__(self, clock: Clock, rate: int = UNLIMITED) -> None:
        """`rate` in bytes a second, at least 1."""
        self._clock = clock
        self._rate = rate
        self.limited = rate < UNLIMITED  # looked up for each message
        self._level = self._capacity  # bytes; below 0: debt
        self._filled_s = clock.monotonic()
        self._waiting: dict[Callable[[], None], asyncio.TimerHandle] = {}

    @property
    def _capacity(self) -> float:
        return max(1.0, self._rate * BURST_S)

    def set_rate(self, rate: int) -> None:
        """The setting has changed. Debt from the old rate is repaid at the new one, by those that wait already, too."""
        self._fill()
        self._rate = rate
        self.limited = rate < UNLIMITED
        self._level = min(self._level, self._capacity)
        for wake in tuple(self._waiting):
            self.forget(wake)
            wake()

    def wait_s(self) -> float:
        """0: continue, and `charge`. Otherwise retry after so many seconds."""
        if not self.limited:
            return 0.0
        self._fill()
        return 0.0 if self._level > 0 else (1 - self._level) / self._rate

    def wake_later(self, wake: Callable[[], None]) -> None:
        """Call `wake` once, after `wait_s` or when the rate has changed. It must neither wait nor raise."""
        if wake not in self._waiting:
            self._waiting[wake] = asyncio.get_running_loop().call_later(self.wait_s(), self._wake, wake)

    def forget(self, wake: Callable[[], None]) -> None:
        """Do not call it any more. Idempotent."""
        timer = self._waiting.pop(wake, None)
        if timer is not None:
            timer.cancel()

    def charge(self, size: int) -> None:
        """So many bytes are sent or granted."""
        if self.limited:
            self._level -= size

    def _wake(self, wake: Callable[[], None]) -> None:
        del self._waiting[wake]
        wake()

    def _fill(self) -> None:
        now_s = self._clock.monotonic()
        self._level = min(self._capacity, self._level + (now_s - self._filled_s) * self._rate)
        self._filled_s = now_s
