"""Answers that are written together at the end of a turn of the loop: in order, and before the connection ends."""

from __future__ import annotations

import pytest

from streamlog.ports.grpc_adapter.connection import UNWRITTEN_MAX
from streamlog.ports.grpc_adapter.frames import PREFACE, Code

from .peers import DOUBLE, ECHO, Peer, Served, data, message, settled


def written(peer: Peer) -> bytes:
    return bytes(peer.wire.written).removeprefix(PREFACE)


@pytest.mark.parametrize(("calls", "writes"), [(1, 1), (8, 1), (UNWRITTEN_MAX, 1), (UNWRITTEN_MAX + 1, 2)])
async def test_answers_to_calls_that_came_together_take_one_write(calls: int, writes: int) -> None:
    served = Served()
    peer = served.peer()
    numbers = range(1, 2 * calls, 2)
    before = peer.wire.writes
    peer.feed(*(peer.call(number, ECHO) + data(number, message(b"%d" % number), last=True) for number in numbers))
    await settled()
    # The last call has none beside it, so that its answer is written at once.
    assert peer.wire.writes - before <= writes + 1
    assert [peer.messages(number) for number in numbers] == [message(b"%d" % number) for number in numbers]
    assert all(peer.fields(number)["grpc-status"] == "0" for number in numbers)
    peer.connection.lose("the test has ended")
    await served.check_nothing_held()


async def test_a_large_answer_is_written_at_once() -> None:
    served = Served()
    peer = served.peer()
    for number in (1, 3):
        peer.feed(peer.call(number, ECHO))
        peer.feed(data(number, message(bytes(20_000)), last=True))
    await settled()
    assert [peer.messages(number) for number in (1, 3)] == [message(bytes(20_000))] * 2
    peer.connection.lose("the test has ended")
    await served.check_nothing_held()


async def test_what_is_written_at_once_comes_behind_what_waits() -> None:
    peer = Served().peer()
    peer.wire.written.clear()
    connection = peer.connection
    connection.write_soon(b"a")
    connection.write(b"b")
    connection.write_soon(b"c")
    assert not written(peer)
    connection.write_lines([b"d", b"e"])
    assert written(peer) == b"abcde"
    connection.write(b"f")
    assert written(peer) == b"abcdef"
    connection.write_soon(b"g")
    await settled()
    assert written(peer) == b"abcdefg"


async def test_what_waits_is_written_before_the_connection_ends() -> None:
    peer = Served().peer()
    peer.wire.written.clear()
    peer.connection.write_soon(b"a")
    peer.connection.lose("the server stops")
    assert written(peer) == b"a"
    await settled()
    assert written(peer) == b"a"


async def test_what_waits_is_written_before_goodbye() -> None:
    peer = Served().peer()
    written_before = len(peer.frames())
    peer.feed(peer.call(1, DOUBLE), peer.call(3, ECHO) + data(3, message(b"x"), last=True))
    await settled()
    peer.connection.end(Code.NO_ERROR, "")
    assert len(peer.frames()) > written_before
    assert peer.messages(3) == message(b"x")
    assert peer.end() == (Code.NO_ERROR, "")
