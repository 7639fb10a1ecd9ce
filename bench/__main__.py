"""python -m bench [--output table|json] [PART ...]: all parts, or the given ones.

The memory allocator is configured to keep freed memory, as any process that moves batches should do: by default glibc
returns a batch's memory to the kernel, and the page faults of the next batch can cost more than the work itself on some
virtual machines. `--default-allocator` measures without.
"""

from __future__ import annotations

import argparse
import os
import sys

from bench.figures import as_json, print_table
from bench.registry import PARTS, run

ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "1073741824"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Benchmarks of streamlog.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of {', '.join(PARTS)}; default: all")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument("--default-allocator", action="store_true", help="do not configure the allocator")
    options = parser.parse_args()
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"there is no part {part!r}; there are {', '.join(PARTS)}")
    if not options.default_allocator and not ALLOCATOR.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, "-m", "bench", *sys.argv[1:]], {**os.environ, **ALLOCATOR})
    figures = {}
    for part in options.parts or PARTS:
        figures[part] = run(part)
        if options.output == "table":
            print_table(part, figures[part])
    if options.output == "json":
        print(as_json(figures))


if __name__ == "__main__":
    main()
