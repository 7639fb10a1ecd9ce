"""Producers that a program does not close: their records are sent at its end, with a warning, for FLUSH_S at most, all
of them together, or until Ctrl-C.

    Producer        collected, or open when the interpreter exits --> closed in the background, awaited at the exit
    AsyncProducer   `asyncio.run` cancels its task                --> the task flushes before it ends
                    its loop stands still when the program exits  --> the loop is run once more, for the flush

ResourceWarning names the producer (shown with `python -X dev`, or -W default). Records that are lost all the same are
an error in the log; in a program that does not configure logging a RuntimeWarning, which Python prints.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import time
import warnings
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Final

from streamlog.client.connection.sync_loop import Begun, LoopThread
from streamlog.errors import StreamlogError

FLUSH_S: Final = 10.0
LEAST_S: Final = 0.1
_log: Final = logging.getLogger(__name__)


class Unclosed:
    """A producer as it is seen here. Kept by the producer."""

    def __init__(
        self,
        name: str,
        stopped_loop: Callable[[], asyncio.AbstractEventLoop | None],
        close: Callable[..., Coroutine[Any, Any, None]],
    ) -> None:
        """`name`: for messages. `stopped_loop`: its loop, where that does not run any more and the producer is open.
        `close`: with a `timeout_s`.
        """
        self.name = name
        self.stopped_loop = stopped_loop
        self.close = close


_closing: Final[list[tuple[str, Begun[None]]]] = []  # clients that are closed in the background
_open: Final[weakref.WeakSet[Unclosed]] = weakref.WeakSet()  # asynchronous ones


def warn(name: str) -> None:
    warnings.warn(
        f"{name} was not closed: its records are sent now, for {FLUSH_S:g} s at most; use `with`, or call close()",
        ResourceWarning,
        stacklevel=3,
    )


def report_lost(name: str, error: object) -> None:
    text = f"{name} was not closed, and records that it held may be lost: {error}"
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
        warn(client.name)
        closing = thread.begin(client.close(timeout_s=FLUSH_S))
        _closing.append((client.name, closing))
        closing.add_done_callback(lambda _closing: thread.stop())


def flush_at_exit(client: Unclosed) -> None:
    """Unless it was closed before."""
    _open.add(client)


@atexit.register  # before any `finalize` is made, so it runs after them
def _at_exit() -> None:
    """All of them within FLUSH_S, and less where the user interrupts it."""
    deadline_s = time.monotonic() + FLUSH_S
    waiting = [client for client in _open if client.stopped_loop() is not None]
    try:
        while waiting:
            _close_loopless(waiting[-1], _left_s(deadline_s))
            waiting.pop()
        while _closing:
            _wait_for(*_closing[-1], _left_s(deadline_s) + 1)
            _closing.pop()
    except KeyboardInterrupt:
        for name in [*(client.name for client in waiting), *(name for name, closing in _closing if not closing.done())]:
            report_lost(name, "the wait for them was interrupted")


def _left_s(deadline_s: float) -> float:
    """A little for each, at least: without time a client drops its records and reports none."""
    return round(max(LEAST_S, deadline_s - time.monotonic()), 1)


def _close_loopless(client: Unclosed, timeout_s: float) -> None:
    loop = client.stopped_loop()
    assert loop is not None
    warn(client.name)
    try:
        loop.run_until_complete(client.close(timeout_s=timeout_s))
    except StreamlogError as error:
        report_lost(client.name, error)


def _wait_for(name: str, closing: Begun[None], timeout_s: float) -> None:
    try:
        closing.result(timeout_s)
    except (StreamlogError, TimeoutError) as error:
        report_lost(name, str(error) or "their cluster did not answer in time")
