"""What a caller may do to a server, and where it ends: each bound of `connection`, and that nothing stays held."""

from __future__ import annotations

import asyncio
import gc
import gzip
import tracemalloc
from collections.abc import Callable

import hpack
import pytest

from streamlog.ports.grpc_adapter import frame_reader as limits
from streamlog.ports.grpc_adapter import frames
from streamlog.ports.grpc_adapter.connection import HIGH_WATER_BYTES, UNSENT_BYTES_MAX
from streamlog.ports.grpc_adapter.frames import Code, SettingKey
from streamlog.ports.grpc_adapter.server_connection import ServerConnection

from .peers import DOUBLE, ECHO, PENDING, SOURCE, Peer, Served, data, message, request, settled

OK = {":status": "200", "grpc-status": "0"}
INTERNAL, RESOURCE_EXHAUSTED, UNAVAILABLE, UNIMPLEMENTED = "13", "8", "14", "12"
EMPTY = frames.frame(frames.HEADERS, 0, 3, b"")

IDLE = {
    "ping": frames.PING_OF_OURS,
    "pong": frames.frame(frames.PING, frames.ACK, 0, bytes(8)),
    "settings": frames.settings({}),
    "acknowledgement": frames.SETTINGS_ACK,
    "priority": frames.frame(frames.PRIORITY, 0, 5, bytes(5)),
    "empty data": data(1, b""),
    "padding": data(1, b"", padding=0),
    "unknown": frames.frame(0xBE, 0, 1, b"x"),
    "credit for a byte": frames.window_update(1, 1),
    "credit for a byte of all": frames.window_update(0, 1),
    "windows": frames.settings({SettingKey.INITIAL_WINDOW_SIZE: 10})
    + frames.settings({SettingKey.INITIAL_WINDOW_SIZE: 20}),
    "goaway": frames.go_away(0, Code.NO_ERROR),
}


def fed(peer: Peer, one: bytes, times: int) -> None:
    for _ in range(times // 100):
        if not peer.wire.closed:
            peer.feed(one * 100)


@pytest.mark.parametrize("name", IDLE)
async def test_a_flood_of_frames_that_carry_nothing_ends_the_connection(name: str) -> None:
    served = Served()
    peer = served.peer()
    peer.feed(peer.call(1, PENDING))
    await settled()
    cost = 4 if name == "windows" else 1  # a setting costs as much as its frame
    fed(peer, IDLE[name], limits.IDLE_FRAMES_MAX // cost - 200)
    assert peer.end() is None
    fed(peer, IDLE[name], 400)
    assert peer.end() == (Code.ENHANCE_YOUR_CALM, "too many frames that carry nothing")
    await served.check_nothing_held()
    assert served.cancelled == 1


async def test_as_many_frames_in_longer_are_no_flood() -> None:
    served = Served()
    peer = served.peer()
    for _ in range(4):
        fed(peer, frames.PING_OF_OURS, limits.IDLE_FRAMES_MAX - 100)
        peer.clock.now += 1.0
    assert peer.end() is None
    assert sum(one.kind == frames.PING for one in peer.frames()) == 4 * (limits.IDLE_FRAMES_MAX - 100)


def reset_by_caller(peer: Peer, number: int) -> bytes:
    return peer.call(number, DOUBLE) + frames.reset(number, Code.CANCEL)


def reset_for_no_credit(peer: Peer, number: int) -> bytes:
    return peer.call(number, DOUBLE) + frames.window_update(number, 0)


def reset_for_much_credit(peer: Peer, number: int) -> bytes:
    return peer.call(number, DOUBLE) + frames.window_update(number, frames.WINDOW_MAX)


def reset_for_late_data(peer: Peer, number: int) -> bytes:
    return peer.call(number, PENDING, last=True) + data(number, b"x")


def reset_for_fields(peer: Peer, number: int) -> bytes:
    return peer.headers(number, [(":method", "POST")])


def reset_for_trailers(peer: Peer, number: int) -> bytes:
    return peer.call(number, DOUBLE) + peer.headers(number, [(":path", "/")], last=True)


def reset_for_a_large_message(peer: Peer, number: int) -> bytes:
    return peer.call(number, DOUBLE) + data(number, b"\0\x7f\0\0\0")


def reset_for_a_wrong_prefix(peer: Peer, number: int) -> bytes:
    return peer.call(number, DOUBLE) + data(number, b"\x07\0\0\0\0")


def reset_for_an_end_in_a_message(peer: Peer, number: int) -> bytes:
    return peer.call(number, DOUBLE) + data(number, b"\0\0", last=True)


def reset_for_its_length(peer: Peer, number: int) -> bytes:
    return peer.call(number, ECHO, more={"content-length": "7"}) + data(number, message(b"12345"), last=True)


RESETS = [
    reset_by_caller,
    reset_for_no_credit,
    reset_for_much_credit,
    reset_for_late_data,
    reset_for_fields,
    reset_for_trailers,
    reset_for_a_large_message,
    reset_for_a_wrong_prefix,
    reset_for_an_end_in_a_message,
    reset_for_its_length,
]


async def test_a_reset_of_a_call_that_has_ended_is_no_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers of this project's answer so where a stream ends whose caller had not ended its side."""
    monkeypatch.setattr(limits, "RESETS_MAX", 2)
    served = Served()
    peer = served.peer()
    for number in range(1, 20, 2):
        peer.feed(peer.call(number, ECHO) + data(number, message(b"a"), last=True))
        await settled()
        peer.feed(frames.reset(number, Code.NO_ERROR))
    assert peer.end() is None
    assert peer.messages(19) == message(b"a")


@pytest.mark.parametrize("one", RESETS)
async def test_calls_that_are_reset_are_bounded(
    one: Callable[[Peer, int], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RESETS_MAX", 50)
    served = Served()
    peer = served.peer()
    for at in range(50):
        peer.feed(one(peer, 2 * at + 1))
        await settled()
    assert peer.end() is None
    assert not peer.connection.calls
    assert served.inflow.calls == served.inflow.bytes_held == 0
    peer.clock.now += limits.RESETS_S
    for at in range(50, 100):
        peer.feed(one(peer, 2 * at + 1))
        await settled()
    assert peer.end() is None
    peer.feed(one(peer, 201), one(peer, 203))
    end = peer.end()
    assert end is not None
    assert end[0] is Code.ENHANCE_YOUR_CALM
    await served.check_nothing_held()


async def test_data_of_calls_that_were_never_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RESETS_MAX", 50)
    served = Served()
    peer = served.peer()
    peer.feed(peer.call(1, ECHO) + data(1, message(b"a"), last=True))
    await settled()
    peer.feed(data(1, b"x") * 50)
    assert peer.end() is None
    assert peer.resets() == {1: Code.STREAM_CLOSED}
    peer.feed(data(1, b"x"))
    assert peer.end() is not None
    await served.check_nothing_held()


FAULTS: dict[str, tuple[Callable[[Peer], bytes], Code]] = {
    "headers of stream 0": (lambda peer: peer.call(0, ECHO), Code.PROTOCOL_ERROR),
    "headers of an even stream": (lambda peer: peer.call(2, ECHO), Code.PROTOCOL_ERROR),
    "a stream that goes back": (lambda peer: peer.call(5, PENDING) + peer.call(3, PENDING), Code.STREAM_CLOSED),
    "data of stream 0": (lambda _: data(0, b"x"), Code.PROTOCOL_ERROR),
    "data of an idle stream": (lambda _: data(1, b"x"), Code.PROTOCOL_ERROR),
    "reset of an idle stream": (lambda _: frames.reset(1, Code.CANCEL), Code.PROTOCOL_ERROR),
    "credit of an idle stream": (lambda _: frames.window_update(1, 1), Code.PROTOCOL_ERROR),
    "no credit": (lambda _: frames.window_update(0, 0), Code.PROTOCOL_ERROR),
    "too much credit": (lambda _: frames.window_update(0, frames.WINDOW_MAX), Code.FLOW_CONTROL_ERROR),
    "a window that is too large": (
        lambda _: frames.settings({SettingKey.INITIAL_WINDOW_SIZE: frames.WINDOW_MAX + 1}),
        Code.FLOW_CONTROL_ERROR,
    ),
    "windows of calls that are too large": (
        lambda peer: (
            peer.call(1, PENDING)
            + frames.window_update(1, frames.WINDOW_MAX - frames.WINDOW_DEFAULT)
            + frames.settings({SettingKey.INITIAL_WINDOW_SIZE: frames.WINDOW_DEFAULT + 1})
        ),
        Code.FLOW_CONTROL_ERROR,
    ),
    "a frame size that is too small": (lambda _: frames.settings({SettingKey.MAX_FRAME_SIZE: 9}), Code.PROTOCOL_ERROR),
    "a push": (lambda _: frames.frame(frames.PUSH_PROMISE, 4, 1, bytes(4)), Code.PROTOCOL_ERROR),
    "a short ping": (lambda _: frames.frame(frames.PING, 0, 0, bytes(7)), Code.FRAME_SIZE_ERROR),
    "a large frame": (lambda _: frames.frame(frames.PING, 0, 0, bytes(100_000)), Code.FRAME_SIZE_ERROR),
    "padding beyond the frame": (
        lambda peer: peer.call(1, PENDING) + frames.frame(frames.DATA, frames.PADDED, 1, b"\x05abcd"),
        Code.PROTOCOL_ERROR,
    ),
    "no padding": (
        lambda peer: peer.call(1, PENDING) + frames.frame(frames.DATA, frames.PADDED, 1),
        Code.PROTOCOL_ERROR,
    ),
    "a continuation of nothing": (lambda _: frames.frame(frames.CONTINUATION, 4, 1), Code.PROTOCOL_ERROR),
    "data in a header block": (
        lambda peer: peer.call(1, PENDING) + EMPTY + data(1, message(b"a")),
        Code.PROTOCOL_ERROR,
    ),
    "a ping in a header block": (lambda _: EMPTY + frames.PING_OF_OURS, Code.PROTOCOL_ERROR),
    "headers in a header block": (lambda peer: EMPTY + peer.call(3, ECHO), Code.PROTOCOL_ERROR),
    "a continuation of another stream": (
        lambda _: EMPTY + frames.frame(frames.CONTINUATION, 4, 5),
        Code.PROTOCOL_ERROR,
    ),
    "an unending header block": (
        lambda _: EMPTY + frames.frame(frames.CONTINUATION, 0, 3, bytes(1_000)) * 70,
        Code.ENHANCE_YOUR_CALM,
    ),
    "fields that unpack to much": (
        lambda peer: frames.frame(
            frames.HEADERS, 4, 1, peer.block([*request(ECHO), ("x", "y" * 3_000)]) + b"\xbe" * 1_000
        ),
        Code.ENHANCE_YOUR_CALM,
    ),
    "a field that is cut": (lambda _: frames.frame(frames.HEADERS, 4, 1, b"\0\x7f"), Code.COMPRESSION_ERROR),
    "a field without end": (
        lambda _: frames.frame(frames.HEADERS, 4, 1, b"\0\x7f" + b"\xff" * 60_000),
        Code.COMPRESSION_ERROR,
    ),
    "a field of no table": (lambda _: frames.frame(frames.HEADERS, 4, 1, b"\xff\xff\x7f"), Code.COMPRESSION_ERROR),
    "many changes of the table": (
        lambda _: frames.frame(frames.HEADERS, 4, 1, b"\x20" * 60_000),
        Code.COMPRESSION_ERROR,
    ),
    "a table that is too large": (
        lambda _: frames.frame(frames.HEADERS, 4, 1, b"\x3f\xff\xff\x7f"),
        Code.COMPRESSION_ERROR,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_ends_the_connection_and_all_its_calls(name: str) -> None:
    served = Served()
    peer = served.peer()
    make, code = FAULTS[name]
    peer.feed(make(peer))
    end = peer.end()
    assert end is not None
    assert end[0] is code
    assert len(end[1]) <= frames.GO_AWAY_TEXT_MAX
    peer.feed(peer.call(9, ECHO))  # what still comes is not looked at
    await served.check_nothing_held()


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b"PRI * HTTP/2.0\r\n\r\nSN"])
async def test_another_protocol(first: bytes) -> None:
    served = Served()
    peer = served.peer(greets=False)
    peer.feed(first)
    assert peer.end() == (Code.PROTOCOL_ERROR, "it does not speak HTTP/2")
    await served.check_nothing_held()


async def test_the_first_frame_is_settings() -> None:
    served = Served()
    peer = served.peer(greets=False)
    peer.feed(frames.PREFACE[:10], frames.PREFACE[10:] + frames.PING_OF_OURS)
    assert peer.end() == (Code.PROTOCOL_ERROR, "the first frame must be SETTINGS")
    await served.check_nothing_held()


# Work at a time.


async def test_what_arrives_together_is_handled_in_turns() -> None:
    served = Served()
    peer = served.peer()
    turns = 0

    async def beside() -> None:
        nonlocal turns
        while peer.connection.calls or not served.begun:
            turns += 1
            await asyncio.sleep(0)

    count = 2_000
    peer.feed(b"".join(peer.call(2 * at + 1, ECHO) + data(2 * at + 1, message(b"a"), last=True) for at in range(count)))
    assert len(peer.connection.calls) <= limits.TURN_COST_MAX // limits.BLOCK_COST
    assert not peer.wire.reading
    peer.feed(frames.frame(frames.PING, 0, 0, b"last one"))  # the transport may have read it already
    await beside()
    await settled()
    assert turns >= count * limits.BLOCK_COST // limits.TURN_COST_MAX
    assert served.begun == count
    assert peer.wire.reading
    assert sum(one.kind == frames.DATA for one in peer.frames()) == count
    assert frames.frame(frames.PING, frames.ACK, 0, b"last one") in bytes(peer.wire.written)
    peer.connection.connection_lost(None)
    await served.check_nothing_held()


async def test_what_has_arrived_before_the_end_is_handled() -> None:
    served = Served()
    peer = served.peer()
    peer.feed(b"".join(peer.call(2 * at + 1, ECHO) for at in range(500)))
    peer.connection.connection_lost(None)
    assert peer.connection.last_number == 999
    await served.check_nothing_held()


async def test_room_for_a_byte_wakes_one_sender_of_many() -> None:
    served = Served()
    peer = served.peer()
    numbers = range(1, 101, 2)
    peer.feed(b"".join(peer.call(number, SOURCE) for number in numbers))
    while len(peer.connection.calls) < len(numbers) or peer.connection.send_window:
        await settled()
    await settled()
    assert len(peer.connection.waiting_senders) >= len(numbers) - 2  # one has sent its own window, one a part
    before = len(peer.frames())
    peer.feed(frames.window_update(0, 1))
    await settled()
    assert [(one.kind, len(one.payload)) for one in peer.frames()[before:]] == [(frames.DATA, 1)]
    own = frames.WINDOW_DEFAULT
    peer.feed(frames.window_update(0, 1 << 30))
    while len(peer.connection.waiting_senders):
        await settled()
    await settled()
    assert peer.sizes() == dict.fromkeys(numbers, own)
    peer.feed(b"".join(frames.window_update(number, 70) for number in numbers))
    await settled()
    assert peer.sizes() == dict.fromkeys(numbers, own + 70)
    peer.feed(frames.settings({SettingKey.INITIAL_WINDOW_SIZE: own + 5}))
    await settled()
    assert peer.sizes() == dict.fromkeys(numbers, own + 75)
    peer.connection.connection_lost(None)
    await served.check_nothing_held()


async def test_a_sender_that_leaves_passes_its_room_on() -> None:
    served = Served()
    peer = served.peer()
    peer.feed(b"".join(peer.call(2 * at + 1, SOURCE) for at in range(10)))
    await settled()
    peer.feed(frames.window_update(0, 100))  # the first that waits is woken
    peer.feed(b"".join(frames.reset(number, Code.CANCEL) for number in list(peer.connection.calls)[:-1]))
    await settled()
    assert peer.connection.send_window == 0
    peer.connection.connection_lost(None)
    await served.check_nothing_held()


async def test_a_caller_that_reads_nothing_is_not_read_either() -> None:
    served = Served()
    peer = served.peer()
    peer.wire.reads = False
    peer.feed(frames.window_update(0, 1 << 30) + frames.settings({SettingKey.INITIAL_WINDOW_SIZE: 1 << 30}))
    peer.feed(b"".join(peer.call(2 * at + 1, SOURCE) for at in range(40)))
    await settled()
    assert peer.wire.unread <= HIGH_WATER_BYTES + limits.FRAME_BYTES_MAX
    pings = 0
    while peer.wire.reading:
        peer.clock.now += 1.0
        peer.feed(frames.PING_OF_OURS * 100)
        pings += 100
        assert pings * 17 <= 2 * UNSENT_BYTES_MAX
    peer.wire.reads = True
    peer.wire.read()
    assert peer.wire.reading
    assert peer.end() is None
    peer.connection.connection_lost(None)
    await served.check_nothing_held()


# Bytes and calls that are held.


async def test_a_message_in_small_pieces_takes_no_more_memory() -> None:
    served = Served()
    peer = served.peer()
    size = 60_000
    peer.feed(peer.call(1, PENDING))
    await settled()
    begin = message(bytes(size))[:5]
    pieces = data(1, b"ab")
    peer.feed(data(1, begin))
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(size // 2 - 1):
            peer.feed(pieces)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 3 * size
    peer.connection.connection_lost(None)
    await served.check_nothing_held()


async def test_empty_messages_count_too() -> None:
    served = Served()
    peer = served.peer()
    peer.feed(peer.call(1, PENDING) + data(1, message(b"") * 1_000))
    await settled()
    assert served.inflow.bytes_held >= 1_000 * 64
    peer.feed(frames.reset(1, Code.CANCEL))
    await settled()
    assert served.inflow.bytes_held == 0
    peer.connection.connection_lost(None)
    await served.check_nothing_held()


async def test_bytes_of_all_callers_are_bounded() -> None:
    served = Served(unread_bytes_max=200_000)
    other, peer = served.peer(), served.peer()
    begin = message(bytes(1 << 20))[:30_000]  # messages that are not complete
    peer.feed(*(peer.call(2 * at + 1, PENDING) + data(2 * at + 1, begin) for at in range(10)))
    await settled()
    assert 100_000 < served.inflow.bytes_held <= 200_000
    refused = peer.fields(19)
    assert refused["grpc-status"] == UNAVAILABLE
    assert "queued.max.request.bytes" in refused["grpc-message"]
    other.feed(other.call(1, ECHO) + data(1, message(bytes(9_000)), last=True))  # it has its share
    await settled()
    assert other.fields(1)["grpc-status"] == "0"
    peer.connection.connection_lost(None)
    other.connection.connection_lost(None)
    await served.check_nothing_held()


async def test_messages_that_never_become_complete_do_not_keep_out_those_of_others() -> None:
    served = Served(unread_bytes_max=200_000)
    hostile, other, *idle = (served.peer() for _ in range(5))
    begin = message(bytes(1 << 20))[:30_000]
    hostile.feed(*(hostile.call(2 * at + 1, PENDING) + data(2 * at + 1, begin) for at in range(6)))
    await settled()
    assert served.inflow.bytes_held == 180_000
    other.feed(other.call(1, ECHO) + data(1, message(bytes(60_000)), last=True))  # a fifth of all is less
    await settled()
    assert other.fields(1)["grpc-status"] == "0"
    assert (hostile.end() or ("",))[0] is Code.ENHANCE_YOUR_CALM
    other.feed(*(other.call(2 * at + 3, PENDING) + data(2 * at + 3, begin) for at in range(7)))
    await settled()
    assert other.fields(15)["grpc-status"] == UNAVAILABLE, "it holds most itself"
    for peer in (other, *idle):
        peer.connection.connection_lost(None)
    await served.check_nothing_held()


async def test_metadata_of_many_calls_counts() -> None:
    served = Served(unread_bytes_max=100_000)
    peer = served.peer()
    more = {"x-large": "y" * 12_000}
    for at in range(20):
        peer.feed(peer.call(2 * at + 1, ECHO, more=more))
    assert served.inflow.bytes_held <= 100_000
    assert peer.fields(39)["grpc-status"] == UNAVAILABLE
    peer.feed(data(1, message(b"a"), last=True))
    await settled()
    assert peer.fields(1)["grpc-status"] == "0"
    peer.connection.connection_lost(None)
    await served.check_nothing_held()


async def test_calls_of_all_callers_are_bounded() -> None:
    served = Served(calls_max=5)
    peer = served.peer()
    peer.feed(*(peer.call(2 * at + 1, PENDING) for at in range(7)))
    await settled()
    assert served.begun == 5
    assert peer.resets() == {11: Code.REFUSED_STREAM, 13: Code.REFUSED_STREAM}
    before = len(peer.frames())
    peer.feed(data(11, message(b"it does not know yet")) * 100)
    assert len(peer.frames()) == before
    assert peer.end() is None
    other = served.peer()
    other.feed(other.call(1, ECHO) + data(1, message(b"a"), last=True))
    await settled()
    assert other.fields(1)["grpc-status"] == "0"
    for one in (peer, other):
        one.connection.connection_lost(None)
    await served.check_nothing_held()


async def test_handlers_of_calls_that_were_reset_count_until_they_end() -> None:
    served = Served(calls_max=5)
    peer = served.peer()
    peer.feed(*(peer.call(2 * at + 1, PENDING) for at in range(5)))
    await settled()
    peer.feed(b"".join(frames.reset(2 * at + 1, Code.CANCEL) for at in range(5)) + peer.call(11, PENDING))
    assert peer.resets() == {11: Code.REFUSED_STREAM}
    await settled()
    peer.feed(peer.call(13, PENDING))
    await settled()
    assert served.begun == 6
    peer.connection.connection_lost(None)
    await served.check_nothing_held()


# How a call may end; nothing of it is held afterwards.


async def by_its_caller(served: Served, peer: Peer) -> None:
    peer.feed(frames.reset(1, Code.CANCEL))


async def by_the_connection(served: Served, peer: Peer) -> None:
    peer.connection.connection_lost(ConnectionResetError())


async def by_a_fault_of_the_connection(served: Served, peer: Peer) -> None:
    peer.feed(frames.window_update(0, 0))


async def by_a_fault_of_its_own(served: Served, peer: Peer) -> None:
    peer.feed(frames.window_update(1, 0))


async def by_a_wrong_message(served: Served, peer: Peer) -> None:
    peer.feed(data(1, b"\xff" * 70_000))


async def by_trailers(served: Served, peer: Peer) -> None:
    peer.feed(peer.headers(1, [("x", "y")], last=True))


async def by_the_server(served: Served, peer: Peer) -> None:
    await served.server.handlers.wait_until_ended(0)
    peer.connection.lose("the server has stopped")


async def by_its_deadline(served: Served, peer: Peer) -> None:
    call = peer.connection.calls.get(1)
    if call is not None:
        call.timer._run()  # type: ignore[attr-defined]  # it is due


@pytest.mark.parametrize(
    "end",
    [
        by_its_caller,
        by_the_connection,
        by_a_fault_of_the_connection,
        by_a_fault_of_its_own,
        by_a_wrong_message,
        by_trailers,
        by_the_server,
        by_its_deadline,
    ],
)
@pytest.mark.parametrize("sent", [b"", message(b"a" * 9), message(b"a" * 900)[:500], message(b"") * 50, b"\0\0"])
@pytest.mark.parametrize("method", [ECHO, DOUBLE, PENDING, SOURCE, "/p.S/Unknown"])
@pytest.mark.parametrize("settles", [True, False])
async def test_nothing_is_held_of_a_call_that_has_ended(
    end: Callable[[Served, Peer], asyncio.Future[None]], sent: bytes, method: str, settles: bool
) -> None:
    served = Served()
    peer = served.peer()
    peer.feed(peer.call(1, method, more={"grpc-timeout": "1H", "x": "y" * 5_000}) + data(1, sent))
    if settles:
        await settled()
    await end(served, peer)
    await settled()
    if end is not by_trailers and method != PENDING:
        assert not peer.connection.calls
    assert not peer.connection.calls or served.inflow.calls == 1
    peer.connection.connection_lost(None)
    await served.check_nothing_held()
    assert not peer.connection.waiting_senders


async def test_a_stream_that_ends_within_a_message() -> None:
    served = Served()
    peer = served.peer()
    peer.feed(peer.call(1, DOUBLE) + data(1, message(b"ab") + b"\0\0", last=True))
    await settled()
    fields = peer.fields(1)
    assert (fields["grpc-status"], fields["grpc-message"]) == (INTERNAL, "the request ends within a message")
    peer.connection.connection_lost(None)
    await served.check_nothing_held()


async def test_more_than_a_window_ends_the_call() -> None:
    served = Served()
    peer = served.peer()
    peer.feed(peer.call(1, PENDING) + data(1, message(bytes(30_000)), padding=255) * 40)
    await settled()
    assert peer.fields(1)["grpc-status"] == INTERNAL
    assert "window" in peer.fields(1)["grpc-message"]
    assert peer.end() is None
    peer.connection.connection_lost(None)
    await served.check_nothing_held()


async def test_padding_is_given_back() -> None:
    served = Served()
    peer = served.peer()
    peer.feed(peer.call(1, DOUBLE))
    for _ in range(1_000):  # 256 KiB of padding, four windows
        peer.feed(data(1, message(b"a"), padding=255))
        await settled()
        peer.feed(frames.window_update(0, 100) + frames.window_update(1, 100))
    assert peer.messages(1) == message(b"aa") * 1_000
    given = sum(int.from_bytes(one.payload, "big") for one in peer.frames() if one.kind == 8 and one.stream == 1)
    sent = 1_000 * (1 + len(message(b"a")) + 255)
    assert frames.WINDOW_DEFAULT + given - sent == peer.connection.calls[1]._window
    peer.connection.connection_lost(None)
    await served.check_nothing_held()


async def test_the_size_of_the_header_table_is_said_once() -> None:
    served = Served()
    peer = served.peer()
    changes = [frames.settings({SettingKey.HEADER_TABLE_SIZE: size}) for size in (0, 4_096, 100, 2_000)]
    peer.feed(*changes * 500)
    peer.feed(peer.call(1, ECHO) + data(1, message(b"a"), last=True))
    await settled()
    block = next(one.payload for one in peer.frames() if one.kind == frames.HEADERS)
    assert block.startswith(b"\x20" + bytes(hpack.hpack.encode_integer(2_000, 5)[1:] and b"\x3f\xb1\x0f"))
    assert peer.fields(1) | OK == peer.fields(1)
    peer.connection.connection_lost(None)
    await served.check_nothing_held()


# What is not gRPC's, and compressed messages.


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({":method": "GET"}, "405"),
        ({"content-type": "application/json"}, "415"),
    ],
)
@pytest.mark.parametrize("window", [0, 5, frames.WINDOW_DEFAULT])
async def test_plain_http_is_answered_in_words(fields: dict[str, str], status: str, window: int) -> None:
    served = Served()
    peer = served.peer()
    peer.feed(frames.settings({SettingKey.INITIAL_WINDOW_SIZE: window}))
    given = dict(request("/")) | fields
    peer.feed(peer.headers(1, given.items()) + data(1, b"{" * 60_000) + data(1, b"}" * 60_000))
    assert not peer.fields(1)
    peer.feed(data(1, b"{}", last=True))
    await settled()
    assert len(peer.messages(1)) == min(window, len(peer.messages(1)))
    peer.feed(frames.window_update(1, 100))
    await settled()
    assert peer.fields(1)[":status"] == status
    assert peer.messages(1).startswith(b"This port serves gRPC")
    assert not peer.connection.calls
    peer.connection.connection_lost(None)
    await served.check_nothing_held()


@pytest.mark.parametrize(
    ("encoding", "value", "status"),
    [
        ("gzip", gzip.compress(b"a" * 100, mtime=0), "0"),
        ("gzip", gzip.compress(bytes(1_000_000), mtime=0), RESOURCE_EXHAUSTED),
        ("gzip", gzip.compress(b"a" * 100, mtime=0)[:-9], INTERNAL),
        ("gzip", b"", INTERNAL),
        ("gzip", b"not gzip", INTERNAL),
        ("deflate", gzip.compress(b"a", mtime=0), INTERNAL),
        ("snappy", b"a", UNIMPLEMENTED),
    ],
    ids=["whole", "too large", "cut", "empty", "not gzip", "another encoding", "an unknown encoding"],
)
async def test_compressed_messages(encoding: str, value: bytes, status: str) -> None:
    served = Served(message_bytes_max=100_000)
    peer = served.peer()
    peer.feed(
        peer.call(1, ECHO, more={"grpc-encoding": encoding}) + data(1, message(value, compressed=True), last=True)
    )
    async with asyncio.timeout(60):
        while peer.connection.calls:  # noqa: ASYNC110  a thread decompresses
            await asyncio.sleep(0.001)
    assert peer.fields(1)["grpc-status"] == status
    if status == "0":
        assert peer.messages(1) == message(b"a" * 100)
    peer.connection.connection_lost(None)
    await served.check_nothing_held()


async def test_a_message_that_unpacks_to_much_is_not_unpacked() -> None:
    served = Served(message_bytes_max=100_000)
    peer = served.peer()
    packed = message(gzip.compress(bytes(20_000_000)), compressed=True)
    tracemalloc.start()
    try:
        peer.feed(peer.call(1, ECHO, more={"grpc-encoding": "gzip"}) + data(1, packed, last=True))
        async with asyncio.timeout(60):
            while peer.connection.calls:  # noqa: ASYNC110  a thread decompresses
                await asyncio.sleep(0.001)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peer.fields(1)["grpc-status"] == RESOURCE_EXHAUSTED
    assert peak < 2_000_000
    peer.connection.connection_lost(None)
    await served.check_nothing_held()


async def test_a_caller_that_says_goodbye_is_let_go() -> None:
    served = Served()
    peer = served.peer()
    peer.feed(peer.call(1, PENDING) + frames.go_away(0, Code.NO_ERROR))
    await settled()
    assert not peer.wire.closed
    peer.feed(frames.reset(1, Code.CANCEL))
    await settled()
    assert peer.wire.closed
    await served.check_nothing_held()


async def test_a_server_that_leaves_takes_no_more_calls() -> None:
    served = Served()
    peer = served.peer()
    peer.feed(peer.call(1, DOUBLE))
    await settled()
    connection = peer.connection
    assert isinstance(connection, ServerConnection)
    connection.leave()
    peer.feed(peer.call(3, ECHO) + data(1, message(b"a"), last=True))
    await settled()
    assert peer.resets() == {3: Code.REFUSED_STREAM}
    assert peer.messages(1) == message(b"aa")
    assert peer.wire.closed
    await served.check_nothing_held()
