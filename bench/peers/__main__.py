"""python -m bench.peers [--output table|json]."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys

from bench.__main__ import ALLOCATOR
from bench.figures import as_json, print_table
from bench.peers import spark
from tests.interop.real_kafka import why_not

PARTS = {"spark": spark.run}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers", description="Comparison of streamlog with other systems."
    )
    parser.add_argument("--output", choices=("table", "json"), default="table")
    options = parser.parse_args()
    missing = why_not()
    if missing is None and importlib.util.find_spec("pyspark") is None:
        missing = "no pyspark: make test-spark installs it, or pip install 'streamlog[spark]'"
    if missing is not None:
        raise SystemExit(missing)
    if not ALLOCATOR.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, "-m", "bench.peers", *sys.argv[1:]], {**os.environ, **ALLOCATOR})
    figures = {name: part() for name, part in PARTS.items()}
    if options.output == "json":
        print(as_json(figures))
        return
    for name, some in figures.items():
        print_table(f"peers: {name}", some)


if __name__ == "__main__":
    main()
