"""The figures of a part, as a table or JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import asdict
from rich.console import Console
from rich.table import Table


class Figure(Struct, frozen=True, kw_only=True):
    """One measured number. More is better, unless `less_is_better`."""

    name: str
    value: float
    unit: str
    target: float | None = None  # in the same unit
    less_is_better: bool = False
    ratio: float | None = None  # to the baseline, more is better
    yardstick: str = ""  # the name of the baseline

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None without one."""
        if self.target is None:
            return None
        return self.value <= self.target if self.less_is_better else self.value >= self.target


def machine() -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
    }


def print_table(part: str, figures: Sequence[Figure]) -> None:
    table = Table(title=part, title_justify="left")
    table.add_column("figure")
    table.add_column("measured", justify="right")
    table.add_column("target", justify="right")
    table.add_column("ratio", justify="right")
    table.add_column("against", style="dim")
    for figure in figures:
        colour = {True: "green", False: "red", None: "default"}[figure.met]
        sign = "<=" if figure.less_is_better else ">="
        table.add_row(
            figure.name,
            f"[{colour}]{figure.value:,.2f}[/] {figure.unit}",
            "" if figure.target is None else f"{sign} {figure.target:g}",
            "" if figure.ratio is None else f"{figure.ratio:.2f}",
            figure.yardstick,
        )
    # The width of the table, for output to a file.
    Console(width=None if os.isatty(1) else 120).print(table)


def as_json(parts: dict[str, Sequence[Figure]]) -> str:
    rows = {part: [asdict(figure) | {"met": figure.met} for figure in figures] for part, figures in parts.items()}
    return json.dumps({"machine": machine(), "parts": rows}, indent=2)
