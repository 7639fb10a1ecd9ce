"""Connections of both ends without a network: what the peer sends is fed to them, and what they write is decoded."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

import hpack

from streamlog.ports import CallInfo, Stream
from streamlog.ports.grpc_adapter import frames
from streamlog.ports.grpc_adapter.accepting.connections import OpenConnections
from streamlog.ports.grpc_adapter.client_connection import ClientConnection
from streamlog.ports.grpc_adapter.connection import Http2Connection
from streamlog.ports.grpc_adapter.frames import Code
from streamlog.ports.grpc_adapter.handlers import Handlers
from streamlog.ports.grpc_adapter.server import GrpcServer
from streamlog.ports.grpc_adapter.server_connection import ServerConnection
from streamlog.ports.grpc_adapter.settings import GrpcSettings

ECHO = "/p.S/Echo"
"""Unary."""
DOUBLE = "/p.S/Double"
"""A stream that sends back each message twice."""
PENDING = "/p.S/Pending"
"""A stream that reads nothing, until it is cancelled."""
SOURCE = "/p.S/Source"
"""A stream that sends as long as it can."""
SOURCE_BYTES = 40_000


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


def decoded(data: bytes) -> list[Frame]:
    found, at = [], 0
    while at < len(data):
        begin, end = at + frames.FRAME_BYTES, at + frames.FRAME_BYTES + int.from_bytes(data[at : at + 3], "big")
        assert len(data) >= end, "a frame was written in part"
        found.append(Frame(data[at + 3], data[at + 4], int.from_bytes(data[at + 5 : at + 9], "big"), data[begin:end]))
        at = end
    return found


class Wire:
    """A transport that keeps what is written, and says so as asyncio's do. The peer reads by `read`."""

    def __init__(self, connection: Http2Connection) -> None:
        self.written = bytearray()
        self.writes = 0
        self.unread = 0
        self.reading = True
        self.closed = False
        self.reads = True  # the peer: at once
        self._connection = connection
        self._high = 0

    def set_write_buffer_limits(self, high: int) -> None:
        self._high = high

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def get_write_buffer_size(self) -> int:
        return self.unread

    def write(self, data: bytes | memoryview) -> None:
        assert not self.closed
        self.written += data
        self.writes += 1
        if not self.reads:
            self.unread += len(data)
            if self.unread > self._high and not self._connection.is_paused:
                self._connection.pause_writing()

    def writelines(self, lines: Iterable[bytes | memoryview]) -> None:
        self.write(b"".join(lines))

    def read(self) -> None:
        self.unread = 0
        self._connection.resume_writing()

    def is_reading(self) -> bool:
        return self.reading

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class Clock:
    """The loop of a connection, whose time stands still."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now = loop.time()
        self._loop = loop

    def time(self) -> float:
        return self.now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


class Peer:
    """The other end of a connection."""

    def __init__(self, connection: Http2Connection) -> None:
        self.connection = connection
        self.clock = Clock(connection.loop)
        connection.loop = cast(asyncio.AbstractEventLoop, self.clock)
        self.wire = Wire(connection)
        self._encoder = hpack.Encoder()
        self._decoder = hpack.Decoder()
        connection.connection_made(cast(asyncio.Transport, self.wire))

    def feed(self, *data: bytes) -> None:
        """As it arrives; a transport that was paused gives no more."""
        for one in data:
            self.connection.data_received(one)

    def block(self, fields: Iterable[tuple[str, str]]) -> bytes:
        return self._encoder.encode(list(fields))

    def headers(self, number: int, fields: Iterable[tuple[str, str]], *, last: bool = False) -> bytes:
        flags = frames.END_HEADERS | (frames.END_STREAM if last else 0)
        return frames.frame(frames.HEADERS, flags, number, self.block(fields))

    def call(self, number: int, method: str, *, more: Mapping[str, str] | None = None, last: bool = False) -> bytes:
        return self.headers(number, [*request(method), *(more or {}).items()], last=last)

    def frames(self) -> list[Frame]:
        """All that was written."""
        data = bytes(self.wire.written)
        return decoded(data.removeprefix(frames.PREFACE))

    def fields(self, number: int) -> dict[str, str]:
        """Of all headers that a stream got."""
        found: dict[str, str] = {}
        decoder = hpack.Decoder()
        for one in self.frames():
            if one.kind == frames.HEADERS:
                pairs = decoder.decode(one.payload)
                if one.stream == number:
                    found |= {str(name): str(value) for name, value in pairs}
        return found

    def messages(self, number: int) -> bytes:
        """All bytes of DATA that a stream got."""
        return b"".join(one.payload for one in self.frames() if one.kind == frames.DATA and one.stream == number)

    def sizes(self) -> Counter[int]:
        """Bytes of DATA of each stream."""
        found = Counter[int]()
        for one in self.frames():
            if one.kind == frames.DATA:
                found[one.stream] += len(one.payload)
        return found

    def resets(self) -> dict[int, Code]:
        return {
            one.stream: Code(int.from_bytes(one.payload, "big"))
            for one in self.frames()
            if one.kind == frames.RST_STREAM
        }

    def end(self) -> tuple[Code, str] | None:
        """How the connection was ended by this end; None: it was not."""
        if not self.wire.closed:
            return None
        last = self.frames()[-1]
        if last.kind != frames.GOAWAY:
            return Code.NO_ERROR, ""
        return Code(int.from_bytes(last.payload[4:8], "big")), last.payload[8:].decode()


def request(method: str) -> list[tuple[str, str]]:
    return [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", "x"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ]


def message(value: bytes, *, compressed: bool = False) -> bytes:
    return bytes([compressed]) + len(value).to_bytes(4, "big") + value


def data(number: int, payload: bytes, *, last: bool = False, padding: int | None = None) -> bytes:
    flags = frames.END_STREAM if last else 0
    if padding is not None:
        flags |= frames.PADDED
        payload = bytes([padding]) + payload + bytes(padding)
    return frames.frame(frames.DATA, flags, number, payload)


async def settled() -> None:
    """Tasks that need nothing but turns of the loop have gone on as far as they can."""
    for _ in range(30):
        await asyncio.sleep(0)


class Served:
    """A server without a socket."""

    def __init__(self, **settings: Any) -> None:
        self.crashes: list[Exception] = []
        self.begun = self.cancelled = 0
        handlers = Handlers(
            {ECHO: self._echo},
            {DOUBLE: self._double, PENDING: self._pending, SOURCE: self._source},
            self.crashes.append,
        )
        self.server = GrpcServer("-:0", handlers, GrpcSettings(**settings), None, lambda _: None)
        self.server.connections = OpenConnections(0, None, lambda _: None, asyncio.get_running_loop().time)
        self.inflow = self.server.inflow

    def peer(self, *, greets: bool = True) -> Peer:
        peer = Peer(ServerConnection(self.server, "192.0.2.1", 7))
        if greets:
            peer.feed(frames.PREFACE + frames.settings({}) + frames.SETTINGS_ACK)
        return peer

    async def check_nothing_held(self) -> None:
        """Once all connections have ended, and with them all calls."""
        await settled()
        assert not self.crashes
        assert (self.inflow.bytes_held, self.inflow.calls, self.inflow.connections) == (0, 0, 0)

    async def _echo(self, request: bytes, info: CallInfo) -> bytes:
        self.begun += 1
        return request

    async def _double(self, stream: Stream, info: CallInfo) -> None:
        self.begun += 1
        while (message := await stream.recv()) is not None:
            await stream.send(message * 2)

    async def _pending(self, stream: Stream, info: CallInfo) -> None:
        self.begun += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled += 1

    async def _source(self, stream: Stream, info: CallInfo) -> None:
        while True:
            await stream.send(bytes(SOURCE_BYTES))


def connected(**settings: Any) -> Peer:
    """The server of a client's connection, which has said its settings."""
    peer = Peer(ClientConnection(message_bytes_max=1 << 20))
    peer.feed(frames.settings({}))
    return peer
