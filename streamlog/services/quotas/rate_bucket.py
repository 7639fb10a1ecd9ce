"""One limit in use: a token bucket, in which every use has a place in a queue.

    charge(n) -> place          uses are served in the order of their charges, at `rate` a second
    left_s(place)               how long until it is this use's turn

What was not used is kept for `burst_s`, so a holder below its limit never waits. Kafka measures the rate over
quota.window.num samples instead, which lets ten seconds' worth through at once and then nothing; for controller
mutations it has token buckets (KIP-599), for that reason.

A single use counts at most `charge_max_s` of the rate: then a record that is large for its limit is not held up for
longer, as Kafka's samples forget it by then.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from typing import Final

GAPS_MAX: Final = 100
"""Further uses that did not happen keep their places: those with the same limit wait longer."""
TYPICAL_BEGIN: Final = 0.1
TYPICAL_MIN: Final = 0.001
"""Above 0, so that each use has a place."""
TYPICAL_WEIGHT: Final = 0.1
"""Of one use in the typical amount."""


class RateBucket:
    __slots__ = (
        "_burst_s",
        "_charge_max_s",
        "_charged",
        "_gaps",
        "_in_use_since",
        "_now",
        "_rate",
        "_served",
        "_taken",
        "limit",
        "on_sooner",
        "throttled_count",
        "throttled_s",
        "typical",
        "used",
        "waiting",
    )

    def __init__(self, limit: float, rate: float, now: float, *, burst_s: float, charge_max_s: float) -> None:
        """`rate`: this node's share of `limit`, in units a second. `now`: of a monotonic clock."""
        self.limit = limit
        self._rate = rate
        self.on_sooner: Callable[[], None] | None = None  # called when turns come sooner than `left_s` said
        self.waiting = 0  # uses
        self.throttled_count = 0  # uses that were delayed or refused, and by how much in all
        self.throttled_s = 0.0
        self.typical = TYPICAL_BEGIN  # amount of a use, for those whose amount is known only at their end
        self.used = 0.0  # by these
        self._burst_s = burst_s
        self._charge_max_s = charge_max_s
        self._charged = 0.0  # in all
        self._served = rate * burst_s
        self._gaps: list[tuple[float, float]] = []  # begin and size of uses that did not happen, while others wait
        self._now = now
        self._in_use_since: float | None = None
        self._taken = (0.0, 0, now)  # charged, throttled and when, as of the last `take_use`

    @property
    def rate(self) -> float:
        return self._rate

    def change_rate(self, rate: float, now: float) -> None:
        """From now on."""
        self._advance(now)
        is_sooner, self._rate = rate > self._rate, rate
        if is_sooner:
            self._sooner()

    @property
    def is_full(self) -> bool:
        """As of the last call."""
        return self._served >= self._charged

    @property
    def end(self) -> float:
        """The place behind all uses so far."""
        return self._charged

    def place_of(self, amount: float) -> float:
        """That a use of `amount` would have."""
        return self._charged + min(amount, self._rate * self._charge_max_s)

    def charge(self, amount: float, now: float) -> float:
        """A use of `amount` units. Returns its place."""
        self._advance(now)
        if self._in_use_since is None:
            self._in_use_since = now
        self._charged = self.place_of(amount)
        return self._charged

    def take_use(self, now: float) -> tuple[float, bool] | None:
        """The rate since the last call, and whether uses waited; None: it was not in use."""
        charged, throttled, at = self._taken
        self._taken = self._charged, self.throttled_count, now
        held_up = self.waiting > 0 or self.throttled_count != throttled
        if self._charged == charged and not held_up:
            self._in_use_since = None
            return None
        return max(0.0, self._charged - charged) / max(now - at, 1e-3), held_up

    def used_for_s(self, now: float) -> float:
        """0: it is not in use."""
        return 0.0 if self._in_use_since is None else now - self._in_use_since

    def give_back(self, begin: float, place: float, now: float) -> None:
        """The use from `begin` to `place` did not happen: those behind it move forward."""
        self._advance(now)
        if place == self._charged:
            self._charged = begin
        elif len(self._gaps) < GAPS_MAX:
            insort(self._gaps, (begin, place - begin))
            self._sooner()

    def settle(self, expected: float, amount: float, now: float) -> None:
        """A use that was charged as `expected` has ended, and was of `amount`."""
        self.used += amount
        self.typical = max(TYPICAL_MIN, self.typical + (amount - self.typical) * TYPICAL_WEIGHT)
        most = self._rate * self._charge_max_s
        self.refund(min(expected, most) - min(amount, most), now)

    def refund(self, amount: float, now: float) -> None:
        """So much of a use whose turn has come did not happen: those behind it move forward; below 0, backward."""
        self._served += amount
        self._advance(now)
        if amount > 0:
            self._sooner()

    def left_s(self, place: float, now: float) -> float:
        """0: it is its turn."""
        self._advance(now)
        skipped = sum(size for begin, size in self._gaps if begin < place)
        return max(0.0, (place - skipped - self._served) / self._rate)

    def _sooner(self) -> None:
        if self.on_sooner is not None:
            self.on_sooner()

    def _advance(self, now: float) -> None:
        self._served += max(0.0, now - self._now) * self._rate
        while self._gaps and self._served >= self._gaps[0][0]:
            self._served += self._gaps.pop(0)[1]
        self._served = min(self._served, self._charged + self._rate * self._burst_s)
        self._now = now
