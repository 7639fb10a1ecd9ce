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
import random
import sys
import warnings
from asyncio import events
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Any, Final, NoReturn, TypeVar, TypeVarTuple, Unpack

from streamlog.sim.handle import SimHandle, SimTimerHandle
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
        self._draw = self.random.random
        self.errors: list[str] = []  # what was given to the exception handler
        self._livelock_at = SPIN_MAX  # `steps` at which this instant is called a livelock
        self._numbers = 0  # of tasks, futures and timers
        self._runnable: list[SimHandle] = []
        self._timers: list[tuple[float, int, SimTimerHandle]] = []  # a heap
        self._tasks: dict[int, SimTask[Any]] = {}  # number -> task, while it runs or has an unretrieved exception
        self._tasks_made = 0
        self._burying = False
        self._clock_resolution = 1e-9
        self.slow_callback_duration = float("inf")

    # What BaseEventLoop leaves open.

    def time(self) -> float:
        return self.now

    get_debug = staticmethod(bool)  # False, by a call in C: asyncio looks at it whenever it makes anything

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
        future: SimFuture[Any] = SimFuture(loop=self)
        self._numbers = future.number = self._numbers + 1
        return future

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> SimHandle:
        handle = SimHandle(callback, args, self, contextvars.copy_context() if context is None else context)
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

    def _asyncgen_finalizer_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        """asyncio schedules `aclose`. Buried, nothing runs: Python 3.13 would warn that it was not awaited."""
        if not self._burying:
            super()._asyncgen_finalizer_hook(agen)  # type: ignore[misc]

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> SimTimerHandle:
        handle = SimTimerHandle(callback, args, self, contextvars.copy_context() if context is None else context)
        handle._when = when
        early, late = self.jitter_s
        if early != late:
            when += early + (late - early) * self._draw()  # random.uniform, without its call
        self._numbers = number = self._numbers + 1
        heappush(self._timers, (when, number, handle))
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> SimTimerHandle:
        return self.call_at(self.now + delay if delay > 0.0 else self.now, callback, *args, context=context)

    def create_task(  # type: ignore[override,unused-ignore]  # newer Pythons have other parameters
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

    # BaseEventLoop.run_forever calls `_run_once` until the loop is stopped; here one call goes on until then.

    def _run_once(self) -> None:
        run = self._run_shuffled if self.order is Order.SHUFFLE else self._run_in_order
        timers = self._timers
        while True:
            if not self._runnable and not self._stopping:
                self._jump()
            now = self.now
            while timers and timers[0][0] <= now:
                handle = heappop(timers)[2]
                if not handle._cancelled:
                    self._runnable.append(handle)
            run()
            if self._stopping:
                return

    def _jump(self) -> None:
        """Move time to the next timer."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heappop(timers)
        if not timers:
            raise Deadlock(f"t={self.now:.6f}: {self.describe()}")
        when = timers[0][0]
        if when > self.until_s:
            raise TimeoutError(f"not done at t={self.until_s}: {self.describe()}")
        if when > self.now:
            self.now = when
        self._livelock_at = self.steps + SPIN_MAX

    def _run_shuffled(self) -> None:
        ready = self._runnable  # callbacks append to it while it is worked off
        draw = self._draw
        while ready and not self._stopping:
            count = len(ready)
            if count > 1:
                index = int(draw() * count)
                ready[index], ready[-1] = ready[-1], ready[index]
            handle = ready.pop()
            if not handle._cancelled:
                self._run_handle(handle)

    def _run_in_order(self) -> None:
        batch, self._runnable = self._runnable, []
        for index, handle in enumerate(batch):
            if not handle._cancelled:
                self._run_handle(handle)
            if self._stopping:
                self._runnable = batch[index + 1 :] + self._runnable
                return

    def _run_handle(self, handle: SimHandle) -> None:
        context = handle._context
        process = context.get(PROCESS)
        if process is not None:
            if not process.alive:
                drop(handle)
                return
            if process.paused:
                process.parked.append(handle)
                return
        self.steps += 1
        try:
            context.run(handle._callback, *handle._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001  as asyncio's handles do
            self.call_exception_handler({"message": handle.failure(), "exception": error, "handle": handle})
        if self.steps > self._livelock_at:
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
