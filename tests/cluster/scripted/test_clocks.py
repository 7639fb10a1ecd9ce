"""A clock that is wrong by more than the retention deletes nothing: FAULTS I1 against clock skew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from unittest import mock

import pytest
from msgspec.structs import replace

from streamlog.node.quorum_clock import QuorumClock
from streamlog.sim.faults import Fault, FaultKind
from streamlog.storage.segments.segment import Segment

from ..plan import FOLLOWER, LEADER, Plan
from ..run import simulate
from .scripts import BUSY, plain_plan

AN_HOUR_AHEAD = 4.6
"""Of a CLOCK_JUMP: (lasts - 1) * 1000 s."""


def skewed_plan(target: str, jump: float = AN_HOUR_AHEAD) -> Plan:
    """Half an hour of retention, looked at twice a second; the clock jumps while records are seconds old."""
    plan = plain_plan(5, Fault(7.0, FaultKind.CLOCK_JUMP, target, "n1", jump))
    topic = plan.topics[0]
    configs = {**topic.configs, "retention.ms": "1800000", "segment.ms": "1500"}
    settings = {**plan.settings, "log.retention.check.interval.ms": "500"}
    return replace(plan, topics=(replace(topic, configs=configs),), settings=settings, load=BUSY)


@contextmanager
def by_the_wall_clock_alone() -> Iterator[None]:
    """As if nodes did not compare clocks, and segments did not know when they were appended to."""
    with ExitStack() as patches:
        own = lambda self: self._own.wall_ms()  # noqa: E731
        patches.enter_context(mock.patch.object(QuorumClock, "wall_ms", own))
        patches.enter_context(mock.patch.object(QuorumClock, "may_delete_by_time", True))
        patches.enter_context(
            mock.patch.object(Segment, "appended_s", property(lambda self: None, lambda self, at: None))
        )
        yield


@pytest.mark.parametrize("target", [LEADER, FOLLOWER, "n1"])
def test_an_hour_ahead_deletes_nothing(target: str) -> None:
    report = simulate(5, skewed_plan(target))
    assert report.violations == []
    assert report.stats["clock_skewed"] == 1


def test_hours_behind_refuses_nothing() -> None:
    """With Kafka's default for records from the future, an hour; the leader's clock is two hours behind."""
    plan = skewed_plan(LEADER, jump=-6.2)
    configs = {**plan.topics[0].configs, "message.timestamp.after.max.ms": "3600000"}
    report = simulate(5, replace(plan, topics=(replace(plan.topics[0], configs=configs),)))
    assert report.violations == []
    assert report.history is not None
    refused = [row for row in report.history.rows if "timestamp" in str(row).lower()]
    assert refused == []


@pytest.mark.parametrize("defect", [False, True])
def test_retention_by_the_wall_clock_alone_is_found(*, defect: bool) -> None:
    with by_the_wall_clock_alone() if defect else nullcontext():
        report = simulate(5, skewed_plan(LEADER))
    assert report.ok != defect
