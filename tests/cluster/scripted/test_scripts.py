"""Scripted faults: what a few of them must do, whatever the dice; and failing seeds, cut short (`make sim SHRINK=`)."""

from __future__ import annotations

import itertools
import statistics

import pytest
from msgspec.structs import replace

from streamlog.model import PartitionId, TopicPartition
from streamlog.sim.faults import SURVIVABLE, Fault, FaultKind
from streamlog.sim.history import Outcome
from tests.cluster.scripted.scripts import BUSY, plain_plan

from ..checking.checks import PRODUCE
from ..plan import CONTROLLER, LEADER, PLAIN
from ..run import Report, simulate

DEATH_S = 10.0
SEEDS = 12
MEDIAN_S, WORST_S = 1.0, 2.0
"""Of the time in which nothing is written after a leader was killed."""


def longest_pause_s(report: Report) -> float:
    """Between two acknowledgements, around the first death."""
    assert report.history is not None
    died_at = report.deaths[0][0]
    partition = TopicPartition(PLAIN, PartitionId(0))
    done = sorted(
        row.completed
        for row in report.history.select(PRODUCE, Outcome.OK)
        if row.partition == partition and row.completed is not None
    )
    near = [time for time in done if died_at - 0.5 <= time <= died_at + 6]
    return max(later - earlier for earlier, later in itertools.pairwise(near))


@pytest.mark.parametrize("role", [LEADER, CONTROLLER])
def test_writing_goes_on_after_a_node_was_killed(role: str) -> None:
    """I19. What is not led by it does not wait at all; so it is the leader's death that is measured."""
    pauses = []
    for seed in range(SEEDS):
        report = simulate(seed, plain_plan(seed, Fault(DEATH_S, FaultKind.CRASH, role, "n1", 6.0)))
        assert report.violations == []
        pauses.append(longest_pause_s(report))
    assert statistics.median(pauses) <= MEDIAN_S, pauses
    assert max(pauses) <= WORST_S, pauses


@pytest.mark.parametrize("kind", SURVIVABLE)
def test_each_kind_of_fault_alone_is_survived(kind: FaultKind) -> None:
    report = simulate(1, plain_plan(1, Fault(6.0, kind, LEADER, "n2", 2.0), Fault(11.0, kind, CONTROLLER, "n3", 0.5)))
    assert report.violations == []
    assert report.stats[f"fault {kind.name.lower()}"] >= 1  # the second may find no controller


# What random search has found, cut short.

FULL = [Fault(5.0 + 3 * time, FaultKind.FULL_DISK, LEADER, "n1", 2.0) for time in range(4)]


def test_a_failed_write_makes_nothing_durable() -> None:
    """The round of group commit that came after it synced nothing, and counted all that had been written."""
    plan = plain_plan(3, *FULL)
    topics = (replace(plan.topics[0], partitions=3),)
    report = simulate(3, replace(plan, topics=topics, load=replace(BUSY, value_bytes_max=600)))
    assert report.violations == []
    assert report.stats["log_directory_offline"] == len(FULL)
