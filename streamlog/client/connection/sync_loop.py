"""The thread on which the synchronous front of a client runs its asynchronous one.

    LoopThread --owns--> event loop --runs--> AsyncProducer | AsyncConsumer | AsyncAdmin

One thread for each client, a daemon: a program that forgets to close it still ends, and one that closes it when the
interpreter is ending already (a generator that is left in the middle) finds it closed, for daemons do not run then.
Whoever calls waits for the result in his own thread; Ctrl-C there cancels what he waits for.
"""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from streamlog.errors import ClientClosedError
from streamlog.ports.forks import check_process, is_forked
from streamlog.ports.system import new_event_loop

P = ParamSpec("P")
T = TypeVar("T")
AsyncT = TypeVar("AsyncT")
AsyncT_co = TypeVar("AsyncT_co", covariant=True)


Begun: TypeAlias = Future[T]
"""What goes on behind: `result(timeout_s)`, `done()`, `add_done_callback`."""


def is_over(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether it runs nothing any more, in a thread that is a daemon."""
    return loop.is_closed() or sys.is_finalizing()


def _check(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, object]) -> None:
    try:
        check_process()
        if is_over(loop):
            raise ClientClosedError("the client is closed")
    except ClientClosedError:
        work.close()
        raise


def wait_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run it on the loop of another thread and wait for it. ClientClosedError."""
    _check(loop, work)
    future: Future[T] = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()  # of no effect where it has ended
        raise


class LoopThread:
    """Running from the moment that it is made. A shared one is for several clients that are used by one thread; it ends
    with its process.
    """

    def __init__(self, name: str, *, shared: bool = False) -> None:
        """ClientClosedError in a process that was forked from one with clients."""
        check_process()
        self._shared = shared
        self._loop = new_event_loop()
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        return is_forked() or is_over(self._loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it on the loop and wait for it. ClientClosedError."""
        return wait_on(self._loop, work)

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `call`, of a plain function."""

        async def wrapped() -> T:
            return work(*args, **kwargs)

        return self.call(wrapped())

    def begin(self, work: Coroutine[Any, Any, T]) -> Begun[T]:
        """Run it on the loop without waiting. ClientClosedError."""
        _check(self._loop, work)
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call_in_front(self, work: Coroutine[Any, Any, T]) -> T:
        """As `call`; what the work asks for by `in_front` is done meanwhile, in the thread that waits."""
        future = self.begin(work)
        future.add_done_callback(lambda _future: self._jobs.put(None))
        try:
            while (job := self._jobs.get()) is not None:
                job()
            return future.result()
        except BaseException:
            if future.cancel():
                self._jobs = SimpleQueue()  # what is still put there is nobody's any more
            raise

    async def in_front(self, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """On the loop: let the thread that waits in `call_in_front` call it. Raises what it raises; Ctrl-C there ends
        that wait, and this with it.
        """
        done = self._loop.create_future()

        def tell(error: Exception | None) -> None:
            if not done.done():
                done.set_result(error)

        def job() -> None:
            error: Exception | None = None
            try:
                function(*args, **kwargs)
            except Exception as raised:  # noqa: BLE001  it travels, and is raised where the work waits for it
                error = raised
            self._loop.call_soon_threadsafe(tell, error)

        self._jobs.put(job)
        error = await done
        if error is not None:
            raise error

    def close(self) -> None:
        """Idempotent. A shared one goes on."""
        if not self.closed and not self._shared:
            # There: whoever closes may be in a loop of his own.
            self.call(self._loop.shutdown_asyncgens())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class Front(Protocol[AsyncT_co]):
    """A synchronous front: the thread, and the asynchronous client that runs there."""

    @property
    def _thread(self) -> LoopThread: ...

    @property
    def _client(self) -> AsyncT_co: ...


def blocking(
    method: Callable[Concatenate[AsyncT, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Front[AsyncT], P], T]:
    """The method of a front that waits for that of its client."""

    @functools.wraps(method)
    def wait(self: Front[AsyncT], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.call(method(self._client, *args, **kwargs))

    return wait


def on_loop(method: Callable[Concatenate[AsyncT, P], T]) -> Callable[Concatenate[Front[AsyncT], P], T]:
    """As `blocking`, of a plain method."""

    @functools.wraps(method)
    def wait(self: Front[AsyncT], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.run(method, self._client, *args, **kwargs)

    return wait
