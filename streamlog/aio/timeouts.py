"""`asyncio.timeout` and `asyncio.timeout_at`, with every Python that streamlog runs with.

Before Python 3.11.3 (Debian 12 has 3.11.2), a timeout that expires in a task which was cancelled earlier and goes on
ends the task with CancelledError instead of raising TimeoutError: https://github.com/python/cpython/issues/102780.
Every clean-up with a timeout is in such a task, and so is what follows a caught error of a TaskGroup: the group cancels
its task, and does not take that back.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType


class CountingTimeout:
    """Compares the number of the task's cancellations with that at its begin, as later versions do."""

    def __init__(self, when: float | None) -> None:
        self._scope = asyncio.timeout_at(when)
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0

    async def __aenter__(self) -> asyncio.Timeout:
        scope = await self._scope.__aenter__()
        self._task = asyncio.current_task()
        self._cancelling = 0 if self._task is None else self._task.cancelling()
        return scope

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._scope.__aexit__(kind, error, trace)
        if (
            kind is asyncio.CancelledError
            and self._scope.expired()
            and self._task is not None
            and self._task.cancelling() <= self._cancelling
        ):
            raise TimeoutError from error


def counting_timeout(delay_s: float | None) -> CountingTimeout:
    return CountingTimeout(None if delay_s is None else asyncio.get_running_loop().time() + delay_s)


timeout: Callable[[float | None], AbstractAsyncContextManager[asyncio.Timeout]] = counting_timeout
timeout_at: Callable[[float | None], AbstractAsyncContextManager[asyncio.Timeout]] = CountingTimeout
if sys.version_info >= (3, 11, 3):
    timeout, timeout_at = asyncio.timeout, asyncio.timeout_at
