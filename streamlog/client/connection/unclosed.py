"""Clients that a program does not close. At its end the records of producers are sent, and consumers commit what was
processed and leave their groups, with a warning, for FLUSH_S at most, all of them together, or until Ctrl-C.

    Producer, Consumer   collected, or open when the interpreter exits --> closed in the background, awaited at the exit
    AsyncProducer        `asyncio.run` cancels its task                --> the task flushes before it ends
    AsyncConsumer                                                      --> it is closed; its stream's end is its leave
      both               the loop stands still when the program exits  --> the loop is run once more, for the rest

ResourceWarning names the client (shown with `python -X dev`, or -W default). Records that are lost all the same are
an error in the log; in a program that does not configure logging a RuntimeWarning, which Python prints.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import signal
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from streamlog.client.connection.sync_loop import Begun, LoopThread
from streamlog.errors import ClientClosedError, StreamlogError

FLUSH_S: Final = 10.0
LEAST_S: Final = 0.1
_log: Final = logging.getLogger(__name__)


SENDS: Final = "its records are sent now"
LEAVES: Final = "it leaves its group now"
ENDS: Final = "it is closed now"


class Unclosed:
    """A client as it is seen here. Kept by the client."""

    def __init__(
        self,
        name: str,
        stopped_loop: Callable[[], asyncio.AbstractEventLoop | None],
        close: Callable[..., Coroutine[Any, Any, None]],
        *,
        work: str = SENDS,
    ) -> None:
        """`name`, `work`: for messages. `stopped_loop`: its loop, where that does not run any more and the client is
        open. `close`: with a `timeout_s`.
        """
        self.name = name
        self.stopped_loop = stopped_loop
        self.close = close
        self.work = work


_closing: Final[dict[Begun[None], Unclosed]] = {}  # clients that are closed in the background
_open: Final[weakref.WeakSet[Unclosed]] = weakref.WeakSet()  # asynchronous ones


def warn(client: Unclosed) -> None:
    """Raises where warnings are errors: the client is to be closed all the same."""
    warnings.warn(
        f"{client.name} was not closed: {client.work}, for {FLUSH_S:g} s at most; use `with`, or call close()",
        ResourceWarning,
        stacklevel=3,
    )


def report_lost(client: Unclosed, error: object) -> None:
    """A consumer loses nothing: what it did not commit is read again."""
    if client.work != SENDS:
        return
    text = f"{client.name} was not closed, and records that it held may be lost: {error}"
    if _is_handled():
        _log.error("%s", text)
    else:
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def _is_handled() -> bool:
    """Whether the program handles what is logged here, beside the client's own NullHandler."""
    logger: logging.Logger | None = _log
    while logger is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def close_at_the_end(front: object, client: Unclosed, thread: LoopThread) -> Callable[[], object]:
    """When `front`, the synchronous client, is collected or the interpreter exits. To be called when it is closed."""
    return weakref.finalize(front, _close, client, thread).detach


def _close(client: Unclosed, thread: LoopThread) -> None:
    """In any thread, that of the loop included, so it must not wait."""
    if not thread.closed:
        try:
            warn(client)
        finally:
            begin_close(client, thread)


def begin_close(client: Unclosed, thread: LoopThread, timeout_s: float | None = FLUSH_S) -> None:
    """Also what `close` does on the client's own thread, which cannot wait."""
    with suppress(ClientClosedError):  # it is closed already
        closing = thread.begin_close(client.close(timeout_s=timeout_s))
        _closing[closing] = client
        closing.add_done_callback(_on_closed)


def _on_closed(closing: Begun[None]) -> None:
    """On its loop, mostly. At the exit the main thread reports it."""
    client = _closing.pop(closing, None)
    if client is not None:
        _report(client, closing, 0)


def flush_at_exit(client: Unclosed) -> None:
    """Unless it was closed before."""
    _open.add(client)


@atexit.register  # before any `finalize` is made, so it runs after them
def _at_exit() -> None:
    """All of them within FLUSH_S, and less where the user interrupts it."""
    deadline_s = time.monotonic() + FLUSH_S
    waiting = [client for client in _open if client.stopped_loop() is not None]
    ending = list(_closing.items())
    _closing.clear()
    try:
        while waiting:
            with _showing():
                _close_loopless(waiting[-1], _left_s(deadline_s))
            waiting.pop()
        while ending:
            closing, client = ending[-1]
            with _showing():
                _report(client, closing, _left_s(deadline_s) + 1)
            ending.pop()
    except KeyboardInterrupt:
        for client in [*waiting, *(client for closing, client in ending if not closing.done())]:
            with _showing():
                report_lost(client, "the wait for them was interrupted")
        for client in waiting:
            _drop(client)


@contextmanager
def _showing() -> Iterator[None]:
    """A warning that is an error, or what the program's `showwarning` raises, is printed, as by `weakref.finalize`:
    the other clients have their turn.
    """
    try:
        yield
    except Exception:  # noqa: BLE001  it is the program's
        sys.excepthook(*sys.exc_info())


def _left_s(deadline_s: float) -> float:
    """A little for each, at least: without time a client drops its records and reports none."""
    return round(max(LEAST_S, deadline_s - time.monotonic()), 1)


def _close_loopless(client: Unclosed, timeout_s: float) -> None:
    try:
        warn(client)
    except Exception:
        _wait_loopless(client, timeout_s)
        raise
    _wait_loopless(client, timeout_s)


def _wait_loopless(client: Unclosed, timeout_s: float) -> None:
    loop = client.stopped_loop()
    assert loop is not None
    closing = loop.create_task(client.close(timeout_s=timeout_s))
    try:
        with _interrupting(loop, closing):
            loop.run_until_complete(closing)
    except StreamlogError as error:
        report_lost(client, error)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


@contextmanager
def _interrupting(loop: asyncio.AbstractEventLoop, closing: asyncio.Task[None]) -> Iterator[None]:
    """Ctrl-C cancels it, as in `asyncio.run`, instead of what the loop does at that moment."""
    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def cancel(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a second one does not wait
        loop.call_soon_threadsafe(closing.cancel)

    signal.signal(signal.SIGINT, cancel)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _drop(client: Unclosed) -> None:
    """Ends its tasks, which would be found unfinished by the interpreter."""
    loop = client.stopped_loop()
    if loop is not None:
        with suppress(StreamlogError):
            loop.run_until_complete(client.close(timeout_s=0))


def _report(client: Unclosed, closing: Begun[None], timeout_s: float) -> None:
    """Wait for its end; where it failed, say so."""
    try:
        closing.result(timeout_s)
    except (StreamlogError, TimeoutError) as error:
        report_lost(client, str(error) or "their cluster did not answer in time")


def _in_child() -> None:
    """Of a fork: what is open is closed by the parent."""
    _closing.clear()
    _open.clear()


os.register_at_fork(after_in_child=_in_child)
