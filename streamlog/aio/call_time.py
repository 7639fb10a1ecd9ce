"""How much time a call uses: of the event loop, and of the threads of `Workers`.

    the call's handler      -> CallTime.count     each step, from where it is resumed to where it waits again
    a task that it starts   -> counted            the same, for the same call
    Workers.run             -> in the thread      the CPU time of the work

A step is timed by two looks at a clock; what other threads take of the interpreter meanwhile counts, as it does for
those who wait. Not counted: HTTP/2 and gRPC around a call's handler, threads that read and sync files, and work that
one task does for several calls at once. In a simulation a step takes no time.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")


class TimeSwitch(Protocol):
    @property
    def counts_time(self) -> bool: ...


class CallTime:
    """Of one call. Used on its loop only."""

    __slots__ = ("_began", "_monotonic", "_seconds", "_switch")

    def __init__(self, switch: TimeSwitch, monotonic: Callable[[], float]) -> None:
        """`switch`: looked at before each step. `monotonic`: that of the node's clock."""
        self._switch = switch
        self._monotonic = monotonic
        self._seconds = 0.0
        self._began: float | None = None  # the step that runs, or the part of it that was not taken yet

    @property
    def is_counting(self) -> bool:
        return self._switch.counts_time

    def count(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """The same work. Its steps are counted."""
        return _Steps(self, self._switch, work)

    def add(self, seconds: float) -> None:
        self._seconds += seconds

    def take(self) -> float:
        """Seconds used since the last call of this."""
        if self._began is not None:
            now = self._monotonic()
            self._seconds += now - self._began
            self._began = now
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def begin(self) -> bool:
        """A step begins. False: it is not counted, or is within another step of the same call."""
        if not self._switch.counts_time or self._began is not None:
            return False
        self._began = self._monotonic()
        return True

    def end(self) -> None:
        """The step that was begun ends."""
        if self._began is not None:
            self._seconds += self._monotonic() - self._began
            self._began = None


CALL_TIME: Final[ContextVar[CallTime | None]] = ContextVar("call_time", default=None)
"""Of the call that the running task works for, where its time is counted."""


def counted(work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """Of a task that a call's handler starts."""
    time = CALL_TIME.get()
    return work if time is None else time.count(work)


class _Steps(Coroutine[Any, Any, T]):
    """A coroutine around another one. Not a generator: that would leave the other one unawaited where it is cancelled
    before its first step.
    """

    __slots__ = ("_switch", "_time", "_work")

    def __init__(self, time: CallTime, switch: TimeSwitch, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._time = time
        self._switch = switch

    def __next__(self) -> Any:
        # Not in another function: most streams are not counted, and each step passes here.
        if not self._switch.counts_time:
            return self._work.send(None)
        return self._counted(self._work.send, None)

    def __await__(self) -> _Steps[T]:
        return self

    def __iter__(self) -> _Steps[T]:
        return self

    def send(self, value: Any, /) -> Any:
        return self._counted(self._work.send, value)

    def throw(self, *error: Any) -> Any:
        begun = self._time.begin()
        try:
            return self._work.throw(*error)
        finally:
            del error  # its traceback has this frame: a cycle, which keeps the call alive until the collector runs
            if begun:
                self._time.end()

    def close(self) -> None:
        self._work.close()

    # Of the other one, for those who look at what a task waits for.

    @property
    def cr_frame(self) -> Any:
        return getattr(self._work, "cr_frame", None)

    @property
    def cr_await(self) -> Any:
        return getattr(self._work, "cr_await", None)

    def _counted(self, advance: Callable[..., Any], *args: Any) -> Any:
        if not self._time.begin():
            return advance(*args)
        try:
            return advance(*args)
        finally:
            self._time.end()
