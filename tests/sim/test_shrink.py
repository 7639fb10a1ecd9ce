"""Shrinking of plans, and the history of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.model import LeaderEpoch, Offset, PartitionId, ProducerId, TopicPartition
from streamlog.sim.faults import Fault, FaultKind
from streamlog.sim.history import OperationHistory, Outcome
from streamlog.sim.shrink import shrink

FAULTS = st.builds(
    Fault,
    st.integers(1, 30).map(lambda tenths: tenths + 0.123),
    st.sampled_from(FaultKind),
    st.sampled_from(["n0", "n1"]),
    st.just("n2"),
    st.sampled_from((0.0, 0.517, 2.25)),
)


@given(st.lists(FAULTS, min_size=1, max_size=25), st.data())
@settings(deadline=None, max_examples=60)
def test_what_is_left_is_what_is_needed(plan: list[Fault], data: st.DataObject) -> None:
    needed = {
        (fault.kind, fault.target) for fault in data.draw(st.lists(st.sampled_from(plan), min_size=1, max_size=3))
    }

    def fails(trial: Sequence[Fault]) -> bool:
        return needed <= {(fault.kind, fault.target) for fault in trial}

    shrunk = shrink(plan, fails)
    assert fails(shrunk.plan)
    assert len(shrunk.plan) == len(needed)
    assert all(fault.at == round(fault.at, 1) for fault in shrunk.plan)
    assert shrunk.runs <= 250


def test_milder_kinds_and_rounder_numbers_are_preferred() -> None:
    plan = [Fault(1.234, FaultKind.SLOW_THEN_POWER, "n0", "n1", 2.345), Fault(3.0, FaultKind.RESET, "n0", "n1")]
    deaths = {FaultKind.SLOW_THEN_POWER, FaultKind.POWER_STAGGERED, FaultKind.POWER_ALL, FaultKind.POWER}
    shrunk = shrink(plan, lambda trial: any(fault.kind in deaths for fault in trial))
    assert shrunk.plan == (Fault(1.2, FaultKind.POWER, "n0", "n1", 2.3),)
    assert shrunk.source("PLAN") == "PLAN = [\n    Fault(1.2, FaultKind.POWER, 'n0', 'n1', 2.3),\n]\n"


def test_a_violation_without_faults_shrinks_to_none() -> None:
    assert shrink([Fault(1.0, FaultKind.CRASH, "n0")] * 5, lambda trial: True).plan == ()


def test_runs_are_bounded() -> None:
    plan = [Fault(float(i), FaultKind.CRASH, "n0") for i in range(100)]
    asked = []

    def fails(trial: Sequence[Fault]) -> bool:
        asked.append(len(trial))
        return len(trial) >= 90

    shrunk = shrink(plan, fails, runs_max=20)
    assert shrunk.runs == len(asked) == 20
    assert len(shrunk.plan) >= 90


def test_a_plan_that_does_not_fail_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fail"):
        shrink([Fault(1.0, FaultKind.CRASH, "n0")], lambda trial: False)


def test_rows_are_closed_once_and_open_ones_are_unknown() -> None:
    now = [0.0]
    history = OperationHistory(lambda: now[0])
    partition = TopicPartition("t", PartitionId(0))
    first = history.invoke("c0", "produce", partition=partition, producer_id=ProducerId(7), sequence=0, value=b"v0")
    now[0] = 0.5
    history.ok(first, offset=Offset(3), epoch=LeaderEpoch(1))
    second = history.invoke("c0", "produce", partition=partition, sequence=1, value=b"\xff1")
    history.fail(second, "NOT_LEADER")
    third = history.invoke("c1", "produce", value=b"v2")
    fourth = history.invoke("c1", "poll")
    history.info(fourth, "DEADLINE_EXCEEDED")
    with pytest.raises(ValueError, match="closed twice"):
        history.ok(first)
    assert [row.outcome for row in history.rows] == [Outcome.OK, Outcome.FAIL, Outcome.INFO, Outcome.INFO]
    assert (first.invoked, first.completed, first.offset, first.epoch) == (0.0, 0.5, 3, 1)
    assert (third.completed, fourth.completed) == (None, 0.5)
    assert list(history.select("produce", Outcome.OK)) == [first]
    assert [row.value for row in history.select("produce")] == [b"v0", b"\xff1", b"v2"]
    lines = [json.loads(line) for line in history.lines()]
    assert lines[0]["partition"] == "t-0"
    assert lines[0]["outcome"] == "ok"
    assert lines[1]["value"] == "\\xff1"
    assert "offset" not in lines[1]
