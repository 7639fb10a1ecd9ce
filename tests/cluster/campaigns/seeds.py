"""Runs of several seeds of a simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from tests.cluster.run import Report


def stats_of(simulate: Callable[[int], Report], seeds: Iterable[int]) -> Counter[str]:
    """The sum of their statistics; fails at the first seed with a violation."""
    stats: Counter[str] = Counter()
    for seed in seeds:
        report = simulate(seed)
        assert report.ok, f"seed {seed}: {[str(violation) for violation in report.violations]}"
        stats.update(report.stats)
    return stats
