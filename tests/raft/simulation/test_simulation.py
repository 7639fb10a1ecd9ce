"""Two thousand seeds of the quorum in virtual time (simulation/), in shards that run side by side: a sample here, the
rest with `long`.

`make sim-raft SEEDS=20000` runs more. A seed that fails is a reproduction: `python -m tests.raft.simulation SEED 1`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from .__main__ import main
from .plan import for_untouched, make_plan
from .run import simulate
from .untouched import UntouchedSimulation

ROOT = Path(__file__).parents[3]
SAMPLE = 800
SEEDS = 2_000
SHARD = 100


@pytest.mark.parametrize("first", range(0, SAMPLE, SHARD))
def test_nothing_that_must_hold_is_broken(first: int) -> None:
    check(first)


@pytest.mark.long
@pytest.mark.parametrize("first", range(SAMPLE, SEEDS, SHARD))
def test_nothing_that_must_hold_is_broken_in_more_seeds(first: int) -> None:
    check(first)


def check(first: int) -> None:
    stats: Counter[str] = Counter()
    for seed in range(first, first + SHARD):
        report = simulate(seed)
        assert report.ok, f"seed {seed}: {report.problems}"
        stats.update(report.stats)
    _has_tested_something(stats)


def _has_tested_something(stats: Counter[str]) -> None:
    """A simulation in which nothing happens proves nothing."""
    assert stats["completed"] > 8 * SHARD
    assert stats["became_leader"] > 1.5 * SHARD
    happened = ("snapshot_taken", "snapshot_installed", "quorum_lost", "voter changes", "wiped", "stopped by its disk")
    faults = ("crash", "power_cut", "blackout", "one_way_cut", "isolate", "reset", "slow_network", "slow_disk")
    others = ("disk_error", "pause", "snapshot", "clock_jump", "transfer", "depose")
    for name in (*happened, *faults, *others):
        assert stats[name] > 0, name


def test_a_seed_is_a_reproduction() -> None:
    """In every process, whatever the hashes of strings are there."""
    code = "from tests.raft.simulation.run import simulate; print([simulate(s).fingerprint for s in (1, 5, 11)])"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "77")
    }
    assert len(printed) == 1
    assert printed == {f"{[simulate(seed).fingerprint for seed in (1, 5, 11)]}\n"}


def test_the_untouched_library_fails_in_the_same_simulation() -> None:
    for seed in range(300):
        report = simulate(seed, for_untouched(make_plan(seed)), UntouchedSimulation)
        if not report.ok:
            return
    pytest.fail("300 seeds without a failure of the untouched library")


def test_seeds_are_run_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["7", "2", "--progress", "1"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("1 of 2 seeds, 0 failed\n2 seeds, 0 failed, ")


@pytest.mark.parametrize("arguments", [[], ["0"], ["0", "many"], ["0", "0"], ["--", "-1", "5"], ["0", "5", "6"]])
def test_wrong_arguments_are_answered_with_the_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: python -m tests.raft.simulation" in capsys.readouterr().err
