"""python -m bench.growth [PART ...] [--values 1,100,1000] [--output table|json] [--plot FOLDER]."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.__main__ import ALLOCATOR
from bench.figures import machine
from bench.growth import plot
from bench.growth.parts import PARTS, Growth, Point
from bench.scratch import scratch
from streamlog.ports.system import run as run_loop


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description="How cost grows.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of {', '.join(PARTS)}; default: all")
    parser.add_argument("--values", help="comma-separated, of one PART: instead of its own")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help="also draw pictures there; needs matplotlib")
    options = parser.parse_args()
    for name in options.parts:
        if name not in PARTS:
            parser.error(f"there is no part {name!r}; there are {', '.join(PARTS)}")
    try:
        values = _values(options.parts, options.values)
    except ValueError as error:
        parser.error(str(error))
    missing = plot.why_not() if options.plot else None
    if missing is not None:
        raise SystemExit(missing)
    if not ALLOCATOR.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, "-m", "bench.growth", *sys.argv[1:]], {**os.environ, **ALLOCATOR})
    found = []
    for name in options.parts or PARTS:
        growth = _measure(name, values or PARTS[name].values)
        found.append(growth)
        if options.output == "table":
            _print(growth)
        if options.plot:
            print(f"{plot.draw(growth, options.plot)}", file=sys.stderr)
    if options.output == "json":
        print(json.dumps({"machine": machine(), "parts": [_as_dict(growth) for growth in found]}, indent=2))


def _values(parts: Sequence[str], given: str | None) -> tuple[int, ...] | None:
    """ValueError."""
    if given is None:
        return None
    if len(parts) != 1:
        raise ValueError("--values are those of one PART: name it")
    values = tuple(int(value) for value in given.split(",") if value.strip().isdecimal())
    largest = PARTS[parts[0]].largest
    if len(values) != len(given.split(",")) or not all(1 <= value <= largest for value in values):
        raise ValueError(f"--values {given}: give numbers from 1 to {largest}, separated by commas")
    return values


def _measure(name: str, values: Sequence[int]) -> Growth:
    part, points = PARTS[name], []
    for value in values:
        print(f"{name}: {value:,} {part.varied}, load average {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
        with scratch(f"growth-{name}") as base:
            found = run_loop(part.points(base, value))
        points += [Point(value=at, columns=columns) for at, columns in found.items()]
    return Growth(part=name, varied=part.varied, points=points)


def _print(growth: Growth) -> None:
    """A row a column, a column a value: values are few."""
    table = Table(title=f"growth: {growth.part}", title_justify="left")
    table.add_column(growth.varied)
    for point in growth.points:
        table.add_column(f"{point.value:,}", justify="right")
    for name in growth.names:
        cells = [point.columns.get(name) for point in growth.points]
        table.add_row(name, *("" if cell is None else _number(cell) for cell in cells))
    Console(width=None if os.isatty(1) else 120).print(table)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"


def _as_dict(growth: Growth) -> dict[str, object]:
    points = [{growth.varied: point.value, **point.columns} for point in growth.points]
    return {"part": growth.part, "points": points}


if __name__ == "__main__":
    main()
