"""The node's event loop, as the HTTP listener's thread reaches it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from streamlog.aio.timeouts import timeout

T = TypeVar("T")


class NodeLoop:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def run(self, work: Callable[[], Awaitable[T]], timeout_s: float | None) -> T:
        """`work` in a task of the node's loop, which is cancelled with this call. TimeoutError."""

        async def call() -> T:
            return await work()

        coroutine = call()
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # the loop is closed: the process is about to exit
            coroutine.close()
            raise TimeoutError from None
        async with timeout(timeout_s):
            return await asyncio.wrap_future(future)

    def post(self, work: Callable[[], object]) -> None:
        """`work` on the node's loop, soon; not at all once it is closed."""
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:
            pass
