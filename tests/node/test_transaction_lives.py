"""Random lives of transactions, and the bugs that they and a story find when they are planted."""

from __future__ import annotations

import pytest

from streamlog.errors import StreamlogError
from tests.coordinator.test_transactions import Bench, check_that_no_marker_comes_before_its_decision_is_replicated
from tests.node.transaction_lives import live
from tests.node.transaction_mutants import (
    Mutant,
    epoch_not_bumped,
    marker_before_the_decision_is_durable,
    retry_of_the_end_decided_anew,
    verification_skipped,
)

SEEDS_MAX = 6
"""Within so many lives each planted bug is found."""


@pytest.mark.parametrize("seed", range(6))
def test_all_or_nothing_whatever_happens(seed: int) -> None:
    life = live(seed)
    assert life.stats["committed"] > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6, 106))
def test_all_or_nothing_in_many_lives(seed: int) -> None:
    live(seed)


@pytest.mark.parametrize("mutant", [epoch_not_bumped, verification_skipped, retry_of_the_end_decided_anew])
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    with mutant():
        for seed in range(SEEDS_MAX):
            try:
                live(seed)
            except (AssertionError, StreamlogError):  # a check failed, or what is held cannot even be read
                return
    pytest.fail("not found")


def test_a_marker_before_its_decision_is_found() -> None:
    bench = Bench()
    try:
        with marker_before_the_decision_is_durable(), pytest.raises(AssertionError, match="before the decision"):
            check_that_no_marker_comes_before_its_decision_is_replicated(bench)
    finally:
        bench.settle()  # who waits gets an answer
        bench.end()
        bench.rig.stop()
        bench.rig.machine.close()
