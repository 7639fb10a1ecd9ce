"""A clock that is wrong by more than the retention deletes nothing: FAULTS I1 against clock skew."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ..plan import FOLLOWER, LEADER
from ..run import simulate
from .fault_plans import skewed_plan


@pytest.mark.parametrize("target", [LEADER, FOLLOWER, "n1"])
def test_an_hour_ahead_deletes_nothing(target: str) -> None:
    report = simulate(5, skewed_plan(5, target))
    assert report.violations == []
    assert report.stats["clock_skewed"] == 1


def test_hours_behind_refuses_nothing() -> None:
    """With Kafka's default for records from the future, an hour; the leader's clock is two hours behind."""
    plan = skewed_plan(5, LEADER, jump=-6.2)
    configs = {**plan.topics[0].configs, "message.timestamp.after.max.ms": "3600000"}
    report = simulate(5, replace(plan, topics=(replace(plan.topics[0], configs=configs),)))
    assert report.violations == []
    assert report.history is not None
    refused = [row for row in report.history.rows if "timestamp" in str(row).lower()]
    assert refused == []
