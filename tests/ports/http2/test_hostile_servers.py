"""What a server may do to its callers: how their calls end, and that the connection is used no longer."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from streamlog.errors import Status
from streamlog.ports import NotSentError, RpcError
from streamlog.ports.grpc_adapter import frame_reader as limits
from streamlog.ports.grpc_adapter import frames
from streamlog.ports.grpc_adapter.call import Http2Call
from streamlog.ports.grpc_adapter.client_connection import ClientConnection, ClientStream
from streamlog.ports.grpc_adapter.frames import Code, SettingKey
from streamlog.ports.grpc_adapter.metadata import request_fields

from .peers import ECHO, Peer, connected, data, message, settled

RESPONSE = [(":status", "200"), ("content-type", "application/grpc")]


def connection_of(peer: Peer) -> ClientConnection:
    return cast(ClientConnection, peer.connection)


async def begun(peer: Peer, value: bytes | None = b"request") -> Http2Call:
    return await connection_of(peer).open(request_fields(ECHO, "http", "x", ()), value)


async def ended(call: Http2Call) -> tuple[str, str]:
    """Name of its status, and its message."""
    stream = ClientStream(call)
    try:
        while await stream.recv() is not None:
            pass
    except RpcError as error:
        return error.status.name, error.message
    finally:
        call.drop()
    return "OK", ""


def check_nothing_held(peer: Peer) -> None:
    inflow = peer.connection._inflow
    assert inflow.bytes_held == 0
    assert not peer.connection.calls


async def test_a_reset_behind_the_end_of_a_call_is_no_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RESETS_MAX", 2)
    peer = connected()
    for number in range(1, 20, 2):
        call = await begun(peer, None)
        end = peer.headers(number, [*RESPONSE, ("grpc-status", "0")], last=True)
        peer.feed(end + frames.reset(number, Code.NO_ERROR))
        assert await ended(call) == ("OK", "")
    assert peer.end() is None
    check_nothing_held(peer)


async def test_a_call() -> None:
    peer = connected()
    call = await begun(peer)
    assert peer.messages(1) == message(b"request")
    peer.feed(
        peer.headers(1, RESPONSE), data(1, message(b"answer")), peer.headers(1, [("grpc-status", "0")], last=True)
    )
    assert await call.next() == b"answer"
    assert await ended(call) == ("OK", "")
    check_nothing_held(peer)


ENDS: dict[str, tuple[object, str, str]] = {
    "a status": (
        lambda peer: peer.headers(1, [*RESPONSE, ("grpc-status", "5"), ("grpc-message", "no%20%C3%A4")], last=True),
        "NOT_FOUND",
        "no ä",
    ),
    "an unknown status": (lambda peer: peer.headers(1, [*RESPONSE, ("grpc-status", "99")], last=True), "UNKNOWN", ""),
    "no number": (lambda peer: peer.headers(1, [*RESPONSE, ("grpc-status", "x" * 99)], last=True), "UNKNOWN", ""),
    "a proxy": (lambda peer: peer.headers(1, [(":status", "503")], last=True), "UNAVAILABLE", "HTTP status 503"),
    "a page": (lambda peer: peer.headers(1, [(":status", "404")]), "UNIMPLEMENTED", "HTTP status 404"),
    "no status": (lambda peer: peer.headers(1, RESPONSE) + data(1, b"", last=True), "INTERNAL", "without a status"),
    "two responses": (lambda peer: peer.headers(1, RESPONSE) + peer.headers(1, RESPONSE), "INTERNAL", "headers within"),
    "the end in a message": (
        lambda peer: (
            peer.headers(1, RESPONSE) + data(1, b"\0\0\0\0\x09abc") + peer.headers(1, [("grpc-status", "0")], last=True)
        ),
        "INTERNAL",
        "within a message",
    ),
    "a message that is too large": (
        lambda peer: peer.headers(1, RESPONSE) + data(1, b"\0\x7f\0\0\0"),
        "RESOURCE_EXHAUSTED",
        "CLIENT: Received message larger than max",
    ),
    "more than the window": (
        lambda peer: peer.headers(1, RESPONSE) + data(1, message(bytes(200_000))) * 6,
        "INTERNAL",
        "window",
    ),
    "no credit": (lambda _: frames.window_update(1, 0), "INTERNAL", "WINDOW_UPDATE"),
    "a reset": (lambda _: frames.reset(1, Code.INTERNAL_ERROR), "INTERNAL", "HTTP/2 error 2"),
    "a reset of no known code": (
        lambda _: frames.frame(frames.RST_STREAM, 0, 1, b"\xff\xff\xff\xff"),
        "INTERNAL",
        "HTTP/2 error 4294967295",
    ),
    "a cancel": (lambda _: frames.reset(1, Code.CANCEL), "CANCELLED", "reset"),
    "calm": (lambda _: frames.reset(1, Code.ENHANCE_YOUR_CALM), "RESOURCE_EXHAUSTED", "reset"),
}


@pytest.mark.parametrize("name", ENDS)
async def test_how_a_call_ends(name: str) -> None:
    make, status, text = ENDS[name]
    peer = connected()
    call = await begun(peer)
    peer.feed(make(peer))  # type: ignore[operator]
    found, said = await ended(call)
    assert found == status
    assert text in said
    assert peer.end() is None
    other = await begun(peer)  # the connection is still of use
    peer.feed(peer.headers(other.number, [*RESPONSE, ("grpc-status", "0")], last=True))
    assert await ended(other) == ("OK", "")
    check_nothing_held(peer)


FAULTS = {
    "a push": (frames.frame(frames.PUSH_PROMISE, 4, 1, bytes(4)), Code.PROTOCOL_ERROR),
    "data of a call that was not begun": (data(7, b"x"), Code.PROTOCOL_ERROR),
    "data of a stream of its own": (data(2, b"x"), Code.PROTOCOL_ERROR),
    "credit of a call that was not begun": (frames.window_update(7, 1), Code.PROTOCOL_ERROR),
    "too much credit": (frames.window_update(0, frames.WINDOW_MAX), Code.FLOW_CONTROL_ERROR),
    "fields that unpack to much": (
        frames.frame(frames.HEADERS, 4, 1, b"\x40\x01a\x7f\x81\x16" + bytes(2_944) + b"\xbe" * 1_000),
        Code.ENHANCE_YOUR_CALM,
    ),
    "an unending header block": (
        frames.frame(frames.HEADERS, 0, 1) + frames.frame(frames.CONTINUATION, 0, 1, bytes(1_000)) * 70,
        Code.ENHANCE_YOUR_CALM,
    ),
    "pings": (frames.PING_OF_OURS * (limits.IDLE_FRAMES_MAX + 10), Code.ENHANCE_YOUR_CALM),
    "headers of no call": (
        frames.frame(frames.HEADERS, 4, 1, b"\x88") * (limits.IDLE_FRAMES_MAX + 10),
        Code.ENHANCE_YOUR_CALM,
    ),
    "goodbyes": (frames.go_away(9, Code.NO_ERROR) * (limits.IDLE_FRAMES_MAX + 10), Code.ENHANCE_YOUR_CALM),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_ends_the_connection_and_its_calls(name: str) -> None:
    peer = connected()
    waiting, left = await begun(peer), await begun(peer)
    given, code = FAULTS[name]
    if name == "headers of no call":
        waiting, left = left, waiting
        left.reset(Code.CANCEL, None)
    peer.feed(given)
    while not peer.wire.closed:
        await settled()
    end = peer.end()
    assert end is not None
    assert end[0] is code
    found, said = await ended(waiting)
    assert (found, said) == ("UNAVAILABLE", end[1])
    with pytest.raises(NotSentError):
        await begun(peer)
    check_nothing_held(peer)


async def test_calls_that_the_server_has_not_handled_were_not_sent() -> None:
    peer = connected()
    handled, not_handled = await begun(peer), await begun(peer)
    peer.feed(frames.go_away(handled.number, Code.NO_ERROR, "restarting"))
    assert isinstance(not_handled.failure(), NotSentError)
    with pytest.raises(NotSentError):
        await begun(peer)
    peer.feed(peer.headers(1, [*RESPONSE, ("grpc-status", "0")], last=True))
    assert await ended(handled) == ("OK", "")
    await settled()
    assert peer.wire.closed
    check_nothing_held(peer)


async def test_a_refused_stream_was_not_sent() -> None:
    peer = connected()
    call = await begun(peer)
    peer.feed(frames.reset(1, Code.REFUSED_STREAM))
    failure = call.failure()
    assert isinstance(failure, NotSentError)
    assert failure.status is Status.UNAVAILABLE


async def test_calls_beyond_the_server_s_limit_wait_for_their_turn() -> None:
    peer = connected()
    peer.feed(frames.settings({SettingKey.MAX_CONCURRENT_STREAMS: 1}))
    first = await begun(peer)
    spawn = asyncio.get_running_loop().create_task
    second, third, fourth = spawn(begun(peer)), spawn(begun(peer)), spawn(begun(peer))
    await settled()
    assert not second.done()
    first.reset(Code.CANCEL, None)  # the second's turn, but it does not take it
    second.cancel()
    await settled()
    assert second.cancelled()
    assert third.done()
    assert not fourth.done()
    peer.feed(frames.settings({SettingKey.MAX_CONCURRENT_STREAMS: 2}))
    await settled()
    assert fourth.done()
    waiting = spawn(begun(peer))
    await settled()
    peer.connection.connection_lost(None)
    await settled()
    assert isinstance(waiting.exception(), NotSentError)
    check_nothing_held(peer)


async def test_a_connection_whose_numbers_are_used_up_takes_no_more_calls() -> None:
    peer = connected()
    connection_of(peer)._next = frames.WINDOW_MAX
    last = await begun(peer)
    assert last.number == frames.WINDOW_MAX
    assert connection_of(peer).is_leaving
    peer.feed(peer.headers(last.number, [*RESPONSE, ("grpc-status", "0")], last=True))
    assert await ended(last) == ("OK", "")
    await settled()
    assert peer.wire.closed


async def test_a_large_request_waits_for_the_server() -> None:
    peer = connected()
    sending = asyncio.get_running_loop().create_task(begun(peer, bytes(200_000)))
    await settled()
    assert len(peer.messages(1)) == frames.WINDOW_DEFAULT
    sending.cancel()
    await settled()
    assert peer.resets() == {1: Code.CANCEL}
    check_nothing_held(peer)
    again = asyncio.get_running_loop().create_task(begun(peer, bytes(200_000)))
    peer.feed(frames.window_update(0, 1 << 20))
    await settled()
    peer.feed(frames.window_update(3, 1 << 20))
    await settled()
    assert again.done()
    assert peer.messages(3) == message(bytes(200_000))
    check = await again
    peer.connection.connection_lost(None)
    assert (await ended(check))[0] == "UNAVAILABLE"
    check_nothing_held(peer)
