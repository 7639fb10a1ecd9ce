"""Ask several at once, and have the answers in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Row = TypeVar("Row")


async def call_each(items: Sequence[Item], ask: Callable[[Item], Awaitable[Row]], *, at_once: int) -> list[Row]:
    """The answers in the order of the items; no more than `at_once` are asked at the same time."""
    turns = asyncio.Semaphore(at_once)

    async def in_turn(item: Item) -> Row:
        async with turns:
            return await ask(item)

    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(in_turn(item)) for item in items]
    return [task.result() for task in asked]
