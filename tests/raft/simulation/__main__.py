"""Run many seeds: `python -m tests.raft.simulation FIRST COUNT`."""

from __future__ import annotations

import sys
import time
from collections import Counter

from .run import simulate


def main() -> int:
    first, count = int(sys.argv[1]), int(sys.argv[2])
    begin, failed = time.process_time(), 0
    stats: Counter[str] = Counter()
    for seed in range(first, first + count):
        report = simulate(seed)
        stats.update(report.stats)
        if not report.ok:
            failed += 1
            print(f"seed {seed}: {'; '.join(report.problems[:3])[:1000]}", flush=True)
    cpu_s = time.process_time() - begin
    print(f"{count} seeds, {failed} failed, {1000 * cpu_s / count:.0f} ms of CPU a seed")
    print(", ".join(f"{name} {number}" for name, number in sorted(stats.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
