"""Concurrent calls, with the results in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from streamlog.aio.call_time import counted

Item = TypeVar("Item")
Row = TypeVar("Row")


async def call_each(items: Sequence[Item], call: Callable[[Item], Awaitable[Row]], *, at_once: int) -> list[Row]:
    """The results in the order of the items, from at most `at_once` concurrent calls."""
    slots = asyncio.Semaphore(at_once)

    async def run(item: Item) -> Row:
        async with slots:
            return await call(item)

    async with asyncio.TaskGroup() as tasks:
        calls = [tasks.create_task(counted(run(item))) for item in items]
    return [task.result() for task in calls]
