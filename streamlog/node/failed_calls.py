"""What handlers raise that they must not: which of it ends the node, and how often the rest is reported."""

from __future__ import annotations

from typing import Final

from streamlog.errors import InvariantError

INTERVAL_S: Final = 60.0
PLACES_MAX: Final = 1_000
"""Places in the code that are remembered: there are not as many."""


def is_invariant(error: BaseException) -> bool:
    """Whether it says, alone or in a group, that this node's own state is not what it must be."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_invariant(one) for one in error.exceptions)
    return isinstance(error, InvariantError | AssertionError)


class FailedCalls:
    """Owned by the node."""

    def __init__(self) -> None:
        self.count = 0  # since the start
        self._reported_s: dict[str, float] = {}

    def line(self, error: BaseException, now_s: float) -> str | None:
        """The place where it was raised, if it is to be reported now."""
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
