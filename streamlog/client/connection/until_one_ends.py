"""The tasks of one stream: they end together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def run_until_one_ends(*works: Coroutine[Any, Any, None]) -> None:
    """Run all; when the first one ends, cancel the others. Raises what it raised."""
    tasks = [asyncio.ensure_future(work) for work in works]  # sim: awaited below
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task in done:
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
