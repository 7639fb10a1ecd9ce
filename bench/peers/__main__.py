"""python -m bench.peers [--output table|json] [--rounds 5] [--write] [PART ...]: Spark's sources, or clients' cells."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from collections.abc import Sequence

from msgspec.structs import asdict

from bench.__main__ import ALLOCATOR
from bench.figures import Figure, machine, print_table
from bench.peers import clients
from tests.interop.real_kafka import why_not

_SPARK = "spark"
_PARTS = (*clients.PARTS, _SPARK)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers", description="Comparison of streamlog with other systems."
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of {', '.join(_PARTS)}; default: all")
    parser.add_argument("--rounds", type=int, default=clients.ROUNDS, help="after one to warm up (not of spark)")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument("--write", action="store_true", help="the clients' cells into docs/performance.md")
    options = parser.parse_args()
    for part in options.parts:
        if part not in _PARTS:
            parser.error(f"there is no part {part!r}; there are {', '.join(_PARTS)}")
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: at least one is needed")
    if not ALLOCATOR.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, "-m", "bench.peers", *sys.argv[1:]], {**os.environ, **ALLOCATOR})
    parts = options.parts or _PARTS
    of_clients = [part for part in parts if part != _SPARK]
    if options.write and importlib.util.find_spec("matplotlib") is None:
        parser.error("--write draws a picture, and there is no matplotlib: pip install 'streamlog[bench]'")

    def on_part(part: str, rows: Sequence[clients.Row]) -> None:
        if options.write:
            from bench.peers import report

            report.write({part: rows}, options.rounds)

    by_part = clients.run(options.rounds, of_clients, on_part) if of_clients else {}
    rows = [row for of in by_part.values() for row in of]
    if options.output == "table" and rows:
        clients.print_rows(rows)
    figures = _spark() if _SPARK in parts else []
    if options.output == "table" and figures:
        print_table("peers: spark", figures)
    if options.output == "json":
        found = {"clients": [asdict(row) for row in rows], _SPARK: [asdict(figure) for figure in figures]}
        print(json.dumps({"machine": machine(), "parts": found}, indent=2))


def _spark() -> Sequence[Figure]:
    missing = why_not()
    if missing is None and importlib.util.find_spec("pyspark") is None:
        missing = "no pyspark: make test-spark installs it, or pip install 'streamlog[spark]'"
    if missing is not None:
        print(f"without Spark: {missing}", file=sys.stderr)
        return []
    from bench.peers import spark

    return spark.run()


if __name__ == "__main__":
    main()
