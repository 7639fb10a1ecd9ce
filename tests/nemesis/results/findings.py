"""What was found wrong: the same thing once, however often it was seen."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Final

from tests.cluster.checking.checks import SHOWN_MAX, Violation

_TEXT_MAX: Final = 1_000
_PADDING: Final = re.compile(r"\.{8,}")
"""Of values (`tests.cluster.checking.checks.value_of`)."""


class Findings:
    """`wrong` is given to everybody who looks at something."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.all: list[tuple[float, Violation]] = []
        self.more: dict[str, int] = {}  # by invariant: beyond those that are kept
        self._say = say
        self._now: Callable[[], float] = lambda: 0.0

    def use_clock(self, now: Callable[[], float]) -> None:
        self._now = now

    def wrong(self, invariant: str, what: str) -> None:
        violation = Violation(invariant, _PADDING.sub("...", what)[:_TEXT_MAX])
        if any(violation == known for _, known in self.all):
            return
        if sum(known.invariant == invariant for _, known in self.all) >= SHOWN_MAX:
            self.more[invariant] = self.more.get(invariant, 0) + 1
            return
        self.all.append((self._now(), violation))
        self._say(f"FOUND {violation}")

    def __bool__(self) -> bool:
        return bool(self.all)

    def lines(self) -> list[str]:
        """One a finding, with the time of the run."""
        return [f"t={at:.1f} {violation}" for at, violation in self.all] + [
            f"... and {count} more of {invariant}" for invariant, count in self.more.items()
        ]


class ErrorsLogged(logging.Handler):
    """What clients, or the loop they run on, log as an error: a task that was never awaited, a callback that raised."""

    def __init__(self, findings: Findings) -> None:
        super().__init__(logging.ERROR)
        self._findings = findings

    def emit(self, record: logging.LogRecord) -> None:
        text = logging.Formatter().format(record)
        self._findings.wrong("client", f"{record.name}: {' | '.join(text.splitlines())}")
