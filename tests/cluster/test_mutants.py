"""Each planted defect is found within its number of seeds: a simulation that lets one pass is no proof of anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from .groups import group_mutants
from .mutants import MUTANTS
from .run import simulate
from .special import special_mutants
from .transactions import transaction_mutants

QUICK = [name for name, mutant in MUTANTS.items() if mutant.seeds and not mutant.long]
LONG = [name for name, mutant in MUTANTS.items() if mutant.long]


@pytest.mark.parametrize("name", QUICK)
def test_random_search_finds(name: str) -> None:
    assert MUTANTS[name].is_found_by(simulate)


@pytest.mark.parametrize("name", special_mutants.MUTANTS)
def test_faults_at_given_moments_find(name: str) -> None:
    """And it is the defect that is found: without it the first of these seeds passes."""
    mutant = special_mutants.MUTANTS[name]
    assert mutant.simulate(mutant.first).violations == []
    assert mutant.is_found_by(mutant.simulate)


@pytest.mark.rounds
@pytest.mark.parametrize("name", LONG)
def test_longer_search_finds(name: str) -> None:
    assert MUTANTS[name].is_found_by(simulate)


def test_each_is_found_or_said_to_be_masked() -> None:
    for name, mutant in MUTANTS.items():
        assert bool(mutant.seeds) != bool(mutant.masked), name


@pytest.mark.parametrize(
    "mutants", [MUTANTS, special_mutants.MUTANTS, group_mutants.MUTANTS, transaction_mutants.MUTANTS]
)
def test_each_can_be_planted(mutants: Mapping[str, Any]) -> None:
    """What it replaces exists under that name; otherwise it would be found for the wrong reason."""
    for mutant in mutants.values():
        with mutant.plant():
            pass
