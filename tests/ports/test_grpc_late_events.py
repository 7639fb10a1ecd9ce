"""Loops that come and go in one process: late events of gRPC for closed ones are dropped."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from streamlog.ports.grpc_adapter.late_events import silence_late_events

PROGRAM = """
import asyncio, sys, threading
from streamlog.ports.grpc_adapter.network import GrpcNetwork

started, address = threading.Event(), []

async def answer_never(stream, call):
    await asyncio.Event().wait()

async def serve():
    network = GrpcNetwork(on_crash=print)
    server = await network.listen("127.0.0.1:0", unary={}, streaming={"/s/m": answer_never})
    address.append(server.address)
    started.set()
    await asyncio.Event().wait()

async def use():
    network = GrpcNetwork(on_crash=print)
    for _ in range(3):
        async with network.connect(address[0]).stream("/s/m") as stream:
            await stream.send(b"x")
            receiving = asyncio.ensure_future(stream.recv())
            await asyncio.sleep(0)
            receiving.cancel()
    await network.close()

threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
started.wait()
for _ in range(100):
    asyncio.run(use())
print("done")
"""


def test_a_process_of_many_loops_is_quiet() -> None:
    """Without the filter there are some ten tracebacks in a run."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert (ran.stdout, ran.stderr) == ("done\n", "")


@pytest.mark.parametrize(
    ("message", "error", "logged"),
    [
        ("Exception in callback PollerCompletionQueue._handle_events(...)()", RuntimeError("Event loop is closed"), 0),
        ("Exception in callback PollerCompletionQueue._handle_events(...)()", RuntimeError("something else"), 1),
        ("Exception in callback other()", RuntimeError("Event loop is closed"), 1),
        ("no exception", None, 1),
    ],
)
def test_nothing_else_is_kept_back(
    message: str, error: Exception | None, logged: int, caplog: pytest.LogCaptureFixture
) -> None:
    silence_late_events()
    silence_late_events()
    logging.getLogger("asyncio").error(message, exc_info=error)
    assert len(caplog.records) == logged


@pytest.mark.parametrize(("kind", "logged"), [("ExecuteBatchError", 0), ("ValueError", 1)])
def test_a_caller_that_has_gone_is_no_error(caplog: pytest.LogCaptureFixture, kind: str, logged: int) -> None:
    silence_late_events()
    error = type(kind, (Exception,), {})("the call has ended")
    logging.getLogger("grpc._cython.cygrpc").error("raised by servicer method [/s/m]", exc_info=error)
    assert len(caplog.records) == logged
