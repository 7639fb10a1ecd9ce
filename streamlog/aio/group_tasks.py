"""Tasks of a group that may be shutting down: a timer or a callback can fall between its cancellation and its end.
And the error of a group, as one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


def start_unless_ending(tasks: asyncio.TaskGroup | None, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    """None where the group has ended or is being cancelled: the work is not begun, as if it had been cancelled too."""
    if tasks is not None:
        try:
            return tasks.create_task(work)
        except RuntimeError:  # TaskGroup's only errors are about its own state
            pass
    work.close()
    return None


def unwrapped(group: BaseExceptionGroup[BaseException], kind: type[BaseException]) -> BaseException:
    """One of its errors, to be raised in place of the group; the group, if not all of them are `kind`.

    `raise` within `except*` would do that too from Python 3.11.4 on only: earlier ones wrap it in a group again.
    """
    _, others = group.split(kind)
    if others is not None:
        return group
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
