"""Damage, lost disks, hostile peers, changes of voters, deletions: each alone (../test_mutants.py has the defects)."""

from __future__ import annotations

import pytest

from streamlog.sim.faults import FaultKind

from ..plan import FOLLOWER, LEADER
from ..run import simulate
from .fault_plans import (
    damage_plan,
    deleting_plan,
    false_answers_plan,
    hostile_plan,
    late_voter_plan,
    voters_plan,
    wiped_plan,
)

SEEDS = range(3)


@pytest.mark.parametrize("target", [LEADER, FOLLOWER])
@pytest.mark.parametrize("kind", [FaultKind.DAMAGE, FaultKind.CRASH_THEN_DAMAGE])
def test_damage_to_one_node_is_repaired(kind: FaultKind, target: str) -> None:
    report = simulate(1, damage_plan(1, kind, target if kind is FaultKind.DAMAGE else "n2"))
    assert report.violations == []
    assert report.stats["damages"] >= 2


@pytest.mark.parametrize("seed", SEEDS)
def test_a_voter_may_lose_its_disk(seed: int) -> None:
    report = simulate(seed, wiped_plan(seed))
    assert report.violations == []
    assert report.stats["disks lost"] == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_no_disk_is_lost_that_the_quorum_would_not_miss(seed: int) -> None:
    """It would be one too many: the other voter that has the log could not prove it to the one that has not."""
    report = simulate(seed, late_voter_plan(seed))
    assert report.violations == []
    assert (report.stats["fault power_wipe"], report.stats["disks lost"]) == (1, 0)


def test_a_hostile_peer_changes_nothing() -> None:
    report = simulate(2, hostile_plan(2))
    assert report.violations == []
    assert report.stats["fault hostile"] == 24


@pytest.mark.parametrize("seed", SEEDS)
def test_false_answers_stop_no_node(seed: int) -> None:
    report = simulate(seed, false_answers_plan(seed))
    assert report.violations == []
    assert report.stats["false answers"] > 50


@pytest.mark.parametrize("seed", SEEDS)
def test_voters_change_while_observers_follow(seed: int) -> None:
    report = simulate(seed, voters_plan(seed))
    assert report.violations == []
    assert report.stats["voters changed"] > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_deleted_records_stay_deleted_while_leaders_fail(seed: int) -> None:
    report = simulate(seed, deleting_plan(seed))
    assert report.violations == []
    assert report.stats["deletions"] > 3
