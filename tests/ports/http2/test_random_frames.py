"""Frames at random, valid and damaged, cut anywhere: no exception, nothing held, the same answers for any cuts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.ports.grpc_adapter import frames
from streamlog.ports.grpc_adapter.frames import SettingKey
from streamlog.ports.grpc_adapter.metadata import request_fields

from .peers import DOUBLE, ECHO, PENDING, SOURCE, Frame, Served, connected, message, request, settled

STREAMS = st.sampled_from([0, 1, 1, 1, 2, 3, 3, 5, 7, 2**31 - 1])
SOME_BYTES = st.binary(max_size=40)
FIELDS = st.lists(
    st.tuples(
        st.sampled_from([":path", ":status", "te", "x-a", "grpc-timeout", "grpc-status", "content-length", "X"]),
        st.sampled_from(["", "200", "404", ECHO, "trailers", "0", "1H", "0n", "a" * 60, "\n"]),
    ),
    max_size=4,
)
BLOCKS = st.one_of(
    st.builds(
        lambda method, more: hpack.Encoder().encode([*request(method), *more]),
        st.sampled_from([ECHO, DOUBLE, PENDING, SOURCE, "/p.S/Unknown"]),
        FIELDS,
    ),
    st.builds(lambda fields: hpack.Encoder().encode([(":status", "200"), *fields]), FIELDS),
    st.builds(lambda fields: hpack.Encoder().encode(fields), FIELDS),
    SOME_BYTES,
)
MESSAGES = st.builds(
    lambda values, end: b"".join(values) + end,
    st.lists(st.builds(message, SOME_BYTES), max_size=3),
    st.sampled_from([b"", b"\0", b"\1\0\0\0\2ab", message(b"abcdef")[:-2], b"\xff" * 6]),
)
SETTINGS = st.dictionaries(
    st.sampled_from(SettingKey),
    st.sampled_from([0, 1, 100, 16_384, 70_000, 2**31 - 1, 2**32 - 1]),
    max_size=3,
)
NUMBERS = st.sampled_from([0, 1, 7, 65_535, 2**31 - 1, 2**32 - 1]).map(lambda value: value.to_bytes(4, "big"))
FLAGS = st.sampled_from([0, 1, 4, 5, 4, 5, 8, 12, 32, 36, 255])
FRAMES = st.one_of(
    st.builds(frames.frame, st.just(frames.HEADERS), FLAGS, STREAMS, BLOCKS),
    st.builds(frames.frame, st.just(frames.HEADERS), st.sampled_from([4, 5]), STREAMS, BLOCKS),
    st.builds(frames.frame, st.just(frames.CONTINUATION), FLAGS, STREAMS, BLOCKS),
    st.builds(frames.frame, st.just(frames.DATA), FLAGS, STREAMS, MESSAGES),
    st.builds(frames.frame, st.just(frames.DATA), st.sampled_from([0, 1]), STREAMS, MESSAGES),
    st.builds(frames.settings, SETTINGS),
    st.builds(frames.frame, st.just(frames.RST_STREAM), st.just(0), STREAMS, NUMBERS),
    st.builds(frames.frame, st.just(frames.WINDOW_UPDATE), st.just(0), STREAMS, NUMBERS),
    st.builds(frames.frame, st.just(frames.GOAWAY), st.just(0), st.just(0), st.binary(min_size=8, max_size=20)),
    st.builds(frames.frame, st.integers(0, 12), FLAGS, STREAMS, SOME_BYTES),
)


@st.composite
def sequences(draw: Callable[[Any], Any]) -> bytes:
    """Some frames; sometimes with bytes changed, taken away or put in."""
    data = bytearray(b"".join(draw(st.lists(FRAMES, min_size=1, max_size=12))))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3]))):
        at = draw(st.integers(0, len(data) - 1)) if data else 0
        change = draw(st.sampled_from(["change", "cut", "insert"]))
        if change == "change" and data:
            data[at] = draw(st.integers(0, 255))
        elif change == "cut":
            del data[at : at + draw(st.integers(1, 9))]
        else:
            data[at:at] = draw(SOME_BYTES)
    return bytes(data)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """All in one without cuts; single bytes for `[0]`."""
    if cuts == [0]:
        return [data[at : at + 1] for at in range(len(data))]
    ends = [*sorted({at % (len(data) + 1) for at in cuts}), len(data)]
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False) if begin < end]


CUTS = st.one_of(st.just([0]), st.lists(st.integers(1, 4_000), min_size=1, max_size=6))


def run(case: Callable[[], Any]) -> Any:
    """On a loop that lets no exception pass."""
    failures: list[dict[str, Any]] = []

    async def main() -> Any:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        return await case()

    found = asyncio.run(main())
    assert not failures
    return found


def without_credit(found: list[Frame]) -> list[Frame]:
    """Credit is given for what has come together."""
    return [one for one in found if one.kind != frames.WINDOW_UPDATE]


async def served(given: list[bytes], *, ends: bool) -> tuple[list[Frame], Any]:
    """What a server answers to frames that come without a turn of the loop between them."""
    it = Served()
    peer = it.peer()
    peer.feed(*given)
    await settled()
    found, end = without_credit(peer.frames()), peer.end() if it.inflow.connections == 0 else None
    assert it.inflow.bytes_held < 1 << 20
    peer.connection.connection_lost(None if ends else ConnectionResetError())
    await settled()
    await it.check_nothing_held()
    return found, end


@given(sequences(), CUTS, st.booleans())
@settings(max_examples=250)
def test_a_server(data: bytes, cuts: list[int], ends: bool) -> None:
    whole = run(lambda: served([data], ends=ends))
    assert run(lambda: served(pieces(data, cuts), ends=ends)) == whole


async def called(given: list[bytes], *, ends: bool) -> tuple[list[Frame], list[Any]]:
    peer = connected()
    connection: Any = peer.connection
    calls = [await connection.open(request_fields(ECHO, "http", "x", ()), value) for value in (b"a", None, b"b")]
    peer.feed(*given)
    await settled()
    found = without_credit(peer.frames())
    peer.connection.connection_lost(None if ends else ConnectionResetError())
    outcomes = []
    for call in calls:
        assert call.ended
        failure = call.failure()
        outcomes.append(None if failure is None else (type(failure), failure.status, failure.message))
        call.drop()
    await settled()
    assert connection._inflow.bytes_held == connection.held == 0
    assert not connection.calls
    return found, outcomes


@given(sequences(), CUTS, st.booleans())
@settings(max_examples=250)
def test_a_caller(data: bytes, cuts: list[int], ends: bool) -> None:
    whole = run(lambda: called([data], ends=ends))
    assert run(lambda: called(pieces(data, cuts), ends=ends)) == whole


CLOSED = (
    frames.frame(frames.HEADERS, 5, 1, b"\x88"),
    frames.frame(frames.HEADERS, 5, 1, hpack.Encoder().encode(request(ECHO))),
)


@pytest.mark.parametrize("headers", CLOSED)
@pytest.mark.parametrize("case", [served, called])
def test_data_after_the_end_that_comes_in_pieces(headers: bytes, case: Callable[..., Any]) -> None:
    data = headers + frames.frame(frames.DATA, 0, 1, b"abcdefgh") * 2
    whole = run(lambda: case([data], ends=True))
    assert run(lambda: case(pieces(data, [0]), ends=True)) == whole


@given(st.one_of(st.binary(max_size=200), st.lists(BLOCKS, max_size=3).map(b"".join)))
@settings(max_examples=300)
def test_header_blocks(block: bytes) -> None:
    run(lambda: served([frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block)], ends=True))


@pytest.mark.parametrize("cut", range(1, 9))
def test_frames_in_pieces_of_a_size(cut: int) -> None:
    data = b"".join(
        frames.frame(frames.HEADERS, frames.END_HEADERS, number, hpack.Encoder().encode(request(DOUBLE)))
        + frames.frame(frames.DATA, frames.PADDED, number, b"\x03" + message(b"abc") + bytes(3))
        + frames.frame(frames.DATA, frames.END_STREAM, number, message(b"") + message(b"x" * 300))
        for number in (1, 3)
    )
    given = [data[at : at + cut] for at in range(0, len(data), cut)]
    found, end = run(lambda: served(given, ends=True))
    assert end is None
    assert sum(len(one.payload) for one in found if one.kind == frames.DATA) == 2 * (5 + 6 + 5 + 5 + 600)
