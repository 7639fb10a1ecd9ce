"""The fuzzer from the command line (`make fuzz`).

python -m tests.fuzz --minutes 5 [--seed 7] [--port 27100]
python -m tests.fuzz --replay FILE...       calls of an earlier run, one after the other, on a cluster of their own
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .calls import Caller
from .catalogue import methods
from .cluster import FuzzedCluster
from .report import load
from .session import Limits, run


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Hostile messages to every method.")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, help="default: another one each time")
    parser.add_argument("--port", type=int, default=0, help="of the first node; 0: where there is room")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--rss-mb", type=int, default=300, help="how much a node may grow")
    parser.add_argument("--cases", type=Path, default=Path("fuzz-cases"), help="where failing calls are written to")
    parser.add_argument("--only", default="", metavar="TEXT", help="methods whose path holds this, such as Raft")
    parser.add_argument("--replay", type=Path, nargs="+", metavar="FILE")
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="streamlog-fuzz-") as scratch,
        FuzzedCluster(Path(scratch) / "cluster", options.port) as cluster,
    ):
        if options.replay:
            return _replay(cluster, options.replay)
        seed = random.randrange(1 << 31) if options.seed is None else options.seed
        print(f"seed {seed}, {options.minutes:g} minutes, nodes at {','.join(cluster.addresses)}", flush=True)
        limits = Limits(seconds=options.minutes * 60, threads=options.threads, rss_mb=options.rss_mb, only=options.only)
        report = run(cluster, seed, limits, options.cases)
    for line in report.lines():
        print(line)
    return 0 if report.ok else 1


def _replay(cluster: FuzzedCluster, files: Sequence[Path]) -> int:
    caller = Caller(cluster.addresses, methods())
    failed = False
    for path in files:
        case = load(path)
        outcome = caller.call(case)
        troubles = [*cluster.troubles()]
        failed = failed or outcome.crashed or bool(troubles)
        print(f"{path}: {case.method} {case.shape}: {outcome.status} {outcome.reason} {outcome.message}")
        for trouble in troubles:
            print(f"  {trouble}")
    caller.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
