"""A task is not begun in a group that is being cancelled, and leaves no warning."""

from __future__ import annotations

import asyncio

import pytest

from streamlog.aio.group_tasks import start_unless_ending, unwrapped


async def note(begun: list[str], what: str) -> None:
    begun.append(what)


async def test_a_group_that_runs_begins_it() -> None:
    begun: list[str] = []
    async with asyncio.TaskGroup() as tasks:
        assert start_unless_ending(tasks, note(begun, "in time")) is not None
    assert begun == ["in time"]
    assert start_unless_ending(tasks, note(begun, "late")) is None
    assert start_unless_ending(None, note(begun, "never")) is None
    assert begun == ["in time"]


async def test_a_group_that_is_being_cancelled_does_not() -> None:
    begun: list[str] = []

    async def end_slowly(tasks: asyncio.TaskGroup) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            assert start_unless_ending(tasks, note(begun, "late")) is None

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(end_slowly(tasks))
            await asyncio.get_running_loop().create_future()

    running = asyncio.ensure_future(run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert begun == []


async def test_an_error_of_a_group_is_raised_as_itself() -> None:
    async def fail() -> None:
        raise BlockingIOError("in a task of an inner group")

    async def run() -> None:
        try:
            async with asyncio.TaskGroup() as tasks, asyncio.TaskGroup() as inner:
                tasks.create_task(asyncio.sleep(0))
                inner.create_task(fail())
        except BaseExceptionGroup as group:
            raise unwrapped(group, OSError) from None

    with pytest.raises(BlockingIOError):
        await run()


def test_a_group_with_other_errors_stays_one() -> None:
    group = BaseExceptionGroup("", [OSError(), ExceptionGroup("", [OSError(), ValueError()])])
    assert unwrapped(group, OSError) is group
