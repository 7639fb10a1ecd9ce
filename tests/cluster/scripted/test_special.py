"""Damage, lost disks, hostile peers and changes of voters, each alone; and defects that they must find."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import pytest
from msgspec.structs import replace

from streamlog.sim.faults import Fault, FaultKind, Hardware
from tests.raft.simulation import mutants as raft_mutants

from ..plan import FOLLOWER, LEADER, Plan
from ..run import Report, simulate
from .scripts import plain_plan

SEEDS = range(3)


def closing(plan: Plan) -> Plan:
    """Segments are closed each second."""
    topics = tuple(replace(topic, configs={**topic.configs, "segment.ms": "1000"}) for topic in plan.topics)
    return replace(plan, topics=topics)


def damage_plan(seed: int, kind: FaultKind, target: str) -> Plan:
    faults = [Fault(at, kind, target, "n1", 1.0) for at in (8.0, 11.0, 14.0)]
    return closing(plain_plan(seed, *faults))


def wiped_plan(seed: int) -> Plan:
    """A voter's disk is lost, and another one is killed once the vote has been restored."""
    wiped = Fault(7.0, FaultKind.POWER_WIPE, "n2", "n1", 0.5)
    return plain_plan(seed, wiped, Fault(13.0, FaultKind.CRASH, "n3", "n1", 3.0))


def hostile_plan(seed: int) -> Plan:
    nodes = ("n1", "n2", "n3")
    faults = [
        Fault(5.0 + place * 0.4, FaultKind.HOSTILE, nodes[place % 3], nodes[(place + 1) % 3]) for place in range(24)
    ]
    return plain_plan(seed, *faults)


def voters_plan(seed: int) -> Plan:
    """One observer may become a voter, another one stays an observer."""
    nodes = ("n1", "n2", "n3", "n4", "n5")
    killed = Fault(9.0, FaultKind.CRASH, LEADER, "n1", 2.0)
    return replace(plain_plan(seed, killed), nodes=nodes, hardware=Hardware.healthy(nodes), votes=True)


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
    assert report.stats["fault power_wipe"] == 1


def test_a_hostile_peer_changes_nothing() -> None:
    report = simulate(2, hostile_plan(2))
    assert report.violations == []
    assert report.stats["fault hostile"] == 24


@pytest.mark.parametrize("seed", SEEDS)
def test_voters_change_while_observers_follow(seed: int) -> None:
    report = simulate(seed, voters_plan(seed))
    assert report.violations == []
    assert report.stats["quorum_voters"] > 20


def is_found(plant: Callable[[], AbstractContextManager[object]], reports: Iterable[Callable[[], Report]]) -> bool:
    for run in reports:
        with plant():
            if not run().ok:
                return True
    return False


def test_terms_taken_from_anybody_are_found() -> None:
    assert is_found(raft_mutants.strangers_may_lead, [lambda: simulate(2, hostile_plan(2))])
