"""Seeds of groups on a cluster under faults, a sample here and more with `long`; planted defects.

`python -m tests.cluster.groups.group_run --seeds 5000` runs more, `--seed 7` prints the story of one.
"""

from __future__ import annotations

import pytest

from tests.cluster.campaigns.seeds import stats_of

from .group_mutants import MUTANTS
from .group_plan import Event
from .group_run import simulate_groups

SAMPLE = 45
SEEDS = 300
SHARD = 15
REPEATED = (1, 8)


@pytest.mark.parametrize("first", range(0, SAMPLE, SHARD))
def test_nothing_that_must_hold_of_groups_is_broken(first: int) -> None:
    check(first)


@pytest.mark.long
@pytest.mark.parametrize("first", range(SAMPLE, SEEDS, SHARD))
def test_nothing_that_must_hold_of_groups_is_broken_in_more_seeds(first: int) -> None:
    check(first)


def check(first: int) -> None:
    stats = stats_of(simulate_groups, range(first, first + SHARD))
    # A simulation in which nothing happens proves nothing.
    assert stats["sends ok"] > 40 * SHARD
    assert stats["commits"] > 40 * SHARD
    assert stats["partitions got"] > 15 * SHARD
    assert sum(stats[f"member {event.name.lower()}"] for event in Event) > 2 * SHARD


def test_a_commit_may_wait_for_a_node_that_lost_its_power() -> None:
    """Until its connection is known to be broken: a group is calm after that."""
    assert simulate_groups(4487).violations == []


def test_a_topic_is_deleted_while_its_partitions_are_assigned() -> None:
    """To a member whose response no longer names them: it cannot revoke them."""
    assert simulate_groups(69).violations == []


def test_a_seed_of_groups_is_a_reproduction() -> None:
    first, second = ([simulate_groups(seed).fingerprint for seed in REPEATED] for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", [name for name, mutant in MUTANTS.items() if not mutant.masked])
def test_random_search_finds_in_groups(name: str) -> None:
    assert MUTANTS[name].is_found_by(simulate_groups)
