"""The checker is checked: good histories pass, planted violations are found."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .history import NEVER, Operation, violations


def write(value: str, invoked: float, completed: float = NEVER) -> Operation:
    return Operation("c", "write", "k", value, invoked, completed)


def read(value: str, invoked: float, completed: float) -> Operation:
    return Operation("c", "read", "k", value, invoked, completed)


GOOD = {
    "one after the other": [write("a", 0, 1), read("a", 2, 3), write("b", 4, 5), read("b", 6, 7)],
    "nothing written yet": [read("", 0, 1), write("a", 2, 3)],
    "a read beside a write may see it or not": [write("a", 0, 10), read("", 1, 2), read("a", 3, 4)],
    "an unknown write may have happened": [write("a", 0, 1), write("b", 2), read("b", 5, 6)],
    "an unknown write may not have happened": [write("a", 0, 1), write("b", 2), read("a", 5, 6)],
    "two writes beside each other, either last": [write("a", 0, 10), write("b", 0, 10), read("a", 11, 12)],
    "and once seen it stays": [write("a", 0, 10), write("b", 0, 10), read("b", 3, 4), read("a", 11, 12)],
}
BAD = {
    "a value that was not written": [read("x", 0, 1)],
    "a value from the future": [read("a", 0, 1), write("a", 2, 3)],
    "an acknowledged write is not seen": [write("a", 0, 1), read("", 2, 3)],
    "an overwritten value comes back": [write("a", 0, 1), write("b", 2, 3), read("a", 4, 5)],
    "a read goes back behind another": [write("a", 0, 1), write("b", 2, 10), read("b", 3, 4), read("a", 5, 6)],
    "an unknown write happens and is undone": [write("a", 0, 1), write("b", 2), read("b", 3, 4), read("a", 5, 6)],
    "two values at the same time": [
        write("a", 0, 1), write("b", 0, 1), read("a", 2, 3), read("b", 4, 5), read("a", 6, 7),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_passes(name: str) -> None:
    assert violations(GOOD[name]) == []


@pytest.mark.parametrize("name", BAD)
def test_a_violation_is_found(name: str) -> None:
    assert violations(BAD[name]) != []


def linearizable_by_search(operations: list[Operation]) -> bool:
    """The definition itself: some order of the operations explains all reads, and keeps to real time."""
    sure = [op for op in operations if op.completed < NEVER]
    unsure = [op for op in operations if op.completed == NEVER and op.kind == "write"]
    for count in range(len(unsure) + 1):
        for happened in itertools.combinations(unsure, count):
            if any(_explains(order) for order in itertools.permutations([*sure, *happened])):
                return True
    return False


def _explains(order: tuple[Operation, ...]) -> bool:
    value = ""
    for place, operation in enumerate(order):
        if any(later.completed < operation.invoked for later in order[place + 1 :]):
            return False
        if operation.kind == "write":
            value = operation.value
        elif operation.value != value:
            return False
    return True


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    """Few operations at distinct times, on one key; reads see anything that was ever written."""
    count = draw(st.integers(1, 5))
    times = draw(st.permutations(range(2 * count)))
    operations = []
    for number in range(count):
        invoked, completed = sorted(times[2 * number : 2 * number + 2])
        if draw(st.booleans()):
            end = NEVER if draw(st.integers(0, 3)) == 0 else completed
            operations.append(write(f"v{number}", invoked, end))
        else:
            operations.append(read(draw(st.sampled_from(["", "v0", "v1", "v2"])), invoked, completed))
    return operations


@settings(max_examples=400, deadline=None)
@given(histories())
def test_the_checker_agrees_with_the_definition(operations: list[Operation]) -> None:
    written = {op.value for op in operations if op.kind == "write"} | {""}
    if all(op.value in written for op in operations):
        assert (violations(operations) == []) is linearizable_by_search(operations)
