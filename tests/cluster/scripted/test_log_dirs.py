"""Replicas move between the log directories of their nodes all the time, under every fault of the simulation."""

from __future__ import annotations

import pytest

from streamlog.storage.directories import log_move

from ..run import simulate
from .fault_plans import directories_plan

SEEDS = range(8)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The logs of a run are small: a copy takes many chunks, and a swap copies few bytes."""
    monkeypatch.setattr(log_move, "CHUNK_BYTES", 1_000)
    monkeypatch.setattr(log_move, "SWAP_BYTES", 200)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_while_replicas_move_between_directories(seed: int) -> None:
    report = simulate(seed, directories_plan(seed))
    assert report.violations == []
    assert report.stats["log_moved"] > 0
