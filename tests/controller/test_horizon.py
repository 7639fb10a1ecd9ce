"""How far the metadata had got some time ago."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamlog.controller.horizon import SAMPLES_MAX, STEP_S, Horizon
from streamlog.model import RaftIndex


@given(st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(0, 5)), max_size=60), st.floats(1.0, 10.0))
def test_it_is_never_ahead(moves: list[tuple[float, int]], age_s: float) -> None:
    index, now, asked = 0, 100.0, []
    horizon = Horizon(lambda: RaftIndex(index))
    for pause_s, step in moves:
        now, index = now + pause_s, index + step
        found = horizon.before(now, age_s)
        asked.append((now, index))
        then = max((i for when, i in asked if when <= now - age_s), default=0)
        assert found <= then


def test_it_lags_by_a_step_at_most_where_it_is_asked_often() -> None:
    at = {"index": 0}
    horizon = Horizon(lambda: RaftIndex(at["index"]))
    for beat in range(200):
        now, at["index"] = beat / 10, beat
        found = horizon.before(now, 3.0)
        assert beat - 30 - 10 * STEP_S <= found <= max(0, beat - 30)


def test_it_remembers_no_more_than_it_must() -> None:
    horizon = Horizon(lambda: RaftIndex(1))
    for number in range(3 * SAMPLES_MAX):
        horizon.before(float(number), 1e9)
    assert len(horizon._samples) == SAMPLES_MAX
