"""Numbers over time: what is written, what is read back, gaps, bounds, damaged files."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy", reason="streamlog[console] is not installed")

from hypothesis import given
from hypothesis import strategies as st

from streamlog.console.collection import history as module
from streamlog.console.collection.history import Point, SampleHistory, _levels
from streamlog.console.collection.history_database import HistoryError

LAG = ("group.lag", "billing\norders")


def opened(tmp_path: Path) -> SampleHistory:
    return SampleHistory.open(f"sqlite:///{tmp_path}/history.db")


def test_a_level_stretch_costs_two_points_and_is_read_as_one(tmp_path: Path) -> None:
    history = opened(tmp_path)
    for at_s, value in ((1000, 5), (1010, 5), (1020, 5), (1030, 7), (1040, 7)):
        history.write(at_s, {LAG: value})
    assert history.read(LAG, 1000, 2000) == [Point(1000, 5), Point(1020, 5), Point(1030, 7), Point(1040, 7)]
    assert history.read(LAG, 1015, 2000)[0] == Point(1020, 5), "what was so before holds"
    assert history.read(("group.lag", "unknown"), 0, 2000) == []


def test_a_time_without_samples_is_a_gap(tmp_path: Path) -> None:
    history = opened(tmp_path)
    for at_s in (1000, 1010, 1200, 1210):
        history.write(at_s, {LAG: 5})
    assert history.read(LAG, 900, 2000) == [
        Point(1000, 5),
        Point(1010, 5),
        Point(1011, None),
        Point(1200, 5),
        Point(1210, 5),
    ]


def test_a_clock_that_is_set_back_and_forth(tmp_path: Path) -> None:
    """What was written at later times must not hide what is so now."""
    history = opened(tmp_path)
    for at_s, value in ((1000, 5), (1010, 5), (90_000, 7), (90_010, 7), (1020, 7), (1030, 7), (1040, 8)):
        history.write(at_s, {LAG: value})
    assert history.read(LAG, 1000, 1040) == [
        Point(1000, 5),
        Point(1010, 5),
        Point(1020, 7),
        Point(1030, 7),
        Point(1040, 8),
    ]
    history.write(90_000, {LAG: 9})
    assert history.read(LAG, 90_000, 90_000) == [Point(90_000, 9)]


def test_it_is_there_after_a_restart(tmp_path: Path) -> None:
    history = opened(tmp_path)
    history.write(1000, {LAG: 5})
    history.close()
    history = opened(tmp_path)
    history.write(1000, {LAG: 6})
    history.write(1010, {LAG: 6})
    assert history.read(LAG, 1000, 2000) == [Point(1000, 6), Point(1010, 6)]


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    """Neither values that count as written, nor ids that other series get later."""
    history = opened(tmp_path)

    def limit(pages: int) -> None:
        history.database.engine.dispose()
        with history.database.engine.connect() as connection:
            connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")

    history.write(1000, {LAG: 5})
    created = {("group.lag", f"{number:04}" * 20): 1.0 for number in range(60)}
    with history.database.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    limit(pages)
    with pytest.raises(HistoryError, match="full"):
        history.write(1010, {LAG: 0, **created})
    limit(1 << 30)
    history.write(1020, {LAG: 0})
    later = ("group.lag", "later")
    for at_s in (1030, 1040):
        history.write(at_s, {LAG: 0, **created, later: 7})
    assert history.read(LAG, 1000, 1040) == [Point(1000, 5), Point(1020, 0), Point(1040, 0)]
    for series, value in (*created.items(), (later, 7)):
        assert history.read(series, 1000, 1040) == [Point(1030, value), Point(1040, value)]


def test_a_long_span_is_read_from_means(tmp_path: Path) -> None:
    history = opened(tmp_path)
    for step in range(60):
        history.write(6000 + step * 10, {LAG: step})
    day_s = 86_400
    points = history.read(LAG, 6600 - day_s, 6600)
    assert [point.at_s for point in points] == list(range(6000, 6540, 60))
    assert points[0].value == pytest.approx(sum(range(6)) / 6)


def test_what_is_old_goes(tmp_path: Path) -> None:
    history = opened(tmp_path)
    history.write(1000, {LAG: 5})
    history.write(1000 + 86_400, {LAG: 6})
    history.clean(1000 + 86_400 + 1)
    assert [point.at_s for point in history.read(LAG, 0, 3000)] == []
    assert history.read(LAG, 87_000, 88_000) == [Point(87_400, 6)]


def test_series_that_are_no_more_are_forgotten(tmp_path: Path) -> None:
    """In memory at the next clean, in the file with their last point."""
    history, day_s, gone = opened(tmp_path), 86_400, ("group.lag", "gone")

    def series() -> int:
        with history.database.engine.connect() as connection:
            return int(connection.exec_driver_sql("SELECT count(*) FROM series").scalar_one())

    for at_s, value in ((6000, 1), (6010, 2)):
        history.write(at_s, {LAG: 5, gone: value})
    history.write(6060, {LAG: 5})
    history.clean(6060)
    assert [len(found) for found in (history._ids, history._last, history._gathering)] == [2, 4, 4]
    assert series() == 3
    assert history.read(gone, 6060 - day_s, 6060) == [Point(6000, 1.5)], "the mean until then"
    history.write(6070, {LAG: 5, gone: 2})
    assert history.read(gone, 6070, 6070) == [Point(6070, 2)]
    later_s = 6070 + 91 * day_s
    history.clean(later_s)
    assert series() == 0
    history.write(later_s, {LAG: 5})
    assert history.read(LAG, later_s, later_s) == [Point(later_s, 5)]


def test_an_idle_series_is_there_after_its_first_points_were_deleted(tmp_path: Path) -> None:
    history, hour_s = opened(tmp_path), 3_600
    for step in range(2 * 24 * 6):
        history.write(step * 600, {LAG: 5})
        if step % 6 == 0:
            history.clean(step * 600)
    end_s = step * 600
    for span_s in (hour_s, 6 * hour_s):
        found = history.read(LAG, end_s - span_s, end_s)
        assert (found[0], found[-1]) == (Point(end_s - span_s, 5), Point(end_s, 5))
    with history.database.engine.connect() as connection:
        points = connection.exec_driver_sql("SELECT count(*) FROM points GROUP BY series ORDER BY 1").scalars().all()
    assert points[0] < points[1] / 5


def test_the_file_is_bounded_with_the_points_of_all_tiers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = opened(tmp_path)
    for step in range(400):
        history.write(step * 600, {("group.lag", f"g{group}\nt"): step for group in range(20)})
    with history.database.engine.connect() as connection:
        full = history.database.used_bytes(connection)
    monkeypatch.setattr(module, "SIZE_BYTES_MAX", full // 2)
    history.clean(400 * 600)
    with history.database.engine.connect() as connection:
        assert full * 0.4 < history.database.used_bytes(connection) <= full // 2
        kept = connection.exec_driver_sql("SELECT count(*), min(at), max(at) FROM points GROUP BY tier").all()
    assert len(kept) == 3
    for count, oldest, newest in kept:
        assert count > 1_000
        assert oldest > 0
        assert newest >= 398 * 600
    monkeypatch.setattr(module, "SIZE_BYTES_MAX", 1)
    history.clean(400 * 600)
    assert history.read(("group.lag", "g0\nt"), 0, 400 * 600) == []


def test_a_full_file_loses_no_more_than_it_must(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's file never shrinks: its free pages count as free."""
    history = opened(tmp_path)
    steps, ended_s = 1_000, 11_000
    for step in range(steps):
        history.write(ended_s + (step - steps) * 10, {("group.lag", f"g{group}\nt"): step for group in range(4)})
    with history.database.engine.connect() as connection:
        full = history.database.used_bytes(connection)
    assert history.database.size_bytes() >= full > 100_000
    monkeypatch.setattr(module, "SIZE_BYTES_MAX", full * 3 // 4)
    for _ in range(30):
        history.clean(ended_s)
    kept = history.read(("group.lag", "g3\nt"), 0, ended_s)
    assert steps * 0.4 < len(kept) < steps * 0.9


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_file_is_moved_aside(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "history.db").write_bytes(content)
    history = opened(tmp_path)
    history.write(1000, {LAG: 5})
    if content:
        assert Path(history.database.moved_aside).read_bytes() == content
        history.close()
        (tmp_path / "history.db").write_bytes(content)
        assert opened(tmp_path).database.moved_aside.endswith("-1")


@pytest.mark.parametrize("page", [2, 5, 9])
def test_a_file_with_a_damaged_page_is_moved_aside(tmp_path: Path, page: int) -> None:
    """SQLite opens such a file, and finds the damage only where it reads."""
    history = opened(tmp_path)
    for step in range(1000):
        history.write(1000 + step * 10, {LAG: step, ("group.lag", "other"): step})
    history.close()
    path = tmp_path / "history.db"
    content = bytearray(path.read_bytes())
    assert len(content) > 10 * 4096
    content[page * 4096 : page * 4096 + 200] = b"\xa5" * 200
    path.write_bytes(content)
    history = opened(tmp_path)
    assert Path(history.database.moved_aside).read_bytes() == content
    history.write(1000, {LAG: 5})
    assert history.read(LAG, 1000, 2000) == [Point(1000, 5)]
    history.close()
    assert opened(tmp_path).database.moved_aside == ""


@pytest.mark.parametrize("name", ["x" * 600, "x" * 5000, "a\0b"])
def test_series_with_any_name_are_kept_apart(tmp_path: Path, name: str) -> None:
    history = opened(tmp_path)
    history.write(1000, {("group.lag", name): 5, ("group.lag", f"{name}2"): 6})
    assert history.read(("group.lag", name), 1000, 1010) == [Point(1000, 5)]
    assert history.read(("group.lag", f"{name}2"), 1000, 1010) == [Point(1000, 6)]


def test_a_newer_schema_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCHEMA_VERSION", 99)
    opened(tmp_path).close()
    monkeypatch.undo()
    with pytest.raises(HistoryError, match="newer release"):
        opened(tmp_path)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 2)), max_size=30), st.sampled_from([None, 0.0, 1.0]))
def test_what_is_read_is_what_was_so(steps: list[tuple[int, int]], before: float | None) -> None:
    """A line through the points has the value of each sample."""
    times, values, at_s = [], {}, 0
    for passed, value in steps:
        at_s += passed
        times.append(at_s)
        values[at_s] = float(value)
    points, last = {}, before
    for at_s in times:
        if values[at_s] != last:
            points[at_s] = last = values[at_s]
    found = _levels(times, points, before, 4)
    assert [point.at_s for point in found] == sorted({point.at_s for point in found})
    shown: dict[int, float | None] = {point.at_s: point.value for point in found}
    current: float | None = None
    for at_s in times:
        current = shown.get(at_s, current)
        assert current == values[at_s]
