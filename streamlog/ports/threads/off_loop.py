"""Blocking work in a thread of a pool, awaited on the event loop.

    loop --submit--> thread: work --call_soon_threadsafe--> loop: result or exception

As `asyncio.wrap_future(pool.submit(work))`, which takes half as much CPU again: its second future notifies the first by
callbacks under a lock each. A disk is synced once for each record that is produced alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import TypeVar

T = TypeVar("T")


def _nothing() -> None:
    """No one waits for the end of the work."""


async def off_loop(pool: Executor, work: Callable[[], T], ended: Callable[[], None] = _nothing) -> T:
    """The result of `work`, or what it raises. `ended` is called in any case: in the thread once the work has ended,
    although the caller may have been cancelled (work that has not begun by then is left out), or at once where the pool
    has been shut down (RuntimeError).
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    try:
        pool.submit(_run, loop, done, work, ended)
    except RuntimeError:
        ended()
        raise
    return await done


def _run(
    loop: asyncio.AbstractEventLoop, done: asyncio.Future[T], work: Callable[[], T], ended: Callable[[], None]
) -> None:
    settle: Callable[[], None]
    try:
        if not done.cancelled():
            settle = partial(done.set_result, work())
    except BaseException as error:  # noqa: BLE001  # the caller gets it, whatever it is
        settle = partial(done.set_exception, error)
    finally:
        ended()
    if not done.cancelled() and not loop.is_closed():
        loop.call_soon_threadsafe(_settle, done, settle)


def _settle(done: asyncio.Future[T], settle: Callable[[], None]) -> None:
    if not done.cancelled():
        settle()
