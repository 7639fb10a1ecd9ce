"""Results on standard output: a table on terminals, tab-separated lines in pipes, JSON for programs.

    auto    table on a terminal, text elsewhere
    table   rich's, with colours where the terminal has them
    text    one line for each row, tab-separated, with a heading where there are several columns
    json    one document; field names as in the Python client

On a terminal, control characters in names and values are escaped (`streamlog.printable`). In a pipe they are not; JSON
escapes them as \\uXXXX.

A result is a list of rows: plain values (text, numbers, booleans, None, lists of these) by column.
"""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias, TypeVar

import click

from streamlog.printable import escaped, escaped_json

Cell: TypeAlias = "str | int | float | bool | Sequence[Cell] | Mapping[str, Cell] | None"
Row: TypeAlias = Mapping[str, Cell]
Command = TypeVar("Command", bound=Callable[..., object])

# Styles of cells, by their text.
_STYLES: Final = {
    "active": "green",
    "fenced": "red",
    "stopping": "yellow",
    "offline": "red",
    "none": "red",
    "ok": "green",
    "differs": "bold red",
    "failed": "bold red",
    "running": "green",
    "stopped": "red",
}

# A table is not narrower: numbers stay whole, and text is folded beyond this width only, which an IPv4 address and
# port fit into mostly.
_TEXT_WIDTH_MIN: Final = 16
_BORDER: Final = 3  # of a column, with its spaces


class Output(enum.Enum):
    TABLE = "table"
    TEXT = "text"
    JSON = "json"


def output_option(command: Command) -> Command:
    """Adds `--output`; the command gets an Output as `output`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["auto", *(one.value for one in Output)]),
        default="auto",
        show_default=True,
        callback=lambda _context, _parameter, value: _chosen(value),
        help="auto: a table on a terminal, tab-separated text in a pipe.",
    )(command)


def _chosen(value: str) -> Output:
    if value == "auto":
        return Output.TABLE if sys.stdout.isatty() else Output.TEXT
    return Output(value)


def show_rows(
    output: Output,
    rows: Sequence[Row],
    *,
    columns: Sequence[str],
    title: str = "",
    headings: Mapping[str, str] | None = None,
) -> None:
    """`columns`: of table and text, in this order; JSON has all values. `headings`: where they differ from the columns'
    names.
    """
    named = [(headings or {}).get(column, column) for column in columns]
    shown = escaped if sys.stdout.isatty() else str
    match output:
        case Output.JSON:
            show_json(list(rows))
        case Output.TEXT:
            if len(columns) > 1:
                click.echo("\t".join(heading.upper() for heading in named))
            for row in rows:
                click.echo("\t".join(shown(cell_text(row.get(column))) for column in columns))
        case Output.TABLE:
            show_table(rows, columns=columns, title=title, headings=named)


def show_facts(output: Output, facts: Row) -> None:
    """One object: a line for each value."""
    if output is Output.JSON:
        show_json(facts)
        return
    width = max(len(name) for name in facts) + 2 if output is Output.TABLE else 0
    for name, value in facts.items():
        text = cell_text(value)
        if sys.stdout.isatty():
            text = escaped(text)
        if output is Output.TEXT:
            click.echo(f"{name}\t{text}")
        else:
            click.echo(click.style(f"{name}:".ljust(width), bold=True) + text)


def show_json(document: Cell) -> None:
    click.echo(escaped_json(json.dumps(document, ensure_ascii=False, indent=2)))


def say(text: str = "", *, err: bool = False) -> None:
    """Prints a message that may contain names of topics or nodes."""
    click.echo(on_terminal(text, err=err), err=err)


def on_terminal(text: str, *, err: bool = False) -> str:
    """Unchanged for a pipe; escaped for a terminal, and for standard error in any case. Newlines and tabs are kept:
    they are the command's own.
    """
    if not err and not sys.stdout.isatty():
        return text
    return "\n".join("\t".join(map(escaped, line.split("\t"))) for line in text.split("\n"))


def show_table(
    rows: Sequence[Row], *, columns: Sequence[str], title: str = "", headings: Sequence[str] | None = None
) -> None:
    # Imported here: most runs print no table, and start faster without.
    from rich.cells import cell_len
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    console = Console()
    named = list(headings or columns)
    texts = [[escaped(cell_text(row.get(column))) for column in columns] for row in rows]
    table = Table(title=escape(escaped(title)) or None, title_justify="left", header_style="bold")
    least = 1
    for index, (column, heading) in enumerate(zip(columns, named, strict=True)):
        numeric = bool(rows) and all(isinstance(row.get(column), int | float) for row in rows)
        width = max(cell_len(text) for text in (heading, *(cells[index] for cells in texts)))
        width = width if numeric else min(width, _TEXT_WIDTH_MIN)
        least += width + _BORDER
        justify: Literal["left", "right"] = "right" if numeric else "left"
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=numeric, min_width=width)
    if least > console.width and rows:
        _show_blocks(texts, named, title)
        return
    for cells in texts:
        table.add_row(*(Text(text, style=_STYLES.get(text, "")) for text in cells))
    console.print(table)


def _show_blocks(texts: Sequence[Sequence[str]], headings: Sequence[str], title: str) -> None:
    """Where the terminal is too narrow for a table: a line for each value, and an empty one between rows."""
    if title:
        click.echo(escaped(title))
    width = max(map(len, headings)) + 2
    for number, cells in enumerate(texts):
        if number:
            click.echo()
        for heading, text in zip(headings, cells, strict=True):
            click.echo(click.style(f"{heading}:".ljust(width), bold=True) + text)


def cell_text(value: Cell) -> str:
    """For display: lists with commas, as in Kafka's tools."""
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case str():
            return value
        case Mapping():
            return ",".join(f"{name}={cell_text(one)}" for name, one in value.items())
        case Sequence():
            return ",".join(cell_text(one) for one in value)
        case _:
            return f"{value:,.1f}" if isinstance(value, float) else str(value)
