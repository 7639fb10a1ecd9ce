"""Publish calls that are gathered keep, each of them, what they say; planted defects of the gathering are found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest

from streamlog.errors import LeaderNotAvailableError
from streamlog.services.records.gathering import gathered_writes, own_appends
from streamlog.services.records.gathering.batch_write import WriteResult
from streamlog.services.records.gathering.lane import WaitingWrite

from .publish_run import simulate_publishing

SAMPLE = 12
SHARD = 6
SEEDS = 132
LONG_SHARD = 40
MUTANT_SEEDS = 6


def check(first: int, count: int) -> None:
    stats: Counter[str] = Counter()
    for seed in range(first, first + count):
        report = simulate_publishing(seed)
        assert report.ok, f"seed {seed}: {[str(violation) for violation in report.violations]}"
        stats.update(report.stats)
    # A simulation in which nothing happens proves nothing.
    assert stats["groups"] > 20 * count
    assert stats["gathered"] > 100 * count


@pytest.mark.parametrize("first", range(0, SAMPLE, SHARD))
def test_calls_keep_what_they_say(first: int) -> None:
    check(first, SHARD)


@pytest.mark.long
@pytest.mark.parametrize("first", range(SAMPLE, SEEDS, LONG_SHARD))
def test_calls_keep_what_they_say_in_more_seeds(first: int) -> None:
    check(first, LONG_SHARD)


def test_a_seed_is_a_reproduction() -> None:
    assert simulate_publishing(3).fingerprint == simulate_publishing(3).fingerprint


def everyone_has_the_first_offset() -> AbstractContextManager[object]:
    def mutant(writes: Sequence[WaitingWrite], appended: Any) -> list[WriteResult]:
        return [WriteResult(appended.first_offset, appended.log_append_time_ms) for _ in writes]

    return mock.patch.object(own_appends, "_results", mutant)


def late_is_not_written() -> AbstractContextManager[object]:
    """A call whose deadline passes says that nothing was written, whether its group was sent or not."""

    def mutant(one: WaitingWrite) -> None:
        one.failed(LeaderNotAvailableError("the deadline passed"))

    return mock.patch.object(gathered_writes, "_expire", mutant)


@pytest.mark.parametrize("plant", [everyone_has_the_first_offset, late_is_not_written])
def test_planted_defects_are_found(plant: Callable[[], AbstractContextManager[object]]) -> None:
    for seed in range(MUTANT_SEEDS):
        with plant():
            if not simulate_publishing(seed).ok:
                return
    pytest.fail(f"{plant.__name__} is found by none of {MUTANT_SEEDS} seeds")
