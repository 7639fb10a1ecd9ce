"""What grpc.aio allocates for an operation is freed, also if its end is never awaited."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from typing import Any

import pytest

from streamlog.ports.grpc_adapter.abandoned_batches import _Freeing
from streamlog.ports.system import new_event_loop


class Failed(Exception):
    pass


class Core:
    """grpcio's `execute_batch` and what it awaits."""

    def __init__(self) -> None:
        self.started: list[Any] = []
        self.freed: list[Any] = []
        self.execute_batch = _Freeing(self._execute_batch)

    async def _execute_batch(self, call: Any, operations: Any, loop: Any) -> None:
        future = loop.create_future()
        self.started.append(future)
        await future
        self.freed.append(operations)

    def complete(self, failure: Exception | None = None) -> None:
        """As grpcio's callback does."""
        waiter = self.started.pop(0)
        if not waiter.cancelled():
            if failure is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(failure)


async def started(core: Core, operations: str) -> asyncio.Task[None]:
    task = asyncio.create_task(core.execute_batch("call", operations, asyncio.get_running_loop()))
    await asyncio.sleep(0)
    return task


def test_a_batch_that_completes() -> None:
    async def main() -> None:
        core = Core()
        task = await started(core, "a")
        assert core.freed == []
        core.complete()
        await task
        assert core.freed == ["a"]
        assert isinstance(asyncio.get_running_loop().create_future(), asyncio.Future)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())
    asyncio.run(main())  # asyncio's own loop


def test_a_batch_that_fails_is_freed_and_leaves_no_cycle() -> None:
    async def main() -> None:
        core = Core()
        task = await started(core, "a")
        core.complete(Failed())
        try:
            await task
        except Failed:
            core.freed.append("failed")
        assert core.freed == ["a", "failed"]
        del task
        await asyncio.sleep(0)  # this step was called with the task
        assert not [one for one in gc.get_objects() if type(one).__name__ == "_Completion"]

    gc.collect()
    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()


@pytest.mark.parametrize("failure", [None, Failed("after it was cancelled")])
def test_a_cancelled_batch_is_freed_when_the_core_has_completed_it(failure: Failed | None) -> None:
    async def main() -> None:
        core = Core()
        task, other = await started(core, "a"), await started(core, "b")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert core.freed == []  # the core still writes into it
        core.complete(failure)
        assert core.freed == ["a"]
        core.complete()
        await other
        assert core.freed == ["a", "b"]

    asyncio.run(main())


def test_a_batch_that_completes_while_its_task_is_cancelled() -> None:
    async def main() -> None:
        core = Core()
        first, second = await started(core, "a"), await started(core, "b")
        core.complete()
        first.cancel()
        second.cancel()
        core.complete()
        for task in (first, second):
            with pytest.raises(asyncio.CancelledError):
                await task
        assert core.freed == ["a", "b"]

    asyncio.run(main())


def test_a_batch_that_cannot_be_started() -> None:
    async def main() -> None:
        async def refused(call: Any, operations: Any, loop: Any) -> None:
            loop.create_future()
            raise Failed("not started")

        with pytest.raises(Failed):
            await _Freeing(refused)("call", "a", asyncio.get_running_loop())
        assert isinstance(asyncio.get_running_loop().create_future(), asyncio.Future)

    asyncio.run(main())


PROGRAM = """
import asyncio, gc, sys, time
from streamlog.ports.grpc_adapter.abandoned_batches import free_abandoned_batches
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.ports.malloc import bytes_in_use
from streamlog.ports.system import run

CALLS = 200

async def echo(stream, call):
    while (message := await stream.recv()) is not None:
        await stream.send(message)

async def main():
    if sys.argv[1] == "freed":
        free_abandoned_batches()
    network = GrpcNetwork(on_crash=print)
    server = await network.listen("127.0.0.1:0", unary={}, streaming={"/s/m": echo})
    channel = network.connect(server.address)

    async def cancelled():  # the server awaits the next message
        for _ in range(CALLS):
            async with channel.stream("/s/m") as stream:
                await stream.send(b"x")
                await stream.recv()

    await cancelled()
    before = await settled(0)
    await cancelled()
    after = await settled(before + CALLS * 50)
    print((after - before) // CALLS < 50)
    await network.close()

async def settled(wanted):
    end = time.monotonic() + (10 if wanted else 1)
    while time.monotonic() < end:
        await asyncio.sleep(0.05)
        gc.collect()
        if bytes_in_use() < wanted:
            break
    return bytes_in_use()

run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
def test_cancelled_calls_take_no_memory() -> None:
    """Without it a server keeps 96 bytes of each."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM, "freed"], capture_output=True, text=True, timeout=110)
    assert (ran.stdout.strip(), ran.stderr) == ("True", "")


def test_the_daemon_frees_them() -> None:
    program = (
        "from streamlog.ports.grpc_adapter.abandoned_batches import _Freeing, free_abandoned_batches\n"
        "from grpc._cython import cygrpc\n"
        "print(free_abandoned_batches() == free_abandoned_batches() == isinstance(cygrpc.execute_batch, _Freeing))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ran.stdout.strip(), ran.stderr) == ("True", "")
