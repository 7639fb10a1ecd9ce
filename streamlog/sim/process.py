"""A simulated process: one incarnation of a node, and what kill -9 and a pause mean to it.

States: running -> (paused <-> running) -> dead. Dead is final; a restarted node is a new Process. The loop tags every
callback with the process whose context it carries (`PROCESS`), and never runs a callback of a dead one again: no
`finally` and no `except CancelledError` runs, as after a real kill. Every call of a simulated port starts with `enter`
(or `change`), so that code which is running when its process dies gets no further than its next call.

`fuse` counts calls that change something outside (a write, a rename, a sync). When it has burnt down the process
dies inside that very call: this is how a test reaches each write boundary of a piece of synchronous code.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable

from streamlog.sim.handle import SimHandle


class Killed(BaseException):
    """Raised by the ports of a dead process. No code may catch it."""


class Process:
    """One incarnation of a named node. Start tasks of it with `loop.create_task(coro, context=process.context())`."""

    __slots__ = ("_context", "_on_death", "alive", "fuse", "incarnation", "name", "parked", "paused")

    def __init__(self, name: str, incarnation: int = 1) -> None:
        self.name = name
        self.incarnation = incarnation
        self.alive = True
        self.paused = False
        self.parked: list[SimHandle] = []  # callbacks that fell due during a pause, in their order
        self.fuse: int | None = None  # changes left until it dies; None: unlimited
        self._on_death: list[Callable[[], None]] = []
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

    def on_death(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the process dies."""
        self._on_death.append(callback)

    def kill(self) -> None:
        """kill -9. Idempotent."""
        if not self.alive:
            return
        self.alive = False
        for handle in self.parked:
            drop(handle)
        self.parked.clear()
        callbacks, self._on_death = self._on_death, []
        for callback in callbacks:
            callback()


def drop(handle: SimHandle) -> None:
    """A dead process does not run it. If it was the callback of a finished task, that task's exception is not reported
    as unretrieved.
    """
    for task in handle._args:
        if isinstance(task, asyncio.Task) and task.done():
            task._log_traceback = False


PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("streamlog_sim_process", default=None)
