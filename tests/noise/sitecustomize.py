"""Holds up, at random, what a busy machine holds up: syncs and reads of the disk, workers, calls, messages of streams.

`make test-noise` has this folder on its PYTHONPATH, so Python imports this file at the start of each process: pytest's
own, nodes, programs that tests start. Of a hundred steps seventy go on at once, twenty-five wait for up to 20 ms, four
or five for up to 200 ms and less than one for up to a second, all of that times STREAMLOG_NOISE.

A test that fails now and then on a busy machine has looked at something before it was so; here it fails more often
than not. And so does a node that leans on an order that is not guaranteed.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from streamlog.ports import posix_disk, system
from streamlog.ports.grpc_adapter import call as grpc_call
from streamlog.ports.grpc_adapter import channel as grpc_channel
from streamlog.ports.grpc_adapter import handlers as grpc_handlers

Step: TypeAlias = Callable[..., Awaitable[Any]]

SCALE: Final = float(os.environ.get("STREAMLOG_NOISE", "1"))
SHARES: Final = (0.70, 0.25, 0.045, 0.005)
LONGEST_S: Final = (0.0, 0.02, 0.2, 1.0)


def delay_s() -> float:
    [longest_s] = random.choices(LONGEST_S, SHARES)
    return random.random() * longest_s * SCALE


def held_before(step: Step) -> Step:
    async def held(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(delay_s())
        return await step(*args, **kwargs)

    return held


def held_behind(step: Step) -> Step:
    async def held(*args: Any, **kwargs: Any) -> Any:
        result = await step(*args, **kwargs)
        await asyncio.sleep(delay_s())
        return result

    return held


def held_in_its_thread(off_loop: Step) -> Step:
    """As by a slow device: the waiting task can be cancelled, the work cannot."""

    async def held(file: Any, pool: Any, work: Callable[[], Any]) -> Any:
        def slow_work() -> Any:
            time.sleep(delay_s())
            return work()

        return await off_loop(file, pool, slow_work)

    return held


HELD: Final = (
    (posix_disk.PosixFile, "_off_loop", held_in_its_thread),
    (posix_disk.PosixFileSystem, "sync_dir", held_before),
    (posix_disk.PosixFileSystem, "sync_all", held_before),
    (system.ThreadWorkers, "run", held_before),
    (grpc_channel.GrpcChannel, "unary", held_before),
    (grpc_handlers.Handlers, "_serve_call", held_behind),
    (grpc_call.Http2Call, "next", held_behind),
)

for owner, name, how in HELD:
    setattr(owner, name, how(getattr(owner, name)))
