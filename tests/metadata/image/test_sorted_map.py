from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.metadata.image.sorted_map import LEAF_MAX, REMOVED, Removed, SortedMap

KEYS = st.integers(0, 3 * LEAF_MAX)
CHANGES = st.dictionaries(KEYS, st.one_of(st.just(REMOVED), st.integers()), max_size=40)
BULK = st.tuples(KEYS, st.integers(1, 2 * LEAF_MAX), st.booleans())


def applied(model: dict[int, int], changes: dict[int, int | Removed]) -> dict[int, int]:
    merged: dict[int, int | Removed] = {**model, **changes}
    return {k: v for k, v in sorted(merged.items()) if not isinstance(v, Removed)}


def same(derived: SortedMap[int, int], model: dict[int, int]) -> None:
    derived.check()
    assert list(derived.items()) == list(model.items())
    assert list(derived) == list(model)
    assert list(derived.values()) == list(model.values())
    assert len(derived) == len(model)


@settings(max_examples=150)
@given(st.lists(st.one_of(CHANGES, BULK), max_size=12))
def test_a_sorted_map_is_a_dict_in_key_order(
    steps: list[dict[int, int | Removed] | tuple[int, int, bool]],
) -> None:
    versions: list[tuple[SortedMap[int, int], dict[int, int]]] = [(SortedMap(), {})]
    for step in steps:
        if isinstance(step, tuple):
            start, count, remove = step
            step = {key: REMOVED if remove else key for key in range(start, start + count)}
        derived, model = versions[-1]
        versions.append((derived.updated(step), applied(model, step)))
    for derived, model in versions:  # the older ones are as they were
        same(derived, model)


@given(st.dictionaries(KEYS, st.integers(), max_size=80), KEYS)
def test_lookups(model: dict[int, int], key: int) -> None:
    derived = SortedMap.of(model)
    assert derived.get(key) == model.get(key)
    assert derived.get(key, "none") == model.get(key, "none")
    assert (key in derived) == (key in model)
    assert list(derived.items(key)) == [(k, model[k]) for k in sorted(model) if k >= key]
    if key not in model:
        with pytest.raises(KeyError):
            derived[key]


def test_none_is_a_value() -> None:
    derived = SortedMap.of({1: None})
    assert 1 in derived
    assert derived[1] is None


def test_a_change_shares_all_leaves_but_one() -> None:
    derived = SortedMap.of({key: key for key in range(100_000)})
    changed = derived.updated({50_000: -1})
    shared = sum(a is b for a, b in zip(derived._leaves, changed._leaves, strict=True))
    assert shared == len(derived._leaves) - 1


def test_a_map_that_loses_nearly_everything_has_no_spine_left() -> None:
    derived = SortedMap.of({key: key for key in range(10_000)})
    for low in range(0, 10_000, 1_000):
        derived = derived.updated(dict.fromkeys(range(low, low + 999), REMOVED))
        derived.check()
    assert list(islice(derived, 3)) == [999, 1_999, 2_999]
    assert len(derived._leaves) == 1


def test_nothing_changed_is_the_same_map() -> None:
    derived = SortedMap.of({1: 1})
    assert derived.updated({}) is derived
