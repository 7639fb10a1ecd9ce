from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import InvariantError
from streamlog.metadata.image.pages import PAGE_SIZE, PagedSequence


@given(
    st.integers(0, 3 * PAGE_SIZE),
    st.lists(
        st.tuples(st.lists(st.integers(0, 10_000), max_size=20), st.integers(0, PAGE_SIZE + 3)),
        max_size=6,
    ),
)
def test_pages_are_a_sequence(size: int, steps: list[tuple[list[int], int]]) -> None:
    model = list(range(size))
    pages = PagedSequence(model)
    for step, (places, growth) in enumerate(steps):
        before, items = pages, list(model)
        changes = {place % len(model): -step for place in places if model}
        changes |= {len(model) + more: step for more in range(growth)}
        pages = pages.updated(changes)
        for index in sorted(changes):
            model[index : index + 1] = [changes[index]]
        assert list(before) == items
    assert list(pages) == model
    assert len(pages) == len(model)
    assert [pages[i] for i in range(len(model))] == model
    assert pages.get(len(model)) is None
    assert pages.get(-1) is None


@pytest.mark.parametrize("index", [-1, 3])
def test_only_what_is_there_has_an_index(index: int) -> None:
    with pytest.raises(IndexError):
        PagedSequence([1, 2, 3])[index]


@pytest.mark.parametrize("changes", [{4: 0}, {3: 0, 5: 0}, {-1: 0}])
def test_a_gap_is_a_broken_invariant(changes: dict[int, int]) -> None:
    with pytest.raises(InvariantError):
        PagedSequence([1, 2, 3]).updated(changes)


def test_a_change_shares_all_pages_but_one() -> None:
    pages = PagedSequence(range(100_000))
    changed = pages.updated({50_000: -1})
    shared = sum(a is b for a, b in zip(pages._pages, changed._pages, strict=True))
    assert shared == len(pages._pages) - 1
