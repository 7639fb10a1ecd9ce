"""Work in a pool's thread, and its caller on the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from streamlog.ports.threads.off_loop import off_loop


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


async def test_the_result_and_then_the_end(pool: ThreadPoolExecutor) -> None:
    steps: list[str] = []

    def work() -> str:
        steps.append(threading.current_thread().name)
        return "done"

    assert await off_loop(pool, work, lambda: steps.append("ended")) == "done"
    assert steps[0] != threading.current_thread().name
    assert steps[1:] == ["ended"]


async def test_an_exception_is_the_callers(pool: ThreadPoolExecutor) -> None:
    ended = threading.Event()

    def work() -> None:
        raise OSError(5, "the disk")

    with pytest.raises(OSError, match="the disk"):
        await off_loop(pool, work, ended.set)
    assert ended.is_set()


async def test_work_goes_on_where_its_caller_is_cancelled(pool: ThreadPoolExecutor) -> None:
    begun, may_end, ended = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        loop.call_soon_threadsafe(begun.set)
        assert may_end.wait(60)

    running = asyncio.ensure_future(off_loop(pool, work, ended.set))
    await begun.wait()
    waiting_worked = threading.Event()
    waiting_ended = threading.Event()
    waiting = asyncio.ensure_future(off_loop(pool, waiting_worked.set, waiting_ended.set))
    await asyncio.sleep(0)
    for one in (running, waiting):
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
    assert not ended.is_set()
    may_end.set()
    assert await off_loop(pool, lambda: "next") == "next"
    assert ended.is_set()
    assert waiting_ended.is_set()
    assert not waiting_worked.is_set(), "it had not begun when its caller was cancelled"


async def test_a_pool_that_is_shut_down(pool: ThreadPoolExecutor) -> None:
    pool.shutdown()
    ended = threading.Event()
    with pytest.raises(RuntimeError):
        await off_loop(pool, lambda: None, ended.set)
    assert ended.is_set()


def test_the_loop_is_closed_meanwhile(pool: ThreadPoolExecutor) -> None:
    may_end, ended = threading.Event(), threading.Event()

    async def leave() -> None:
        running = asyncio.ensure_future(off_loop(pool, lambda: may_end.wait(60), ended.set))
        await asyncio.sleep(0)
        running.cancel()

    asyncio.run(leave())
    may_end.set()
    assert ended.wait(60)
