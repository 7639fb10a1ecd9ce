"""Until when open transactions may stay open.

A record tells, by the wall clock of the node that led then, when its transaction began. So whoever takes over learns
how much of its time is left; from then on the monotonic clock runs. A wall clock that jumps changes nothing any more,
and one that was wrong costs a transaction what was left of its time, or gives it the whole of it again: never hours.
"""

from __future__ import annotations

from msgspec import Struct

from streamlog.model import ProducerEpoch
from streamlog.ports import Clock
from streamlog.transactions import lifecycle
from streamlog.transactions.records import TransactionValue


class _Deadline(Struct, frozen=True):
    producer_epoch: ProducerEpoch  # with the flag, it tells one transaction of an id from the next
    ahead: bool  # it was open before its first record, which has not come yet: it has longer
    at: float  # monotonic seconds


class Deadlines:
    """Owned by a shard."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, _Deadline] = {}  # of open transactions that end by themselves

    def left_ms(self, transactional_id: str, value: TransactionValue) -> int | None:
        """0: the time is over; None: there is no end. Of a transaction that is seen for the first time, the wall clock
        tells.
        """
        left_ms = lifecycle.left_ms(value, self._clock.wall_ms())
        if left_ms is None:
            self.forget(transactional_id)
            return None
        now = self._clock.monotonic()
        known = self._known.get(transactional_id)
        ahead = value.former_committed is not None
        if known is None or (known.producer_epoch, known.ahead) != (value.producer_epoch, ahead):
            known = self._known[transactional_id] = _Deadline(value.producer_epoch, ahead, now + left_ms / 1000)
        return max(0, round((known.at - now) * 1000))

    def forget(self, transactional_id: str) -> None:
        """It is not open any more."""
        self._known.pop(transactional_id, None)
