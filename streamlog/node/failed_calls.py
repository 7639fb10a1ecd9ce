"""Unexpected errors of handlers: which of them stop the node, and how often the others are reported."""

from __future__ import annotations

from typing import Final

from streamlog.errors import InvariantError

INTERVAL_S: Final = 60.0
PLACES_MAX: Final = 1_000
"""Lines of code that are remembered, more than can raise."""


def is_invariant(error: BaseException) -> bool:
    """Whether it, or an error of its group, says that an invariant of this node's own state is broken."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_invariant(one) for one in error.exceptions)
    return isinstance(error, InvariantError | AssertionError)


class FailedCalls:
    """Owned by the node."""

    def __init__(self) -> None:
        self.count = 0  # since the node's start
        self._reported_s: dict[str, float] = {}

    def line(self, error: BaseException, now_s: float) -> str | None:
        """Where in the code it was raised, if it is to be reported now; at most once a minute for each place."""
        self.count += 1
        place = _place(error)
        if now_s - self._reported_s.get(place, -INTERVAL_S) < INTERVAL_S or len(self._reported_s) >= PLACES_MAX:
            return None
        self._reported_s[place] = now_s
        return place


def _place(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    if step is None:
        return type(error).__name__
    code = step.tb_frame.f_code
    return f"{code.co_filename.rpartition('/')[2]}:{step.tb_lineno} {code.co_qualname}"
