"""A frame on a terminal: the rows and columns that fit, the other rows counted; and as text for pipes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from streamlog.cli.top.frame import Frame
from streamlog.printable import escaped

_FIXED_LINES: Final = 9  # heading, three headings of tables with a line between them, the line about problems
ROWS_MIN: Final = 3
_NAME_WIDTH: Final = 16
_GAP: Final = 2  # between columns
_LEFT_OUT_FIRST: Final = (
    "REPLICAS",
    "LEADERS",
    "PARTITIONS",
    "MEMBERS",
    "FREE",
    "BYTES/S",
    "SIZE",
    "UNDER-REPL",
    "CATCH-UP",
    "FREE%",
    "STATE",
    "RECORDS/S",
    "LAG",
)
"""On a terminal that has no room for them beside the name."""
_UNITS: Final = ("B", "K", "M", "G", "T", "P")
_STATES: Final = {"active": "green", "stable": "green", "fenced": "red", "stopping": "yellow"}

Section = tuple[tuple[str, ...], Sequence[tuple[str, ...]], int]
"""Headings, the first left-aligned; rows; how many of these are not shown."""


def sections(frame: Frame, rows_max: int) -> list[Section]:
    """At most `rows_max` rows of each."""
    nodes = [
        (
            f"{one.node}{'*' if one.controller else ''}",
            one.state,
            str(one.leaders),
            str(one.replicas),
            number(one.records_per_s),
            size(one.size_bytes),
            size(one.free_bytes),
            percent(one.free_bytes, one.total_bytes),
        )
        for one in frame.nodes
    ]
    topics = [
        (
            escaped(one.topic),
            str(one.partitions),
            str(one.under_replicated),
            number(one.records_per_s),
            size(one.bytes_per_s),
            size(one.size_bytes),
        )
        for one in frame.topics
    ]
    groups = [
        (
            escaped(one.group),
            one.state,
            str(one.members),
            "-" if one.lag is None else str(one.lag),
            number(one.records_per_s),
            "keeps pace" if one.keeps_pace else duration(one.catch_up_s),
        )
        for one in frame.groups
    ]
    return [
        _cut(("NODE", "STATE", "LEADERS", "REPLICAS", "RECORDS/S", "SIZE", "FREE", "FREE%"), nodes, rows_max),
        _cut(("TOPIC", "PARTITIONS", "UNDER-REPL", "RECORDS/S", "BYTES/S", "SIZE"), topics, rows_max),
        _cut(("GROUP", "STATE", "MEMBERS", "LAG", "RECORDS/S", "CATCH-UP"), groups, rows_max),
    ]


def _cut(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]], rows_max: int) -> Section:
    return headings, rows[:rows_max], max(0, len(rows) - rows_max)


def heading(frame: Frame) -> str:
    at = time.strftime("%H:%M:%S", time.localtime(frame.at_s))
    if frame.cluster_id is None:
        return f"{at}  the cluster does not answer"
    return (
        f"{at}  {number(frame.records_per_s)} records/s  {size(frame.bytes_per_s)}B/s  "
        f"offline {frame.offline_partitions}  under-replicated {frame.under_replicated_partitions}"
    )


def problem_line(frame: Frame) -> str:
    if not frame.problems:
        return "Healthy."
    more = f" (and {len(frame.problems) - 1} more: streamlogctl cluster health)" if len(frame.problems) > 1 else ""
    return f"{escaped(frame.problems[0])}{more}"


def screen(frame: Frame, width: int, lines: int) -> RenderableType:
    """`width` and `lines`: of the terminal."""
    rows_max = max(ROWS_MIN, (lines - _FIXED_LINES - len(frame.nodes)) // 2)
    shown = sections(frame, rows_max)
    parts: list[RenderableType] = [
        Text(heading(frame), style="bold", no_wrap=True, overflow="ellipsis"),
        Text(problem_line(frame), style="yellow" if frame.problems else "green", no_wrap=True, overflow="ellipsis"),
    ]
    for headings, rows, left_out in shown:
        if rows:
            parts += [Text(), _table(headings, rows, left_out, width)]
    return Group(*parts)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], left_out: int, width: int) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, header_style="bold cyan")
    name = headings[0] + (f" (+{left_out})" if left_out else "")
    table.add_column(name, no_wrap=True, overflow="ellipsis", ratio=1)
    others = _fitting((name, *headings[1:]), rows, width)
    for index in others:
        table.add_column(headings[index], no_wrap=True, justify="right", min_width=len(headings[index]))
    for row in rows:
        table.add_row(*(Text(row[index], style=_STATES.get(row[index], "")) for index in (0, *others)))
    return table


def _fitting(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The columns that leave the first one, of names, its width."""
    widths = [max(map(cell_len, column)) for column in zip(headings, *rows, strict=True)]
    found = list(range(1, len(headings)))
    for dropped in _LEFT_OUT_FIRST:
        if min(widths[0], _NAME_WIDTH) + sum(_GAP + widths[index] for index in found) <= width:
            break
        found = [index for index in found if headings[index] != dropped]
    return found


def text(frame: Frame) -> str:
    """All rows, tab-separated."""
    lines = [heading(frame), problem_line(frame)]
    for headings, rows, _ in sections(frame, 10**9):
        lines += ["", "\t".join(headings), *("\t".join(row) for row in rows)]
    return "\n".join(lines)


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def size(value: float | None) -> str:
    if value is None:
        return "-"
    unit = 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    shown = f"{value:.0f}" if unit == 0 or value >= 100 else f"{value:.1f}"
    return shown if unit == 0 else f"{shown}{_UNITS[unit]}"


def percent(part: int | None, whole: int | None) -> str:
    return "-" if part is None or not whole else f"{100 * part // whole}%"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.0f}s"
    if seconds < 3600:
        return f"{seconds // 60:.0f}m{seconds % 60:02.0f}s"
    return f"{seconds // 3600:.0f}h{seconds % 3600 // 60:02.0f}m" if seconds < 360_000 else ">99h"
