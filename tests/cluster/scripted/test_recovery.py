"""A disk is lost, and another replica is stale: the one full copy leads, without anybody's hand (KIP-966)."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from msgspec.structs import replace

from streamlog.sim.faults import Fault, FaultKind, Hardware

from ..mutants import MUTANTS
from ..plan import Plan
from ..run import Report, simulate
from .scripts import BUSY, plain_plan

SEEDS = range(4)


def lost_disk_plan(seed: int) -> Plan:
    """Node 4 has no vote. Node 2 is down for a while and stale when all nodes lose power, and node 4 its disk."""
    stale = Fault(6.0, FaultKind.CRASH, "n2", "n1", 3.95)
    lost = Fault(10.0, FaultKind.POWER_ALL_WIPE, "n4", "n1", 0.5)
    plan = plain_plan(seed, stale, lost)
    nodes = ("n1", "n2", "n3", "n4")
    topics = (replace(plan.topics[0], partitions=4),)
    return replace(plan, nodes=nodes, hardware=Hardware.healthy(nodes), topics=topics, load=BUSY)


def run(mutant: str = "") -> list[Report]:
    with MUTANTS[mutant].plant() if mutant else nullcontext():
        return [simulate(seed, lost_disk_plan(seed)) for seed in SEEDS]


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_acknowledged_is_lost_where_a_full_copy_lives(seed: int) -> None:
    report = simulate(seed, lost_disk_plan(seed))
    assert report.violations == []
    assert report.stats["disks lost"] == 1


def test_the_first_live_replica_instead_of_the_longest_is_found() -> None:
    assert any(not report.ok for report in run("first_live_replica_leads"))
