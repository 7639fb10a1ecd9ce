"""Bars on standard error while something takes long: only where a person looks at it and nothing else writes there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from streamlog.printable import escaped

_STEP_BYTES: Final = 4 << 20  # a bar that moves for each record costs more than the record


@contextmanager
def progress(title: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Gives a function to call with the position reached, in bytes. It does nothing unless standard error is a
    terminal that standard output does not write to.
    """
    if total_bytes <= _STEP_BYTES or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda _position: None
        return
    # Loaded here: most runs show no bar, and start sooner without.
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    # rich would send standard output to the bar's console as well.
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(escape(escaped(title)), total=total_bytes)
        shown = 0

        def advance(position: int) -> None:
            nonlocal shown
            if position - shown >= _STEP_BYTES:
                shown = position
                bar.update(task, completed=position)

        yield advance


@contextmanager
def counting(title: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """A bar over things that are counted. Gives a function to call with how many are done; it does nothing unless
    standard error is a terminal.
    """
    if total == 0 or not sys.stderr.isatty():
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
    console = Console(stderr=True)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)
