"""Strings copied all at once, against a slice for each."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.records.columns.ragged import equal_copy, ragged_copy

SOURCE = random.Random(0).randbytes(6 * 40 * 300 + 101)


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 40)), min_size=1, max_size=6), st.integers(1, 100))
def test_strings_of_one_size_by_stretches_of_equal_distance(stretches: list[tuple[int, int]], size: int) -> None:
    starts = np.cumsum([0] + [distance for distance, count in stretches for _ in range(count)])
    expected = b"".join(SOURCE[start : start + size] for start in starts.tolist())
    target = np.empty((len(starts), size), np.uint8)
    copied = equal_copy(np.frombuffer(SOURCE, np.uint8)[: int(starts[-1]) + size], starts, target)
    assert not copied or target.tobytes() == expected
    if len(stretches) <= 2:
        assert copied


@pytest.mark.parametrize("count", [1, 2, 3, 63, 64, 65])
def test_all_strides_alike(count: int) -> None:
    starts = np.arange(count) * 7
    target = np.empty((count, 5), np.uint8)
    assert equal_copy(np.frombuffer(SOURCE, np.uint8), starts, target)
    assert target.tobytes() == b"".join(SOURCE[at : at + 5] for at in starts.tolist())


def test_strings_here_and_there_are_the_other_way_s_business() -> None:
    starts = np.array(sorted(random.Random(1).sample(range(40_000), 200)))
    target = np.zeros((200, 5), np.uint8)
    assert not equal_copy(np.frombuffer(SOURCE, np.uint8), starts, target)
    assert not target.any()


@given(st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 300)), max_size=40))
def test_strings_of_all_sizes(strings: list[tuple[int, int]]) -> None:
    starts, sizes = (np.array([one[index] for one in strings], np.int64) for index in (0, 1))
    target = np.zeros(int(sizes.sum()), np.uint8)
    ragged_copy(np.frombuffer(SOURCE, np.uint8), starts, target, np.cumsum(sizes) - sizes, sizes)
    assert target.tobytes() == b"".join(SOURCE[start : start + size] for start, size in strings)
