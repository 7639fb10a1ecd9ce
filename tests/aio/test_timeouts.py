"""A timeout expires with TimeoutError in a task that has been cancelled before, with every Python; another cancellation
meanwhile is not hidden.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from streamlog.aio.timeouts import CountingTimeout, counting_timeout, timeout, timeout_at

WAYS = {"of this Python": (timeout, timeout_at), "counting": (counting_timeout, CountingTimeout)}
Delay = Callable[[float | None], AbstractAsyncContextManager[asyncio.Timeout]]


@pytest.fixture(params=WAYS)
def delay(request: pytest.FixtureRequest) -> Delay:
    return WAYS[request.param][0]


async def for_ever() -> None:
    await asyncio.get_running_loop().create_future()


async def cancelled_and_going_on(delay: Delay, delay_s: float | None, *, again: bool) -> str:
    """How a timeout ends in a task that has been cancelled, as a clean-up sees it; `again`: and is once more."""
    task = asyncio.current_task()
    assert task is not None
    try:
        await for_ever()
    except asyncio.CancelledError:
        pass
    try:
        async with delay(delay_s):
            if again:
                asyncio.get_running_loop().call_soon(task.cancel)
            await for_ever()
    except TimeoutError:
        return "timeout"
    except asyncio.CancelledError:
        return "cancelled"
    return "neither"


async def outcome(delay: Delay, delay_s: float | None, *, again: bool) -> str:
    task = asyncio.ensure_future(cancelled_and_going_on(delay, delay_s, again=again))
    await asyncio.sleep(0)
    task.cancel()
    return await task


async def test_it_expires_in_a_task_that_has_been_cancelled(delay: Delay) -> None:
    assert await outcome(delay, 0.0, again=False) == "timeout"


@pytest.mark.parametrize("delay_s", [None, 60.0, 0.0], ids=["none", "before it expires", "as it expires"])
async def test_another_cancellation_is_one(delay: Delay, delay_s: float | None) -> None:
    assert await outcome(delay, delay_s, again=True) == "cancelled"


async def test_it_expires_after_an_error_of_a_group(delay: Delay) -> None:
    async def fail() -> None:
        raise OSError("as a task of a group")

    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())
    with pytest.raises(TimeoutError):
        async with delay(0.0):
            await for_ever()


@pytest.mark.parametrize("way", WAYS)
async def test_a_block_that_ends_in_time_is_left_alone(way: str) -> None:
    delay, at = WAYS[way]
    async with delay(60.0) as scope:
        pass
    assert not scope.expired()
    async with at(asyncio.get_running_loop().time() + 60.0) as scope:
        pass
    assert not scope.expired()
    with pytest.raises(ValueError, match="its own"):
        async with delay(60.0):
            raise ValueError("its own")
