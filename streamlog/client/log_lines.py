"""What a client logs, and what it logs of waits that would be silent, each kind of wait by an object of its own.

    nothing waits long --something does for late_s--> WARNING, again each REPEAT_S --nothing does--> INFO

The program's handlers and filters run in the middle of the client's work, so what they raise goes no further. Text of
nodes and of records is escaped: a line of the log stays one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from streamlog.printable import escaped

LATE_S: Final = 10.0
"""Longer than a fail-over takes."""
REPEAT_S: Final = 30.0

Line: TypeAlias = tuple[int, str]
"""A level and a text."""


class WaitsLog:
    """Times are the loop's."""

    def __init__(self, ended: str, late_s: float = LATE_S) -> None:
        """`ended`: logged once nothing waits for long any more."""
        self._ended = ended
        self._late_s = late_s
        self._next_at: float | None = None  # of a warning; None: nothing waits for long

    def look(self, longest_s: float | None, warning: Callable[[], str], now: float) -> Line | None:
        """What is to be logged, if anything. `longest_s`: for how long something has waited; None: nothing waits."""
        if longest_s is None or longest_s < self._late_s:
            was_late, self._next_at = self._next_at is not None, None
            return (logging.INFO, self._ended) if was_late else None
        if self._next_at is not None and now < self._next_at:
            return None
        self._next_at = now + REPEAT_S
        return logging.WARNING, warning()

    def forget(self) -> None:
        """It is not known how the wait would have ended."""
        self._next_at = None


def write(log: logging.Logger, line: Line | None, *, stacklevel: int = 2) -> None:
    """Raises nothing. `stacklevel`: whose line of code the record names; 2: the caller's."""
    if line is None:
        return
    try:
        log.log(line[0], "%s", escaped(line[1]), stacklevel=stacklevel)
    except Exception:  # noqa: BLE001  of the program's handler or filter
        return


def inform(log: logging.Logger, text: str) -> None:
    write(log, (logging.INFO, text), stacklevel=3)


def warn(log: logging.Logger, text: str) -> None:
    write(log, (logging.WARNING, text), stacklevel=3)
