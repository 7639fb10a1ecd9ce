"""A simulated process: one incarnation of a node, and what kill -9 and a pause mean to it.

States: running -> (paused <-> running) -> dead. Dead is final; a restarted node is a new Process. The loop tags every
callback with the process whose context it carries (`PROCESS`), and never runs a callback of a dead one again: no
`finally` and no `except CancelledError` runs, as after a real kill. Every call of a simulated port first asks
`enter` (or `change`), so that code which is already running when its process dies gets no further than its next call.

`fuse` counts calls that change something outside (a write, a rename, a sync). When it has burnt down the process
dies inside that very call: this is how a test reaches each write boundary of a piece of synchronous code.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable


class Killed(BaseException):
    """What a port tells code whose process is dead. No code may catch it; nothing of what it does is seen."""


class Process:
    """One incarnation of a named node. Start tasks of it with `loop.create_task(coro, context=process.context())`."""

    __slots__ = ("_context", "_mourners", "alive", "fuse", "incarnation", "name", "parked", "paused")

    def __init__(self, name: str, incarnation: int = 1) -> None:
        self.name = name
        self.incarnation = incarnation
        self.alive = True
        self.paused = False
        self.parked: list[asyncio.Handle] = []  # callbacks that fell due during a pause, in their order
        self.fuse: int | None = None  # changes left until it dies; None: for ever
        self._mourners: list[Callable[[], None]] = []
        self._context = contextvars.copy_context()
        self._context.run(PROCESS.set, self)

    def __repr__(self) -> str:
        return f"{self.name}#{self.incarnation}"

    def context(self) -> contextvars.Context:
        """A fresh context that marks what runs in it as this process's."""
        return self._context.copy()

    def enter(self) -> None:
        """Called first by every port. Killed if the process is dead."""
        if not self.alive:
            raise Killed(self)

    def change(self) -> None:
        """As `enter`, by calls that change what outlives the process."""
        if self.fuse is not None and self.alive:
            if self.fuse == 0:
                self.kill()
            else:
                self.fuse -= 1
        self.enter()

    def on_death(self, mourner: Callable[[], None]) -> None:
        """Call `mourner` once when the process dies."""
        self._mourners.append(mourner)

    def kill(self) -> None:
        """kill -9. Idempotent."""
        if not self.alive:
            return
        self.alive = False
        for handle in self.parked:
            drop(handle)
        self.parked.clear()
        mourners, self._mourners = self._mourners, []
        for mourner in mourners:
            mourner()


def drop(handle: asyncio.Handle) -> None:
    """A dead process runs it no more. If it was to tell somebody that a task is over, that task's exception is nobody's
    fault.
    """
    for told in handle._args:
        if isinstance(told, asyncio.Task) and told.done():
            told._log_traceback = False


PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("streamlog_sim_process", default=None)
