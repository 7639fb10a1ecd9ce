"""A node's clock, compared with the quorum's (streamlog.controller.clocks).

    unknown    not compared yet, or no majority of nodes agrees now: nothing is deleted by time
    near       within `clock.skew.max.ms`: wall time is the node's own
    skewed     beyond it: wall time is the quorum's, nothing is deleted by time, a warning is logged

While it is unknown, wall time is by the last comparison, since a new controller has none at first; without any it is
the node's own.

The comparison is stored as a point on the monotonic clock, so the skew is known at every moment, and a step of the wall
clock is noticed at once and not with the next heartbeat. Its error is at most half of a round trip; a heartbeat that
took longer than the bound is not used.

It is a Clock: the replicas, coordinators and services of a node use it for timestamps, checks and expiry. So a node
whose wall clock is wrong neither refuses records for their timestamps nor writes wrong ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from streamlog.metadata.brokers.liveness import ClockAnswer, ClockReport
from streamlog.model import BrokerId
from streamlog.ports import Clock, Probe


class QuorumClock:
    """One a node."""

    def __init__(self, own: Clock, *, skew_max_ms: Callable[[], int], probe: Probe) -> None:
        self._own = own
        self.monotonic = own.monotonic  # called several times for each record: without a method in between
        self._skew_max_ms = skew_max_ms
        self._probe = probe
        self._base: tuple[int, float] | None = None  # the controller's, and its time in ms at monotonic 0
        self._quorum_ms: float | None = None  # the quorum's time in ms at monotonic 0
        self._agreed = False  # a majority, as of the last heartbeat
        self._skewed = False  # as last logged
        self.skews: Mapping[BrokerId, int] = {}  # of all nodes, as the controller knows them

    def wall_ms(self) -> int:
        own = self._own.wall_ms()
        if self._quorum_ms is None:
            return own
        skew = round(own - self._now(self._quorum_ms))  # as `skew_ms`, of the same moment
        return own if abs(skew) <= self._skew_max_ms() else own - skew

    @property
    def skew_ms(self) -> int | None:
        """How far the wall clock is ahead of the quorum's; None: not known."""
        if self._quorum_ms is None or not self._agreed:
            return None
        return round(self._own.wall_ms() - self._now(self._quorum_ms))

    @property
    def skew_max_ms(self) -> int:
        """`clock.skew.max.ms`, as it is set now."""
        return self._skew_max_ms()

    @property
    def may_delete_by_time(self) -> bool:
        """The wall clock agrees with the quorum's."""
        skew = self.skew_ms
        return skew is not None and abs(skew) <= self._skew_max_ms()

    def report(self) -> ClockReport | None:
        """For the next heartbeat."""
        if self._base is None:
            return None
        base, base_ms = self._base
        return ClockReport(base=base, offset_ms=round(self._own.wall_ms() - self._now(base_ms)))

    def heartbeat_answered(self, sent_s: float, answer: ClockAnswer | None) -> None:
        """A heartbeat that was sent at `sent_s` has just been answered."""
        now_s = self._own.monotonic()
        if answer is None or (now_s - sent_s) * 1000 > self._skew_max_ms():
            return
        base_ms = answer.time_ms - (sent_s + now_s) / 2 * 1000
        self._base = answer.base, base_ms
        self._agreed = answer.reference_ms is not None
        if answer.reference_ms is not None:
            self._quorum_ms = base_ms + answer.reference_ms
        self.skews = dict(answer.skews)
        self._report_skew()

    def _now(self, at_zero_ms: float) -> float:
        return at_zero_ms + self._own.monotonic() * 1000

    def _report_skew(self) -> None:
        skew = self.skew_ms
        if skew is None:
            return
        skewed = abs(skew) > self._skew_max_ms()
        if skewed != self._skewed:
            self._skewed = skewed
            self._probe("clock_skewed" if skewed else "clock_near", skew_ms=skew, limit_ms=self._skew_max_ms())
