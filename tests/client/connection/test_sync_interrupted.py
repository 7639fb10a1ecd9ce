"""Ctrl-C in a thread that waits on a synchronous client's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from streamlog.client.connection.sync_loop import LoopThread

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    one = LoopThread("test")
    yield one
    one.close()


def interrupt() -> None:
    raise KeyboardInterrupt


def test_a_call_after_an_interrupted_one_serves_its_jobs(thread: LoopThread) -> None:
    async def ends_when_interrupted() -> None:
        interrupting = asyncio.ensure_future(thread.in_front(interrupt))
        await asyncio.sleep(0)
        interrupting.cancel()

    with pytest.raises(KeyboardInterrupt):
        thread.call_in_front(ends_when_interrupted())
    called: list[str] = []
    thread.call_in_front(thread.in_front(called.append, "listener"))
    assert called == ["listener"]


def test_a_job_may_make_a_call_with_jobs_of_its_own(thread: LoopThread) -> None:
    called: list[str] = []

    async def two_jobs() -> None:
        await thread.in_front(thread.call_in_front, thread.in_front(called.append, "inner"))
        await thread.in_front(called.append, "outer")

    thread.call_in_front(two_jobs())
    assert called == ["inner", "outer"]


def test_the_result_of_work_that_ends_all_the_same_is_undone(thread: LoopThread) -> None:
    async def takes_records() -> list[str]:
        interrupting = asyncio.ensure_future(thread.in_front(interrupt))
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            interrupting.cancel()
        return ["record"]

    undone: list[list[str]] = []
    with pytest.raises(KeyboardInterrupt):
        thread.call_in_front(takes_records(), undone.append)
    assert undone == [["record"]]


@pytest.mark.parametrize("fails", [False, True])
def test_work_that_has_no_result_has_ended_before_the_interrupt_is_raised(thread: LoopThread, fails: bool) -> None:
    seen: list[object] = []

    async def waits() -> None:
        interrupting = asyncio.ensure_future(thread.in_front(interrupt))
        try:
            await asyncio.sleep(3600)
        finally:
            interrupting.cancel()
            await asyncio.sleep(0)
            seen.append("ended")
            if fails:
                raise ZeroDivisionError

    with pytest.raises(KeyboardInterrupt):
        thread.call_in_front(waits(), seen.append)
    assert seen == ["ended"]


def test_an_error_of_the_work_is_raised(thread: LoopThread) -> None:
    async def fails() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        thread.call_in_front(fails())
