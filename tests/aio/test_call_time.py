"""The coroutine around a call's work behaves as that work does."""

from __future__ import annotations

import asyncio

from streamlog.aio.call_time import CALL_TIME, CallTime, counted


class Switch:
    counts_time = True


def made() -> CallTime:
    ticks = iter(range(1_000))
    return CallTime(Switch(), lambda: float(next(ticks)))


async def test_results_errors_and_cancellation_pass_through() -> None:
    time = made()

    async def work(error: Exception | None) -> str:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            return "cancelled"
        if error is not None:
            raise error
        return "done"

    assert await time.count(work(None)) == "done"
    assert time.take() == 2.0, "two steps of one tick each"
    assert await asyncio.gather(time.count(work(ValueError("x"))), return_exceptions=True) != ["done"]
    task = asyncio.ensure_future(time.count(work(None)))
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "cancelled"


async def test_it_shows_the_frame_of_the_work_and_what_that_waits_for() -> None:
    async def inner() -> None:
        await asyncio.Event().wait()

    async def outer() -> None:
        await inner()

    CALL_TIME.set(made())
    work = counted(outer())
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    assert work.cr_frame is not None  # type: ignore[attr-defined]
    assert work.cr_await.__name__ == "inner"  # type: ignore[attr-defined]
    task.cancel()
    await asyncio.wait([task])
    assert work.cr_frame is None  # type: ignore[attr-defined]
