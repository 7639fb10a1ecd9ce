"""Percentiles of latencies."""

from __future__ import annotations

import random

import pytest

from streamlog.cli.perf.latencies import PERCENTILES, Latencies


def test_percentiles_are_those_of_the_sorted_latencies() -> None:
    generator = random.Random(7)
    values = sorted(generator.expovariate(0.1) + 0.01 for _ in range(10_000))
    found = Latencies()
    for value in values:
        found.add(value)
    for percent in PERCENTILES:
        exact = values[-(-len(values) * int(percent * 10) // 1000) - 1]
        assert found.percentile_ms(percent) == pytest.approx(exact, rel=0.005)
    assert found.average_ms == pytest.approx(sum(values) / len(values))
    assert found.max_ms == values[-1]


def test_one_and_none() -> None:
    one, none = Latencies(), Latencies()
    one.add(12.34567, 3)
    assert (one.count, one.percentile_ms(50), one.percentile_ms(99.9)) == (3, 12.3, 12.3)
    assert (none.percentile_ms(50), none.average_ms, none.max_ms) == (0.0, 0.0, 0.0)


def test_memory_is_bounded() -> None:
    found = Latencies()
    for number in range(200_000):
        found.add(number / 7 + 0.001)
    assert len(found._counts) <= 900 * 9
