"""Run many seeds, one after the other, in this process: `python -m tests.raft.simulation FIRST COUNT`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence

from .run import simulate


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    first, count, every = options.first, options.count, options.progress
    begin, failed = time.process_time(), 0
    stats: Counter[str] = Counter()
    for done, seed in enumerate(range(first, first + count), 1):
        report = simulate(seed)
        stats.update(report.stats)
        if not report.ok:
            failed += 1
            print(f"seed {seed}: {'; '.join(report.problems[:3])[:1000]}", flush=True)
        if every and done % every == 0 and done < count:
            print(f"{done} of {count} seeds, {failed} failed", flush=True)
    cpu_s = time.process_time() - begin
    print(f"{count} seeds, {failed} failed, {1000 * cpu_s / count:.0f} ms of CPU a seed")
    print(", ".join(f"{name} {number}" for name, number in sorted(stats.items())))
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.raft.simulation",
        description="Simulate the metadata quorum under random faults. A seed that fails is printed with what was "
        "broken, and fails again when it is run alone: FIRST is the seed then, COUNT is 1.",
        epilog="Exit status: 0 when no seed has failed, 1 when one has, 2 for wrong arguments. Seeds are independent: "
        "shards of them may run in processes side by side.",
    )
    parser.add_argument("first", metavar="FIRST", type=_at_least(0), help="the first seed")
    parser.add_argument("count", metavar="COUNT", type=_at_least(1), help="how many seeds, from FIRST on")
    parser.add_argument(
        "--progress",
        metavar="N",
        type=_at_least(0),
        default=1_000,
        help="report progress each N seeds; 0: never; default %(default)s",
    )
    return parser


def _at_least(lowest: int) -> Callable[[str], int]:
    def integer(text: str) -> int:
        value = int(text)
        if value < lowest:
            raise argparse.ArgumentTypeError(f"{value} is below {lowest}")
        return value

    return integer


if __name__ == "__main__":
    sys.exit(main())
