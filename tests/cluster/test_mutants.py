"""Each planted defect is found within its number of seeds: a simulation that lets one pass is no proof of anything."""

from __future__ import annotations

import pytest

from .mutants import MUTANTS
from .run import simulate


@pytest.mark.parametrize("name", [name for name, mutant in MUTANTS.items() if not mutant.masked])
def test_random_search_finds(name: str) -> None:
    mutant = MUTANTS[name]
    for seed in range(mutant.seeds):
        with mutant.plant():
            report = simulate(seed)
        if not report.ok:
            return
    pytest.fail(f"{name} is not found in {mutant.seeds} seeds")
