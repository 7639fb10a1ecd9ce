"""The thread on which a synchronous client runs its asynchronous one.

    LoopThread --owns--> event loop --runs--> AsyncProducer | AsyncConsumer | AsyncAdmin

One daemon thread for each client: a program that does not close its client still exits. A client that is closed while
the interpreter shuts down (by a generator that was not finished) counts as closed already, since daemon threads do not
run then. Callers wait for results in their own threads; Ctrl-C there cancels the call.

On the client's own thread, where done callbacks run, and finalizers of what is collected there, a wait would never end:
RuntimeError. `close` begins there, and does not wait.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeAlias, TypeVar

from streamlog.errors import ClientClosedError
from streamlog.ports.forks import forked_error, note_owner
from streamlog.ports.system import new_event_loop

P = ParamSpec("P")
T = TypeVar("T")
AsyncT = TypeVar("AsyncT")
AsyncT_co = TypeVar("AsyncT_co", covariant=True)


_log: Final = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""After so long a waiting thread looks whether the loop still runs."""

Begun: TypeAlias = Future[T]
"""Work in the background: `result(timeout_s)`, `done()`, `add_done_callback`."""


_forked: Final[list[asyncio.AbstractEventLoop]] = []  # of threads that run in the process above this one
_here: Final = threading.local()  # `loop`: the one that this thread runs, where it is a client's


def is_stopped(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether a loop in a daemon thread runs nothing any more."""
    return loop.is_closed() or sys.is_finalizing()


def _runs(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this thread is the one of that loop."""
    return getattr(_here, "loop", None) is loop


def _check(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, object], *, waits: bool = True) -> None:
    try:
        if loop in _forked:
            raise forked_error()
        if is_stopped(loop):
            raise ClientClosedError("the client is closed")
        if waits and _runs(loop):
            raise RuntimeError(
                "a method that waits was called on the client's own thread, in a done callback or a finalizer, and"
                " would never return: call it in another thread, or use the asynchronous client"
            )
    except (ClientClosedError, RuntimeError):
        work.close()
        raise


def wait_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run it on the loop of another thread and wait for it. ClientClosedError, also where that thread ends without
    having run it, since another one closes the client at the same time.
    """
    _check(loop, work)
    try:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, loop)
    except RuntimeError:  # closed meanwhile
        work.close()
        raise ClientClosedError("the client is closed") from None
    try:
        while True:
            try:
                return future.result(LOOK_S)
            except TimeoutError:
                if not future.done() and is_stopped(loop):
                    if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                        work.close()
                    raise ClientClosedError("the client was closed meanwhile") from None
                if future.done():
                    return future.result()  # or what the work raises, which may be a TimeoutError
    except CancelledError:  # at the end of the loop
        raise ClientClosedError("the client was closed meanwhile") from None
    except BaseException:
        future.cancel()  # no effect where it has ended
        raise


def _has_result(task: asyncio.Task[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


async def _cancel_all() -> None:
    """The other tasks of this loop."""
    await asyncio.sleep(0)  # what has just ended reaches its callers
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def _next_job(
    jobs: SimpleQueue[Callable[[], None] | None], loop: asyncio.AbstractEventLoop
) -> Callable[[], None] | None:
    """ClientClosedError: none comes any more."""
    while True:
        try:
            return jobs.get(timeout=LOOK_S)
        except Empty:
            if is_stopped(loop) and jobs.empty():
                raise ClientClosedError("the client was closed meanwhile") from None


class LoopThread:
    """Runs as soon as it is made. A shared one is for several clients that are used by one thread; it runs until its
    process ends.
    """

    def __init__(self, name: str, *, shared: bool = False) -> None:
        self._shared = shared
        self._loop = new_event_loop()
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._closing = threading.RLock()  # a signal handler or a listener may close a client that is being closed
        self._begun_close: Future[Any] | None = None
        self._ending = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        note_owner(self)

    def _run(self) -> None:
        """At its end what is left is cancelled and awaited, as by `asyncio.run`, also where nothing waits for it."""
        _here.loop = self._loop
        try:
            self._loop.run_forever()
        except BaseException as error:
            # SystemExit, mostly, which ends a thread without a message.
            _log.error("%r, raised on the thread of a client by a callback, has closed the client", error)
            raise
        finally:
            self._ending = True
            try:
                self._loop.run_until_complete(_cancel_all())
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            finally:
                self._loop.close()

    def forked(self) -> None:
        _forked.append(self._loop)

    @property
    def closed(self) -> bool:
        return self._loop in _forked or is_stopped(self._loop)

    @property
    def is_current(self) -> bool:
        return _runs(self._loop)

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
        _check(self._loop, work, waits=False)
        return asyncio.run_coroutine_threadsafe(self._begun(work), self._loop)

    async def _begun(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(
            _has_result
        )  # looks at its error, which nothing else does where its future was cancelled
        try:
            return await work
        except asyncio.CancelledError:
            if self._ending:
                raise ClientClosedError("the client was closed meanwhile") from None
            raise

    def soon(self, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call it on the loop, without a wait; nothing where the client is closed."""
        if not self.closed:
            with suppress(RuntimeError):  # closed meanwhile
                self._loop.call_soon_threadsafe(functools.partial(function, *args, **kwargs))

    def begin_close(self, work: Coroutine[Any, Any, T]) -> Begun[T]:
        """As `begin`, once; at its end the thread stops."""
        if self._begun_close is None:
            self._begun_close = self.begin(work)
            self._begun_close.add_done_callback(lambda _: self.stop())
        else:
            work.close()
        return self._begun_close

    def call_in_front(self, work: Coroutine[Any, Any, T], undo: Callable[[T], object] | None = None) -> T:
        """As `call_to_its_end`; functions that the work passes to `in_front` are called meanwhile, in the calling
        thread. Where the work has a result although it was cancelled, `undo` is called with it, on the loop.
        """
        outer, self._jobs = self._jobs, SimpleQueue()  # what an interrupted call leaves behind in its own is dropped
        try:
            return self._to_its_end(work, self._jobs, undo)
        finally:
            self._jobs = outer  # a job may have made this call

    def call_to_its_end(self, work: Coroutine[Any, Any, T]) -> T:
        """As `call`; Ctrl-C in the calling thread cancels the work, and waits for its end."""
        return self._to_its_end(work, SimpleQueue())

    def _to_its_end(
        self,
        work: Coroutine[Any, Any, T],
        jobs: SimpleQueue[Callable[[], None] | None],
        undo: Callable[[T], object] | None = None,
    ) -> T:
        _check(self._loop, work)
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            tasks.append(self._loop.create_task(work))
            tasks[0].add_done_callback(lambda _task: jobs.put(None))

        def cancel() -> None:
            if not tasks:
                work.close()
            if not tasks or not tasks[0].cancel():
                jobs.put(None)

        try:
            try:
                self._loop.call_soon_threadsafe(begin)
            except RuntimeError:  # closed meanwhile
                raise ClientClosedError("the client is closed") from None
            while (job := _next_job(jobs, self._loop)) is not None:
                job()
            if _has_result(tasks[0]):
                return tasks[0].result()
        except BaseException:
            with suppress(ClientClosedError, RuntimeError):  # closed meanwhile
                self._loop.call_soon_threadsafe(cancel)
                while _next_job(jobs, self._loop) is not None:
                    pass
            if not tasks:
                work.close()
            if tasks and _has_result(tasks[0]) and undo is not None:
                self.run(undo, tasks[0].result())
            raise
        try:
            return tasks[0].result()
        except asyncio.CancelledError:  # at the end of the loop
            raise ClientClosedError("the client was closed meanwhile") from None

    async def in_front(self, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """From the loop: have the thread that waits in `call_in_front` call the function. Raises what it raises; Ctrl-C
        in that thread cancels both.
        """
        done = self._loop.create_future()

        def finish(error: Exception | None) -> None:
            if not done.done():
                done.set_result(error)

        def job() -> None:
            error: Exception | None = None
            try:
                function(*args, **kwargs)
            except Exception as raised:  # noqa: BLE001  raised below, in the coroutine
                error = raised
            with suppress(RuntimeError):  # closed meanwhile
                self._loop.call_soon_threadsafe(finish, error)

        self._jobs.put(job)
        error = await done
        if error is not None:
            raise error

    def stop(self) -> None:
        """As `close`, without a wait: on the loop itself."""
        if not self._shared:
            with suppress(RuntimeError):  # it is closed already
                self._loop.call_soon_threadsafe(self._stop_once)

    def _stop_once(self) -> None:
        if not self._ending:  # another one would end the wait for what is cancelled
            self._loop.stop()

    @contextmanager
    def closing(self) -> Iterator[bool]:
        """The block closes a client; then this is closed. Another thread waits meanwhile, and gets False: nothing is
        left to be done.
        """
        if self.closed:  # also in a forked process, where the lock may be held forever
            yield False
            return
        with self._closing:
            begun = self._begun_close
            if begun is not None:
                wait([begun])
                self._join()
            is_open = begun is None and not self.closed
            try:
                yield is_open
            finally:
                self.close()

    def close(self) -> None:
        """Idempotent. A shared one keeps running."""
        if not self.closed and not self._shared:
            self.stop()
            self._join()

    def _join(self) -> None:
        if not self._shared:
            self._thread.join()


class Front(Protocol[AsyncT_co]):
    """A synchronous client: the thread, and the asynchronous client that runs on it."""

    @property
    def _thread(self) -> LoopThread: ...

    @property
    def _client(self) -> AsyncT_co: ...


@contextmanager
def _named(front: object, method: Callable[..., object]) -> Iterator[None]:
    """Arguments that the method does not have are an error of the class that was used."""
    try:
        yield
    except TypeError as error:
        own, name = f"{method.__qualname__}()", f"{type(front).__name__}.{method.__name__}()"
        if not str(error).startswith(own):
            raise
        raise TypeError(str(error).replace(own, name, 1)) from None


def blocking(
    method: Callable[Concatenate[AsyncT, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Front[AsyncT], P], T]:
    """A method of the synchronous client, from one of the asynchronous client."""

    @functools.wraps(method)
    def wait(self: Front[AsyncT], /, *args: P.args, **kwargs: P.kwargs) -> T:
        with _named(self, method):
            work = method(self._client, *args, **kwargs)
        return self._thread.call(work)

    return wait


def on_loop(method: Callable[Concatenate[AsyncT, P], T]) -> Callable[Concatenate[Front[AsyncT], P], T]:
    """As `blocking`, of a plain method."""

    @functools.wraps(method)
    def wait(self: Front[AsyncT], /, *args: P.args, **kwargs: P.kwargs) -> T:
        with _named(self, method):
            return self._thread.run(method, self._client, *args, **kwargs)

    return wait
