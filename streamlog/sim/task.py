"""Tasks and futures that hash by their number, not by their address.

asyncio keeps both in sets (TaskGroup, wait) and acts in the order of these; with addresses no seed would fix it.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine, Generator
from typing import Any, Final, TypeVar

from streamlog.sim.process import PROCESS

T = TypeVar("T")


class SimFuture(asyncio.Future[T]):
    """A future whose hash, and so its place in a set, is the same in every run. Made by SimLoop.create_future."""

    number = 0  # set right after the constructor, which is asyncio's, in C

    def __hash__(self) -> int:
        return self.number


class SimTask(asyncio.Task[T]):
    """A task with a stable hash that knows its process."""

    def __init__(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        number: int,
        loop: asyncio.AbstractEventLoop,
        name: str,
        context: contextvars.Context,
    ) -> None:
        self._number = number  # first: the constructor of the base puts the task into a set
        self.process = context.get(PROCESS)
        # asyncio's types allow generators with Python 3.11 only.
        super().__init__(coro, loop=loop, name=name, context=context)  # type: ignore[arg-type,unused-ignore]
        self._log_destroy_pending = False  # kill -9 leaves pending tasks on purpose; `run` reports the others

    def __hash__(self) -> int:
        return self._number

    def where(self) -> str:
        """`process:name@file:line` of the innermost frame."""
        stack = self.get_stack()
        place = f"{stack[-1].f_code.co_filename.rpartition('/')[2]}:{stack[-1].f_lineno}" if stack else "?"
        return f"{self.process}:{self.get_name()}@{place}"


def unretrieved_exception(task: asyncio.Task[Any]) -> BaseException | None:
    """The unretrieved exception of a finished task; calling `exception()` would mark it as retrieved."""
    if task.done() and not task.cancelled() and task._log_traceback:
        return task._exception
    return None


CLOSINGS_MAX: Final = 200
"""A waiting `finally` stays suspended at its `await` and must be closed again; the limit of such closes."""


def close_silently(task: SimTask[Any]) -> None:
    """Innermost first: closing an outer coroutine would leave an inner one with a waiting `finally` suspended."""
    if task.done():
        if not task.cancelled():
            task._log_traceback = False
        return
    coro = task.get_coro()
    for _ in range(CLOSINGS_MAX):
        if not _is_unfinished(coro):
            break
        try:
            _innermost(coro).close()
        except BaseException:  # noqa: BLE001  its `finally` ran in a dead process: its errors are ignored
            pass


def _innermost(coro: Any) -> Any:
    """The innermost unfinished coroutine."""
    inner = coro.cr_await
    return _innermost(inner) if _is_unfinished(inner) else coro


def _is_unfinished(coro: object) -> bool:
    """A coroutine, or an object around one that shows its frame (`aio.call_time`)."""
    return isinstance(coro, Coroutine) and getattr(coro, "cr_frame", None) is not None
