from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamlog.metrics import Histogram


def test_a_value_that_equals_a_bound_counts_below_it() -> None:
    histogram = Histogram((1, 2))
    for value in (0.5, 1, 1.5, 2, 7):
        histogram.observe(value)
    assert histogram.cumulative() == [(1, 2), (2, 4), (float("inf"), 5)]
    assert histogram.sum == 12
    assert histogram.count == 5


@given(st.lists(st.floats(0, 100)))
def test_counts_are_those_of_the_values(values: list[float]) -> None:
    histogram = Histogram((0.1, 1, 10))
    for value in values:
        histogram.observe(value)
    assert histogram.cumulative() == [
        (bound, sum(value <= bound for value in values)) for bound in (0.1, 1, 10, float("inf"))
    ]
