"""The other ports on the real machine: clock, randomness, workers; and the event loop that they run under."""

from __future__ import annotations

import asyncio
import functools
import gc
import random
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

from streamlog.aio.call_time import CALL_TIME, CallTime
from streamlog.aio.standard_streams import fill_standard_descriptors

_new_event_loop: Callable[[], asyncio.AbstractEventLoop] | None
try:
    from uvloop import new_event_loop as _new_event_loop
except ImportError:  # not on every platform; asyncio's own loop then
    _new_event_loop = None

P = ParamSpec("P")
T = TypeVar("T")

_GC_THRESHOLDS: Final = (10_000, 100, 100)


class SystemClock:
    monotonic = staticmethod(time.monotonic)  # called several times for each record: without a function around it

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


def system_random() -> random.Random:
    """The kernel's generator: ids made from it do not collide between nodes."""
    return random.SystemRandom()


class ThreadWorkers:
    """A bounded pool of threads. Compression and CRC release the GIL, so more than one thread pays."""

    def __init__(self, threads: int = 2) -> None:
        self._pool = ThreadPoolExecutor(threads, "worker")

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        call = functools.partial(work, *args, **kwargs)
        call_time = CALL_TIME.get()
        if call_time is not None and call_time.is_counting:
            return await self._counted(call, call_time)
        return await self._run(call)

    async def _run(self, call: Callable[[], T]) -> T:
        try:
            running = asyncio.get_running_loop().run_in_executor(self._pool, call)
        except RuntimeError:  # the interpreter is exiting: pools take no more work, and the last records are sent
            return call()
        return await running

    async def _counted(self, call: Callable[[], T], call_time: CallTime) -> T:
        used: list[float] = []

        def work() -> T:
            began = time.thread_time()
            try:
                return call()
            finally:
                used.append(time.thread_time() - began)

        try:
            return await self._run(work)
        finally:
            call_time.add(sum(used))

    async def close(self) -> None:
        """Waits for running work, while the loop goes on: it may last, as a request does. Queued work is cancelled."""
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)

    def stop(self) -> None:
        """As `close`, without waiting; the end of the process waits."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class DaemonThreads:
    """Workers for functions that may never return: a thread each, for which the end of the process does not wait."""

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        found: Future[T] = Future()
        found.set_running_or_notify_cancel()

        def answer() -> None:
            try:
                found.set_result(work(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001  as a pool: it is the caller's
                found.set_exception(error)

        threading.Thread(target=answer, name="worker", daemon=True).start()
        return await asyncio.wrap_future(found)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """For a thread with a loop of its own: uvloop's if it is installed."""
    fill_standard_descriptors()
    return _new_event_loop() if _new_event_loop is not None else asyncio.new_event_loop()


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` with uvloop if it is installed, and fewer garbage collections. Ctrl-C cancels `main` first."""
    _tune_garbage_collector()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def _tune_garbage_collector() -> None:
    """Imported modules are permanent and excluded from garbage collection; the rest is collected less often.

    A node makes many small objects that live as long as a request, and few cycles. With CPython's default thresholds
    the collector took a tenth of the quorum's throughput (64 commands in flight, paired runs).

    The first threshold bounds how long the loop stands still for a collection, too: with 50,000 it was 13 to 50 ms of
    CPU time after a crowd of calls. The older generations are collected once in a million and in a hundred million
    objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
