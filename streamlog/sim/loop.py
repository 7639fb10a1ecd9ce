"""SimLoop: an asyncio event loop in virtual time, without selector, threads or sockets. One seed fixes every choice.

While a callback is ready, time stands still; with none ready it jumps to the earliest timer; with no timer either the
simulation is stuck (Deadlock). Which ready callback runs next is a seeded choice (Order.SHUFFLE: any of them, what no
code may depend on) or the order in which they became ready (Order.FIFO: what asyncio and uvloop do). A bug that shows
under SHUFFLE alone is a bug against another release of the loop.

Each callback belongs to the Process whose context it carries (process.py).

`run` is the way in: it ends with an error for whatever a real run would hide: a task left behind, an exception that
that was never retrieved, a coroutine never awaited.
"""

from __future__ import annotations

import asyncio
import contextvars
import enum
import gc
import heapq
import random
import sys
import warnings
from asyncio import events
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn, TypeVar, TypeVarTuple, Unpack

from streamlog.sim.process import PROCESS, Killed, Process, drop
from streamlog.sim.task import SimFuture, SimTask, close_silently, unretrieved_exception

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

SPIN_MAX: Final = 200_000
"""Callbacks at one instant before it is called a livelock. A busy cluster of five runs some hundreds."""

_PRUNE_EVERY: Final = 4096  # tasks made between two sweeps of those that are over


class SimError(Exception):
    """An error of the simulated program that asyncio would not report."""


class Deadlock(SimError):
    """Nothing is ready and no timer is set: names each task and the line where it waits."""


class Livelock(SimError):
    """Callbacks schedule callbacks without end while time stands still."""


class Order(enum.Enum):
    """Which ready callback runs next."""

    FIFO = enum.auto()
    SHUFFLE = enum.auto()


class SimLoop(asyncio.BaseEventLoop):
    """The scheduler of one simulation. Created by `run`, or by a Machine that drives it step by step."""

    # Of BaseEventLoop, which declares them nowhere.
    _stopping: bool
    _clock_resolution: float

    def __init__(
        self,
        seed: int | str,
        *,
        order: Order = Order.SHUFFLE,
        jitter_s: tuple[float, float] = (0.0, 0.0),
        until_s: float = float("inf"),
    ) -> None:
        """`jitter_s`: each timer fires so much off its time; uvloop's fire up to 1 ms early, every system's late.
        `until_s`: TimeoutError when time would jump beyond. Not a timer: a timer would hide deadlocks.
        """
        super().__init__()
        self.random = random.Random(f"{seed}/loop")
        self.order = order
        self.jitter_s = jitter_s
        self.until_s = until_s
        self.now = 0.0  # seconds; never falls
        self.steps = 0  # callbacks run
        self.errors: list[str] = []  # what was given to the exception handler
        self._spins = 0  # callbacks run at this instant
        self._numbers = 0  # of tasks, futures and timers
        self._runnable: list[events.Handle] = []
        self._timers: list[tuple[float, int, events.TimerHandle]] = []  # a heap
        self._tasks: dict[int, SimTask[Any]] = {}  # number -> task, while it runs or has an unretrieved exception
        self._tasks_made = 0
        self._burying = False
        self._clock_resolution = 1e-9
        self.slow_callback_duration = float("inf")

    # What BaseEventLoop leaves open.

    def time(self) -> float:
        return self.now

    def _write_to_self(self) -> None:
        pass

    def _process_events(self, event_list: object) -> NoReturn:
        raise SimError("a simulation has no I/O")

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        pass  # cancelled timers are dropped when their time comes

    def run_in_executor(self, executor: Any, func: Callable[[Unpack[Ts]], T], *args: *Ts) -> NoReturn:
        raise SimError("a simulation has no threads: use the Workers port")

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        pass

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(f"t={self.now:.6f} {context.get('message')}: {context.get('exception')!r}")

    # Scheduling.

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def create_future(self) -> SimFuture[Any]:
        return SimFuture(self._number(), self)

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> events.Handle:
        handle = events.Handle(callback, args, self, context)
        if not self._burying:
            self._runnable.append(handle)
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> events.Handle:
        return self.call_soon(callback, *args, context=context)  # there is one thread; asyncio itself calls this

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> events.TimerHandle:
        handle = events.TimerHandle(when, callback, args, self, context)
        early, late = self.jitter_s
        if early != late:
            when += self.random.uniform(early, late)
        heapq.heappush(self._timers, (when, self._number(), handle))
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> events.TimerHandle:
        return self.call_at(self.now + max(0.0, delay), callback, *args, context=context)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> SimTask[T]:
        self._tasks_made += 1
        task = SimTask(
            coro,
            number=self._number(),
            loop=self,
            name=f"task-{self._tasks_made}" if name is None else str(name),
            context=contextvars.copy_context() if context is None else context,
        )
        self._tasks[hash(task)] = task
        if self._tasks_made % _PRUNE_EVERY == 0:
            self._tasks = {n: t for n, t in self._tasks.items() if not t.done() or unretrieved_exception(t) is not None}
        return task

    # One turn: BaseEventLoop.run_forever calls it until stopped.

    def _run_once(self) -> None:
        if not self._runnable and not self._stopping:
            self._jump()
        while self._timers and self._timers[0][0] <= self.now:
            handle = heapq.heappop(self._timers)[2]
            if not handle.cancelled():
                self._runnable.append(handle)
        if self.order is Order.SHUFFLE:
            self._run_shuffled()
        else:
            self._run_in_order()

    def _jump(self) -> None:
        """Move time to the next timer."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if not self._timers:
            raise Deadlock(f"t={self.now:.6f}: {self.describe()}")
        if self._timers[0][0] > self.until_s:
            raise TimeoutError(f"not done at t={self.until_s}: {self.describe()}")
        self.now = max(self.now, self._timers[0][0])
        self._spins = 0

    def _run_shuffled(self) -> None:
        ready = self._runnable  # callbacks append to it while it is worked off
        draw = self.random.random
        while ready and not self._stopping:
            if len(ready) > 1:
                index = int(draw() * len(ready))
                ready[index], ready[-1] = ready[-1], ready[index]
            self._run_handle(ready.pop())

    def _run_in_order(self) -> None:
        batch, self._runnable = self._runnable, []
        for index, handle in enumerate(batch):
            self._run_handle(handle)
            if self._stopping:
                self._runnable = batch[index + 1 :] + self._runnable
                return

    def _run_handle(self, handle: events.Handle) -> None:
        if handle.cancelled():
            return
        process: Process | None = handle._context.get(PROCESS)  # type: ignore[attr-defined]  # not in the stubs
        if process is not None:
            if not process.alive:
                drop(handle)
                return
            if process.paused:
                process.parked.append(handle)
                return
        self.steps += 1
        self._spins += 1
        handle._run()
        if self._spins > SPIN_MAX:
            raise Livelock(f"{SPIN_MAX} callbacks at t={self.now:.6f}: {self.describe()}")

    # Processes.

    def pause(self, process: Process) -> None:
        """SIGSTOP: due callbacks are kept for later."""
        process.paused = True

    def resume(self, process: Process) -> None:
        """SIGCONT."""
        process.paused = False
        self._runnable.extend(process.parked)
        process.parked.clear()

    # What is left at the end.

    def live_tasks(self) -> list[SimTask[Any]]:
        """Unfinished tasks whose process is not dead, oldest first."""
        return [t for t in self._tasks.values() if not t.done() and (t.process is None or t.process.alive)]

    def describe(self) -> str:
        """Where each live task waits; the first forty."""
        return ", ".join(task.where() for task in self.live_tasks()[:40])

    def leftovers(self) -> list[str]:
        """What a correct program does not leave behind: running tasks, unretrieved exceptions, errors of callbacks."""
        found = [f"error {error}" for error in self.errors]
        for task in self._tasks.values():
            error = unretrieved_exception(task)
            if error is not None and not isinstance(error, Killed):
                found.append(f"unretrieved {task.process}:{task.get_name()}: {error!r}")
        return found + [f"leaked {task.where()}" for task in self.live_tasks()]

    def bury(self) -> None:
        """End the simulation: close every coroutine, oldest first, with all scheduling off. Idempotent.

        Coroutines of killed processes are kept until here, for collecting one throws GeneratorExit into it, and its
        `finally` would then run during an unrelated callback.
        """
        if self.is_closed():
            return
        self._burying = True
        for task in self._tasks.values():
            if task.process is not None:
                task.process.alive = False
            close_silently(task)
        self._tasks.clear()
        self._timers.clear()
        self._runnable.clear()
        self.close()


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Keep the cyclic collector away: it runs weakref callbacks and finalizers at moments that no seed decides."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def _never_awaited_collected(leaks: list[str]) -> Iterator[None]:
    """Collect "coroutine was never awaited", which the interpreter otherwise prints and forgets."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: leaks.append(repr(unraisable.exc_value))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            yield
    finally:
        sys.unraisablehook = hook


def run(
    main: Callable[[SimLoop], Coroutine[Any, Any, T]],
    *,
    seed: int | str = 0,
    order: Order = Order.SHUFFLE,
    until_s: float = 3600.0,
    jitter_s: tuple[float, float] = (0.0, 0.0),
    strict: bool = True,
) -> T:
    """Run `main(loop)` to its end in a fresh loop and return its result.

    Raises Deadlock, Livelock, TimeoutError after `until_s` virtual seconds, and, when `strict`, SimError for what the
    program left behind.
    """
    loop = SimLoop(seed, order=order, jitter_s=jitter_s, until_s=until_s)
    leaks: list[str] = []
    with quiet_collector(), _never_awaited_collected(leaks):
        try:
            result = loop.run_until_complete(main(loop))
            leaks += loop.leftovers()
        finally:
            loop.bury()
    if strict and leaks:
        raise SimError("; ".join(leaks[:10]))
    return result
