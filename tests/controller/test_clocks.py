"""The quorum's clock: what most live nodes agree on, by offsets that they report."""

from __future__ import annotations

from streamlog.controller.clocks import FRESH_S, QuorumClocks
from streamlog.metadata.brokers.liveness import ClockReport
from streamlog.model import BrokerId
from tests.metadata.examples import ids
from tests.support.clocks import HOUR_MS, LIMIT_MS, FakeClock


def report(clocks: QuorumClocks, base: int = 7, **offsets: int) -> None:
    for name, offset in offsets.items():
        clocks.report(BrokerId(int(name[1:])), ClockReport(base=base, offset_ms=offset))


def reference(live: int, **offsets: int) -> int | None:
    clocks = QuorumClocks(FakeClock(), 7)
    report(clocks, **offsets)
    return clocks.answer(ids(*range(1, live + 1)), LIMIT_MS).reference_ms


def test_the_middle_of_most() -> None:
    assert reference(3, n1=5, n2=0, n3=HOUR_MS) == 5
    assert reference(3, n1=-HOUR_MS, n2=3, n3=3) == 3
    assert reference(1, n1=0) == 0


def test_without_a_majority_there_is_no_reference() -> None:
    assert reference(2, n1=0, n2=HOUR_MS) is None
    assert reference(3, n1=0) is None, "too few have reported"
    assert reference(4, n1=0, n2=0, n3=HOUR_MS, n4=HOUR_MS) is None
    assert reference(3) is None


def test_the_largest_skews_are_reported() -> None:
    clocks = QuorumClocks(FakeClock(), 7)
    report(clocks, n1=0, n2=20, n3=-HOUR_MS)
    assert clocks.answer(ids(1, 2, 3), LIMIT_MS).skews == ((3, -HOUR_MS), (2, 20), (1, 0))


def test_what_is_old_of_another_base_or_of_a_dead_node_does_not_count() -> None:
    clock = FakeClock()
    clocks = QuorumClocks(clock, 7)
    report(clocks, n1=0, n2=0)
    report(clocks, base=6, n3=HOUR_MS)
    assert clocks.answer(ids(1, 2), LIMIT_MS).reference_ms == 0
    assert clocks.answer(ids(1, 3), LIMIT_MS).reference_ms is None
    clock.now_s += FRESH_S + 1
    assert clocks.answer(ids(1, 2), LIMIT_MS).reference_ms is None


def test_a_step_of_the_controllers_own_clock_moves_nothing() -> None:
    clock = FakeClock()
    clocks = QuorumClocks(clock, 7)
    before = clocks.answer((), LIMIT_MS).time_ms
    clock.now_s += 2
    clock.ahead_ms = 9 * 24 * HOUR_MS
    assert clocks.answer((), LIMIT_MS).time_ms == before + 2_000
