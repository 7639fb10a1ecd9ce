"""Each planted defect is found within its number of seeds: a simulation that lets one pass is no proof of anything."""

from __future__ import annotations

import pytest

from .mutants import MUTANTS
from .run import simulate

QUICK = [name for name, mutant in MUTANTS.items() if mutant.seeds and not mutant.long]
LONG = [name for name, mutant in MUTANTS.items() if mutant.long]


def find(name: str) -> None:
    mutant = MUTANTS[name]
    for seed in mutant.search:
        with mutant.plant():
            report = simulate(seed)
        if not report.ok:
            return
    pytest.fail(f"{name} is not found in the seeds {mutant.search}")


@pytest.mark.parametrize("name", QUICK)
def test_random_search_finds(name: str) -> None:
    find(name)


@pytest.mark.rounds
@pytest.mark.parametrize("name", LONG)
def test_longer_search_finds(name: str) -> None:
    find(name)


def test_each_is_found_or_said_to_be_masked() -> None:
    for name, mutant in MUTANTS.items():
        assert bool(mutant.seeds) != bool(mutant.masked), name
