"""A node's wall clock against the quorum's: skew at every moment, correct wall time, and no deletion meanwhile."""

from __future__ import annotations

from typing import Any

from streamlog.metadata.brokers.liveness import ClockAnswer
from streamlog.node.quorum_clock import QuorumClock
from tests.support.clocks import HOUR_MS, LIMIT_MS, FakeClock

NOW_MS = 1_100_000  # of a FakeClock that was not moved


class Bench:
    def __init__(self) -> None:
        self.own = FakeClock()
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.clock = QuorumClock(
            self.own, skew_max_ms=lambda: LIMIT_MS, probe=lambda event, /, **fields: self.events.append((event, fields))
        )

    def beat(self, *, base_ahead_ms: int = 0, reference_ms: int | None = 0, trip_s: float = 0.0) -> None:
        sent_s = self.own.now_s
        self.own.now_s += trip_s / 2
        time_ms = 1_000_000 + round(self.own.now_s * 1000) + base_ahead_ms
        self.own.now_s += trip_s / 2
        answer = ClockAnswer(base=7, time_ms=time_ms, reference_ms=reference_ms)
        self.clock.heartbeat_answered(sent_s, answer)


def test_not_compared_yet() -> None:
    bench = Bench()
    assert (bench.clock.skew_ms, bench.clock.may_delete_by_time, bench.clock.report()) == (None, False, None)
    assert bench.clock.wall_ms() == NOW_MS


def test_most_do_not_agree() -> None:
    bench = Bench()
    bench.beat(reference_ms=None)
    assert (bench.clock.skew_ms, bench.clock.may_delete_by_time) == (None, False)
    report = bench.clock.report()
    assert report is not None
    assert (report.base, report.offset_ms) == (7, 0)


def test_most_do_not_agree_any_more() -> None:
    """Once compared, a node went on to delete by time."""
    bench = Bench()
    bench.beat()
    assert bench.clock.may_delete_by_time
    bench.beat(reference_ms=None)
    assert (bench.clock.skew_ms, bench.clock.may_delete_by_time) == (None, False)
    bench.beat()
    assert (bench.clock.skew_ms, bench.clock.may_delete_by_time) == (0, True)


def test_a_skewed_node_keeps_the_time_of_the_others_while_a_new_controller_has_none() -> None:
    bench = Bench()
    bench.own.ahead_ms = HOUR_MS
    bench.beat()
    bench.beat(reference_ms=None)
    assert (bench.clock.skew_ms, bench.clock.may_delete_by_time) == (None, False)
    assert bench.clock.wall_ms() == NOW_MS
    bench.beat()
    assert [event for event, _ in bench.events] == ["clock_skewed"]


def test_near_enough() -> None:
    bench = Bench()
    bench.own.ahead_ms = LIMIT_MS - 1
    bench.beat(trip_s=0.5)
    assert (bench.clock.skew_ms, bench.clock.may_delete_by_time) == (LIMIT_MS - 1, True)
    assert bench.clock.wall_ms() == bench.own.wall_ms(), "its own, while it is near"
    assert bench.events == []


def test_an_hour_ahead() -> None:
    bench = Bench()
    bench.own.ahead_ms = HOUR_MS
    bench.beat()
    assert (bench.clock.skew_ms, bench.clock.may_delete_by_time) == (HOUR_MS, False)
    assert bench.clock.wall_ms() == NOW_MS, "what most nodes agree on"
    bench.beat()
    assert bench.events == [("clock_skewed", {"skew_ms": HOUR_MS, "limit_ms": LIMIT_MS})], "once"
    bench.own.ahead_ms = 0
    bench.beat()
    assert [event for event, _ in bench.events] == ["clock_skewed", "clock_near"]


def test_it_is_the_controller_that_is_wrong() -> None:
    bench = Bench()
    bench.beat(base_ahead_ms=HOUR_MS, reference_ms=-HOUR_MS)
    assert (bench.clock.skew_ms, bench.clock.may_delete_by_time) == (0, True)


def test_a_step_is_seen_before_the_next_heartbeat() -> None:
    bench = Bench()
    bench.beat()
    bench.own.now_s += 5
    bench.own.ahead_ms = -2 * HOUR_MS
    assert (bench.clock.skew_ms, bench.clock.may_delete_by_time) == (-2 * HOUR_MS, False)
    assert bench.clock.wall_ms() == NOW_MS + 5_000


def test_a_heartbeat_that_took_too_long_compares_nothing() -> None:
    bench = Bench()
    bench.beat(trip_s=LIMIT_MS / 1000 + 1)
    assert bench.clock.skew_ms is None
