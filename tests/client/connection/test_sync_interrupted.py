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
