"""Progress bars on standard error: only on a terminal to which nothing else is written."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from streamlog.printable import escaped

_STEP_BYTES: Final = 4 << 20  # updating the bar for each record would cost more than the record


@contextmanager
def progress(title: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Yields a function to call with the current position, in bytes. It does nothing unless standard error is a
    terminal and standard output is not.
    """
    if total_bytes <= _STEP_BYTES or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda _position: None
        return
    # Imported here: most runs show no bar, and start faster without.
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    # By default, rich would redirect standard output to the bar's console.
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
    """A bar of counted items. Yields a function to call with the number done; it does nothing unless standard error is
    a terminal.
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
