"""Bugs planted into leader and follower are found by the random lives: the checks can fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from streamlog.model import LeaderEpoch, Offset
from streamlog.replication.follower import PartitionFollower
from streamlog.replication.isr import Isr
from streamlog.replication.leader import PartitionLeader
from tests.replication.lives import ReplicatedLives

Patch = Callable[[pytest.MonkeyPatch], None]


def _advance_by(
    patch: pytest.MonkeyPatch, own: Callable[[PartitionLeader], Offset], end_of: Callable[[Any, Offset], Offset]
) -> None:
    """`own`: what the leader counts itself for; `end_of`: a follower, given that."""

    def advance(self: PartitionLeader) -> None:
        mine = own(self)
        lowest = min([mine, *(end_of(follower, mine) for follower in self._counted)])
        if self._enough_replicas and lowest > self.high_watermark:
            self.high_watermark = lowest
            self._settle()

    patch.setattr(PartitionLeader, "_advance", advance)


def leader_counts_what_is_written(patch: pytest.MonkeyPatch) -> None:
    _advance_by(patch, lambda self: self._log.log_end_offset, lambda one, mine: one.ackable_end or Offset(0))


def follower_reports_what_is_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionFollower, "ackable_end", property(lambda self: self._log.log_end_offset))


def acknowledged_before_replication(patch: pytest.MonkeyPatch) -> None:
    _advance_by(patch, lambda self: self._log.ackable_end, lambda one, mine: mine)


def no_divergence_check(patch: pytest.MonkeyPatch) -> None:
    def divergence(self: PartitionLeader, last_epoch: LeaderEpoch, fetch_offset: Offset) -> None:
        return None

    patch.setattr(PartitionLeader, "divergence", divergence)


def joins_without_having_caught_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionLeader, "_has_caught_up", lambda self, broker: self._may_join(broker))
    patch.setattr(Isr, "maximal", property(lambda self: self._committed))
    _advance_by(
        patch,
        lambda self: self._log.ackable_end,
        lambda one, mine: mine if one.ackable_end is None else one.ackable_end,
    )


@pytest.mark.parametrize(
    "plant",
    [
        leader_counts_what_is_written,
        follower_reports_what_is_written,
        acknowledged_before_replication,
        no_divergence_check,
        joins_without_having_caught_up,
    ],
)
def test_a_planted_bug_is_found(plant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    lives = settings(ReplicatedLives.TestCase.settings, phases=[Phase.generate], max_examples=2_000, database=None)
    with pytest.raises(Exception):  # noqa: B017, PT011  # which check finds it differs from bug to bug
        run_state_machine_as_test(ReplicatedLives, settings=lives)
