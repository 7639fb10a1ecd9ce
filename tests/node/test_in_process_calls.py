"""Calls of a node's methods by another front of its process: how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from streamlog.errors import InvalidRequestError, Status
from streamlog.node.in_process_calls import InProcessCalls
from streamlog.node.method_router import MethodRouter
from streamlog.node.metrics.calls import CallMeter
from streamlog.ports import CallInfo, RpcError, Stream, no_probe
from streamlog.ports.log_levels import LogLevels
from streamlog.ports.system import SystemClock
from streamlog.services.common.forwarding import TO_COORDINATOR

UNARY = "/streamlog.v1.Records/Publish"
STREAM = "/streamlog.v1.Records/Subscribe"
INTERNAL = "/streamlog.internal.v1.Identification/Identify"
INFO = CallInfo(method=UNARY, peer="10.0.0.1:5")

Unary = Callable[[bytes, CallInfo], Awaitable[bytes]]
Serve = Callable[[Stream, CallInfo], Awaitable[None]]


async def echo(request: bytes, info: CallInfo) -> bytes:
    return request


async def three(stream: Stream, info: CallInfo) -> None:
    assert (await stream.recv(), await stream.recv()) == (b"request", None)
    for number in range(3):
        await stream.send(b"%d" % number)


def calls(unary: Unary = echo, serve: Serve = three, crashed: list[Exception] | None = None) -> InProcessCalls:
    router = MethodRouter([UNARY, INTERNAL], [STREAM], CallMeter(SystemClock(), no_probe, LogLevels()))
    router.connect_handlers({UNARY: unary, INTERNAL: unary}, {STREAM: serve})
    return InProcessCalls(router, (crashed if crashed is not None else []).append)


async def test_the_handler_gets_the_call_as_it_is_and_a_mark() -> None:
    seen: list[CallInfo] = []

    async def see(request: bytes, info: CallInfo) -> bytes:
        seen.append(info)
        return request

    assert await calls(see).unary(b"x", INFO) == b"x"
    assert (seen[0].peer, seen[0].identity, seen[0].names, seen[0].certificate) == (INFO.peer, None, (), None)
    assert seen[0].metadata == {TO_COORDINATOR: "1"}


async def test_methods_between_nodes_are_not_there() -> None:
    with pytest.raises(KeyError):
        await calls().unary(b"", CallInfo(method=INTERNAL, peer=""))


async def test_errors() -> None:
    async def refuse(request: bytes, info: CallInfo) -> bytes:
        raise RpcError(Status.NOT_FOUND, "not here") if request == b"1" else InvalidRequestError("bad", field="x")

    for request, status in ((b"1", Status.NOT_FOUND), (b"2", Status.INVALID_ARGUMENT)):
        with pytest.raises(RpcError) as caught:
            await calls(refuse).unary(request, INFO)
        assert caught.value.status is status


async def test_an_unexpected_error_is_the_nodes() -> None:
    crashed: list[Exception] = []
    error = ValueError("secret")

    async def fail(request: bytes, info: CallInfo) -> bytes:
        raise error

    with pytest.raises(RpcError, match=r"^UNKNOWN: the handler failed$"):
        await calls(fail, crashed=crashed).unary(b"", INFO)
    assert crashed == [error]


async def test_a_stream() -> None:
    stream = calls().open_stream(b"request", CallInfo(method=STREAM, peer=""))
    assert [await stream.next() for _ in range(4)] == [b"0", b"1", b"2", None]
    assert await stream.next() is None


async def test_a_stream_that_is_not_read_waits() -> None:
    sent: list[int] = []

    async def many(stream: Stream, info: CallInfo) -> None:
        for number in range(100):
            await stream.send(b"%d" % number)
            sent.append(number)

    stream = calls(serve=many).open_stream(b"", CallInfo(method=STREAM, peer=""))
    for _ in range(50):
        await asyncio.sleep(0)
    assert sent == [0]
    assert await stream.next() == b"0"
    stream.close()
    assert stream.task is not None
    await asyncio.wait([stream.task])
    assert stream.task.cancelled()


async def test_a_stream_that_fails_after_its_responses() -> None:
    async def fail(stream: Stream, info: CallInfo) -> None:
        await stream.send(b"1")
        raise InvalidRequestError("bad", field="x")

    stream = calls(serve=fail).open_stream(b"", CallInfo(method=STREAM, peer=""))
    assert await stream.next() == b"1"
    with pytest.raises(RpcError, match="bad"):
        await stream.next()


async def test_the_node_stops() -> None:
    started = asyncio.Event()

    async def wait(request: bytes, info: CallInfo) -> bytes:
        started.set()
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async def wait_in_stream(stream: Stream, info: CallInfo) -> None:
        await stream.send(b"1")
        await stream.send(b"2")  # not taken, so it waits

    made = calls(wait, wait_in_stream)
    call = asyncio.create_task(made.unary(b"", INFO))
    stream = made.open_stream(b"", CallInfo(method=STREAM, peer=""))
    await started.wait()
    await made.close(0.001)
    with pytest.raises(RpcError, match=r"UNAVAILABLE: the node stops.*unknown"):
        await call
    assert await stream.next() == b"1"
    with pytest.raises(RpcError, match="UNAVAILABLE: the node stops: continue at another node"):
        await stream.next()
    with pytest.raises(RpcError, match="UNAVAILABLE"):
        await made.unary(b"", INFO)
    with pytest.raises(RpcError, match="UNAVAILABLE"):
        await made.open_stream(b"", CallInfo(method=STREAM, peer="")).next()


async def test_a_reader_is_not_left_waiting_whatever_ends_the_handler() -> None:
    """Such as a cancellation that is not of the stream and not of the node."""

    async def cancelled(stream: Stream, info: CallInfo) -> None:
        await stream.send(b"1")
        raise asyncio.CancelledError

    stream = calls(serve=cancelled).open_stream(b"", CallInfo(method=STREAM, peer=""))
    assert await stream.next() == b"1"
    with pytest.raises(RpcError, match="UNAVAILABLE: the stream was ended"):
        await stream.next()
