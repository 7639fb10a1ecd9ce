"""The transactions that hold the last stable offset of a log (KIP-98).

    open --marker--> ended --the high watermark passes the marker--> settled, and removed here

Until the high watermark has passed it, a marker may be truncated and the transaction be open again. So readers of
committed records get nothing at or above the first offset of a transaction that is open or ended.

Transactions begin at rising offsets and dicts keep their order, so the oldest one is the first of a dict, found in
constant time. After a start, those that ended below the last snapshot are not known here, even if they are above the
high watermark: their outcome is decided, otherwise there would be no marker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from streamlog.model import Offset, ProducerId


class EndedTransaction(NamedTuple):
    """What a marker has ended."""

    first_offset: Offset
    last_stable_offset: Offset  # first offset of the oldest one still open, or the offset after the marker


class UnstableTransactions:
    """Owned by `ProducerStates`. Offsets and high watermarks rise from call to call."""

    __slots__ = ("_ended", "_open", "_unsettled")

    def __init__(self, open_transactions: Iterable[tuple[ProducerId, Offset]] = ()) -> None:
        """`open_transactions`: producer and first offset, in any order."""
        ordered = sorted(open_transactions, key=lambda one: one[1])
        self._open: dict[ProducerId, Offset] = dict(ordered)
        self._unsettled: dict[Offset, ProducerId] = {first: producer for producer, first in ordered}  # open or ended
        self._ended: deque[tuple[Offset, Offset]] = deque()  # marker, first offset

    @property
    def oldest(self) -> Offset | None:
        """First offset of the oldest open transaction; None where none is open."""
        return next(iter(self._open.values()), None)

    def begin(self, producer_id: ProducerId, first_offset: Offset) -> None:
        self._open[producer_id] = first_offset
        self._unsettled[first_offset] = producer_id

    def end(self, producer_id: ProducerId, marker_offset: Offset) -> EndedTransaction | None:
        """None where the producer has none open: a marker without records."""
        first = self._open.pop(producer_id, None)
        if first is None:
            return None
        self._ended.append((marker_offset, first))
        oldest = self.oldest
        return EndedTransaction(first, Offset(marker_offset + 1) if oldest is None else oldest)

    def first_unstable_offset(self, high_watermark: Offset) -> Offset | None:
        """First offset of the oldest transaction that is open, or whose marker is not below `high_watermark`."""
        if not self._unsettled:
            return None  # none has ended either
        ended = self._ended
        while ended and ended[0][0] < high_watermark:
            del self._unsettled[ended.popleft()[1]]
        return next(iter(self._unsettled), None)
