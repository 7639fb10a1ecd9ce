"""Seeds of the whole cluster in virtual time, in shards that run side by side: a sample here, the rest with `long`.

`make sim SEEDS=2000` runs more, `make sim SEED=7` prints the story of one, `make sim SHRINK=7` makes a failing plan
short enough for test_scripts.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from .plan import DRAWN, END_S
from .run import simulate

ROOT = Path(__file__).parent.parent.parent
SAMPLE = 90
SEEDS = 300
SHARD = 15
LONG_SHARD = 60
REPEATED = (2, 5, 12)
FOUND = {
    1000852: "two base offsets in a row damaged: the repair took the first batch for the second",
    1001107: "a removed voter led on, and decided without its own command in flight: all nodes stopped",
    1001285: "the operator raised metadata.version before the plan let him",
    1002294: "damage and a power cut of all nodes, at a level that cannot say whose log was cut",
    1003797: "a leader that learns late of its end has records that its successor has deleted",
    1004291: "damage to what a replica has reported, before its leader has counted the report",
    1102437: "a leader in whose log a leader epoch is in doubt had its followers cut their sound logs",
    2000464: "an older leader epoch, damaged above the recovery point, was believed by recovery",
    2007192: "a repair fetched a changed base offset and the lost header behind it one by one, and neither fitted",
    2004382: "a new leader deleted all up to a high watermark that was behind what was acknowledged",
    2018216: "a follower read the last batches of segments that compaction had removed meanwhile",
    2053067: "one log damaged, the end of the other one cut: a partition waits for an operator, whom the plan lacked",
    2054517: "behind a damaged batch, one whose damaged offset was that batch's: read in its place",
    2060403: "of two equal logs the one led whose records before an acknowledged start were not deleted",
    2060556: "the last batches of a removed log were read from the files of the one created since",
    2087753: "a consumer asked a slow node for topics created a second ago, and the plan's client ended with the error",
    2091634: "a damaged epoch above its leader's own was copied; when it was cut off again, its end had counted",
    2101304: "two base offsets in a row each that of the next batch: the second batch, which joins, was believed",
    2000695: "a disk is lost after the report that its leader counts later",
}
"""Seeds that have found something, in the product or in what checks it."""


def check(first: int, count: int) -> Counter[str]:
    stats: Counter[str] = Counter()
    for seed in range(first, first + count):
        report = simulate(seed)
        assert report.ok, f"seed {seed}: {[str(violation) for violation in report.violations]}"
        assert report.virtual_s > END_S - 1  # to its end; timers may fire a little early
        stats.update(report.stats)
    return stats


@pytest.mark.parametrize("first", range(0, SAMPLE, SHARD))
def test_nothing_that_must_hold_is_broken(first: int) -> None:
    stats = check(first, SHARD)
    # A simulation in which nothing happens proves nothing.
    assert stats["sends ok"] > 20 * SHARD
    assert stats["polled"] > 40 * SHARD
    assert sum(stats[f"fault {kind.name.lower()}"] for kind in DRAWN) > 5 * SHARD


@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_have_found_something(seed: int) -> None:
    check(seed, 1)


@pytest.mark.long
@pytest.mark.parametrize("first", range(SAMPLE, SEEDS, LONG_SHARD))
def test_nothing_that_must_hold_is_broken_in_more_seeds(first: int) -> None:
    stats = check(first, LONG_SHARD)
    for kind in DRAWN:
        assert stats[f"fault {kind.name.lower()}"] > 0, kind


def test_a_seed_is_a_reproduction() -> None:
    """In every process, whatever the hashes of strings are there."""
    code = f"from tests.cluster.run import simulate; print([simulate(seed).fingerprint for seed in {REPEATED}])"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "77")
    }
    assert printed == {f"{[simulate(seed).fingerprint for seed in REPEATED]}\n"}
