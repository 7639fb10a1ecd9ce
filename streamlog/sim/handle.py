"""The handles of SimLoop: asyncio's, without what a simulation does not have (debug mode, source tracebacks).

Tens of thousands are made in a simulated minute, and asyncio's constructor and `cancel` look up the loop's debug mode
each time.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import format_helpers
from collections.abc import Callable
from typing import Any


class SimHandle(asyncio.Handle):
    """One callback; cancelled ones are dropped when their turn comes."""

    __slots__ = ()

    # Of Handle; typeshed does not declare these.
    _callback: Callable[..., object]
    _context: contextvars.Context
    _loop: asyncio.AbstractEventLoop
    _repr: str | None
    _source_traceback: None

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context,
    ) -> None:
        self._context = context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = self._source_traceback = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]  # what they refer to is free at once

    def failure(self) -> str:
        """For the exception handler."""
        return f"Exception in callback {format_helpers._format_callback_source(self._callback, self._args)}"


class SimTimerHandle(SimHandle, asyncio.TimerHandle):
    """A callback at a time."""

    __slots__ = ()

    _scheduled: bool
    _when: float
