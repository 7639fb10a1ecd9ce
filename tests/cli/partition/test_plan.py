"""Plans of replica moves: even, on distinct nodes and racks, and no larger than they need be."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.cli.partition import plan
from streamlog.cli.partition.plan import Move, NotEnoughNodesError, counts, moves
from streamlog.model import PartitionId, TopicPartition

Current = dict[TopicPartition, tuple[int, ...]]


def topic(name: str, *replicas: tuple[int, ...]) -> Current:
    return {TopicPartition(name, PartitionId(index)): nodes for index, nodes in enumerate(replicas)}


def after(current: Current, found: Iterable[Move]) -> Current:
    return current | {one.at: one.after for one in found}


def spread(current: Current, targets: Iterable[int]) -> tuple[int, int]:
    """By how much the nodes' replicas, and their leaders, differ."""
    found = counts(current.values(), targets)
    replicas, leaders = [one for one, _ in found.values()], [one for _, one in found.values()]
    return max(replicas) - min(replicas), max(leaders) - min(leaders)


def test_a_new_node_gets_its_share_and_nothing_else_moves() -> None:
    current = topic("t", *[(1, 2), (2, 3), (3, 1)] * 4)
    found = moves(current, dict.fromkeys((1, 2, 3, 4), ""))
    assert spread(after(current, found), (1, 2, 3, 4)) == (0, 0)
    copied = [node for one in found for node in one.added]
    assert copied == [4] * 6, "the others have their replicas already"


def test_what_is_even_stays() -> None:
    assert moves(topic("t", (1, 2), (2, 3), (3, 1)), dict.fromkeys((1, 2, 3), "")) == []


def test_replicas_leave_a_node_that_is_no_target() -> None:
    current = topic("t", (1, 2), (2, 3), (3, 1))
    found = moves(current, dict.fromkeys((1, 2, 4), ""))
    assert all(3 not in replicas for replicas in after(current, found).values())
    assert spread(after(current, found), (1, 2, 4)) == (0, 0)
    with pytest.raises(NotEnoughNodesError, match=r"t-[0-2] has 2 replicas, more than there are nodes, 1"):
        moves(current, {3: ""})


def test_racks_are_kept_apart() -> None:
    racks = {1: "a", 2: "b", 3: "a", 4: "b"}
    current = topic("t", *[(1, 2)] * 8)
    found = after(current, moves(current, racks))
    assert spread(found, racks) == (0, 0)
    assert all({racks[node] for node in replicas} == {"a", "b"} for replicas in found.values())


def test_topics_are_spread_as_well() -> None:
    current = topic("a", *[(1,)] * 4) | topic("b", *[(1,)] * 4)
    found = after(current, moves(current, {1: "", 2: ""}))
    assert spread({at: one for at, one in found.items() if at.topic == "a"}, (1, 2))[0] == 0


def test_only_what_may_move_moves() -> None:
    current = topic("a", *[(1,)] * 4) | topic("b", *[(1,)] * 2)
    found = moves(current, {1: "", 2: ""}, movable=[at for at in current if at.topic == "b"])
    assert [one.at.topic for one in found] == ["b", "b"]


@given(st.data())
def test_any_cluster(data: st.DataObject) -> None:
    nodes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=6, unique=True))
    targets = data.draw(st.lists(st.integers(1, 8), min_size=3, max_size=6, unique=True))
    racks = {node: data.draw(st.sampled_from(["", "a", "b"])) for node in targets}
    assignments = st.lists(st.sampled_from(nodes), min_size=1, max_size=min(3, len(nodes)), unique=True).map(tuple)
    current = topic("a", *data.draw(st.lists(assignments, max_size=12))) | topic(
        "b", *data.draw(st.lists(assignments, max_size=12))
    )
    found = after(current, moves(current, racks))
    for at, replicas in found.items():
        assert len(replicas) == len(set(replicas)) == len(current[at])
        assert set(replicas) <= set(targets)
    again = moves(found, racks)
    assert again == [], "a plan that was carried out is the end"
    if current and len(set(racks.values())) == 1:
        assert spread(found, targets)[0] <= 1


def _lines_run(work: Callable[[], object]) -> int:
    """Of the plan's code."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        nonlocal count
        if frame.f_code.co_filename != plan.__file__:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_the_work_grows_as_the_number_of_partitions_does() -> None:
    def work(count: int) -> int:
        current: Current = {}
        for index in range(count):
            current |= topic(f"t{index}", (1, 2, 3))
        return _lines_run(lambda: moves(current, dict.fromkeys((1, 2, 3, 4), "")))

    assert work(200) < 3 * work(100)
