"""Time-outs of open transactions.

A record holds the start of its transaction by the wall clock of the node that led then. A new coordinator computes the
remaining time from it once and counts on the monotonic clock from then on. A later jump of the wall clock changes
nothing; a wrong wall clock costs a transaction its remaining time at most, or grants it its whole time-out again.
"""

from __future__ import annotations

from msgspec import Struct

from streamlog.model import ProducerEpoch
from streamlog.ports import Clock
from streamlog.transactions import lifecycle
from streamlog.transactions.records import TransactionValue


class _Deadline(Struct, frozen=True):
    producer_epoch: ProducerEpoch  # with `ahead`, it identifies one transaction of an id
    ahead: bool  # opened before its first record, which has not arrived yet: its time-out is longer
    at: float  # monotonic seconds


class Deadlines:
    """Owned by a shard."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, _Deadline] = {}  # of open transactions with a time-out

    def left_ms(self, transactional_id: str, value: TransactionValue) -> int | None:
        """Remaining time; 0: timed out; None: no time-out. The first call for a transaction goes by the wall clock."""
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
        """The transaction has ended."""
        self._known.pop(transactional_id, None)
