"""The quorum's clock: what the wall clocks of most nodes agree on, by the offsets reported in heartbeats.

    node                                             active controller
    Heartbeat(offset of its wall clock)       ->     kept for FRESH_S
    time of the base, reference offset        <-     the median of the offsets, if most live nodes are near it

All offsets are relative to a base that belongs to one leadership: the controller's wall clock at its start, advanced
by its monotonic clock, so a step of the controller's own clock affects no other node. An offset relative to another
base is ignored. A node's wall clock is correct if it is near the reference; the controller's own is one of the sample.
If no majority of the live nodes agrees (two nodes, an hour apart), there is no reference.

Owned by the controller, in memory, one per leadership.
"""

from __future__ import annotations

from collections.abc import Collection
from statistics import median_low
from typing import Final

from streamlog.metadata.brokers.liveness import ClockAnswer, ClockReport
from streamlog.model import BrokerId
from streamlog.ports import Clock

FRESH_S: Final = 30.0
"""An older offset is ignored: the clock may have been set since."""
SKEWS_MAX: Final = 64
"""In one response: the largest ones."""


class QuorumClocks:
    def __init__(self, clock: Clock, base: int) -> None:
        """`base`: distinct for each leadership."""
        self._clock = clock
        self._base = base
        self._started_s, self._started_ms = clock.monotonic(), clock.wall_ms()
        self._offsets: dict[BrokerId, tuple[float, int]] = {}  # (received at, offset); at most one per node

    def report(self, broker_id: BrokerId, report: ClockReport | None) -> None:
        if report is not None and report.base == self._base:
            self._offsets[broker_id] = self._clock.monotonic(), report.offset_ms

    def answer(self, live: Collection[BrokerId], skew_max_ms: int) -> ClockAnswer:
        """`live`: the nodes that are not fenced."""
        now_s = self._clock.monotonic()
        offsets = {b: ms for b, (at, ms) in sorted(self._offsets.items()) if b in live and now_s - at <= FRESH_S}
        self._offsets = {b: entry for b, entry in self._offsets.items() if now_s - entry[0] <= FRESH_S}
        reference = _agreed(list(offsets.values()), len(live), skew_max_ms)
        skews: list[tuple[BrokerId, int]] = []
        if reference is not None:
            skews = sorted(((b, ms - reference) for b, ms in offsets.items()), key=lambda one: -abs(one[1]))
        return ClockAnswer(
            base=self._base,
            time_ms=self._started_ms + round((now_s - self._started_s) * 1000),
            reference_ms=reference,
            skews=tuple(skews[:SKEWS_MAX]),
        )


def _agreed(offsets: list[int], live: int, skew_max_ms: int) -> int | None:
    """The median, if most of the live nodes are near it."""
    if not offsets:
        return None
    middle = median_low(offsets)
    near = [offset for offset in offsets if abs(offset - middle) <= skew_max_ms]
    return middle if 2 * len(near) > live else None
