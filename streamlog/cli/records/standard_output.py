"""Standard output in an event loop: a thread writes what does not fit into a pipe's buffer, and all that goes to a
terminal: such writes block while the reader is slow, and a member's heartbeats must go on.

It is a daemon thread, and writes to the descriptor itself: neither a pending write nor the lock of `sys.stdout` that it
would hold may prevent the process from exiting.
"""

from __future__ import annotations

import asyncio
import os
import select
import stat
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final

_LAST_S: Final = 0.1
"""How long a write is waited for when it is cancelled: a reader may have taken all of it before it interrupts this
process, and then it counts as written.
"""


async def write(data: bytes) -> bool:
    """Returns when all of it is written, so that the next write comes after it; False: this was cancelled meanwhile,
    and the work is to end now. CancelledError: it was cancelled, and not all is written. OSError.
    """
    fd = sys.stdout.fileno()
    left = _write_at_once(fd, data)
    if not left:
        return True
    result: Future[None] = Future()
    result.set_running_or_notify_cancel()
    threading.Thread(target=_write, args=(fd, left, result), name="stdout-write", daemon=True).start()
    written = asyncio.wrap_future(result)
    try:
        await asyncio.shield(written)
    except asyncio.CancelledError:
        try:
            await asyncio.wait([written], timeout=_LAST_S)
        finally:
            unfinished = written.cancel()  # else its thread could find the loop closed
        if unfinished:
            raise
        written.result()
        return False
    return True


def _write_at_once(fd: int, data: bytes) -> memoryview:
    """What it would have to wait for is left, and returned."""
    left, mode = memoryview(data), os.fstat(fd).st_mode
    if stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not os.isatty(fd)):
        _write_all(fd, left)
        return left[:0]
    if stat.S_ISFIFO(mode):
        writable = select.poll()
        writable.register(fd, select.POLLOUT)
        while left and writable.poll(0):  # then it takes PIPE_BUF bytes
            left = left[os.write(fd, left[: select.PIPE_BUF]) :]
    return left


def _write(fd: int, data: memoryview, result: Future[None]) -> None:
    try:
        _write_all(fd, data)
    except OSError as error:
        result.set_exception(error)
    else:
        result.set_result(None)


def _write_all(fd: int, data: memoryview) -> None:
    while data:
        data = data[os.write(fd, data) :]


async def while_open(work: Coroutine[Any, Any, None]) -> None:
    """Runs the work; BrokenPipeError where it is cancelled since standard output was closed: for a pipe, this is
    noticed at once.
    """
    writing = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    fd = sys.stdout.fileno()
    if stat.S_ISFIFO(os.fstat(fd).st_mode):
        watch = (loop, fd, writing.cancel)
        threading.Thread(target=_watch, args=watch, name="stdout", daemon=True).start()
    try:
        await writing
    except asyncio.CancelledError:
        if is_interrupted():
            raise
        raise BrokenPipeError from None


def is_interrupted() -> bool:
    """By Ctrl-C."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _watch(loop: asyncio.AbstractEventLoop, fd: int, closed: Callable[[], object]) -> None:
    """In a thread, since the event loop would make the pipe non-blocking, also for other processes that write to it."""
    poll = select.poll()
    poll.register(fd, 0)  # errors and hang-ups are always reported
    poll.poll()
    try:
        loop.call_soon_threadsafe(closed)
    except RuntimeError:
        pass  # the loop has ended
