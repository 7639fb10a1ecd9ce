"""Clients that do not acknowledge the server's settings: limits that HTTP/2 would let them ignore."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import hpack
import pytest

from streamlog.ports import CallInfo
from streamlog.ports.grpc_adapter.metadata import METADATA_BYTES_MAX
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.ports.grpc_adapter.settings import GrpcSettings

METHOD = "/p.S/M"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, CONTINUATION = 0, 1, 4, 9
END_STREAM, END_HEADERS = 1, 4


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def field(name: bytes, value: bytes) -> bytes:
    return bytes((0, len(name))) + name + bytes((len(value),)) + value


CALL = b"".join(
    field(name, value)
    for name, value in {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": METHOD.encode(),
        b":authority": b"x",
        b"te": b"trailers",
        b"content-type": b"application/grpc",
    }.items()
)
FIELDS = field(b"x-abcdefgh", b"v" * 100) * 120


async def echo(request: bytes, info: CallInfo) -> bytes:
    return request + b"!"


def fail(error: Exception) -> None:
    raise error


class Client:
    """HTTP/2 by hand."""

    def __init__(self, made: socket.socket) -> None:
        self.socket = made
        self._unread = b""

    def read(self, size: int) -> bytes:
        while len(self._unread) < size:
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError("closed by the server")
            self._unread += data
        found, self._unread = self._unread[:size], self._unread[size:]
        return found

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """Kind and payload."""
        while True:
            head = self.read(9)
            yield head[3], self.read(int.from_bytes(head[:3], "big"))


@contextmanager
def connected(address: str) -> Iterator[Client]:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as made:
        made.sendall(PREFACE + frame(SETTINGS, 0, 0))
        yield Client(made)


def call_with_metadata(address: str, fields: bytes) -> dict[str, str]:
    """Returns the first headers of the answer."""
    with connected(address) as client:
        client.socket.sendall(frame(HEADERS, 0, 1, CALL) + frame(CONTINUATION, END_HEADERS, 1, fields))
        client.socket.sendall(frame(DATA, END_STREAM, 1, bytes(5)))  # an empty message
        block = next(payload for kind, payload in client.frames() if kind == HEADERS)
    return {str(name): str(value) for name, value in hpack.Decoder().decode(block)}


@pytest.mark.parametrize("method", [METHOD, "/p.S/Other"])
async def test_metadata_beyond_the_limit_is_refused(method: str) -> None:
    network = GrpcNetwork(on_crash=fail, settings=GrpcSettings())
    server = await network.listen("127.0.0.1:0", unary={method: echo}, streaming={})
    refused = await asyncio.to_thread(call_with_metadata, server.address, FIELDS)
    assert len(FIELDS) < METADATA_BYTES_MAX  # the fields count 32 bytes more each
    assert refused["grpc-status"] == "8"  # RESOURCE_EXHAUSTED
    assert "larger than 16384 bytes" in refused["grpc-message"]
    if method == METHOD:
        assert "grpc-message" not in await asyncio.to_thread(call_with_metadata, server.address, FIELDS[: 113 * 10])
    await network.close()


def read_until_closed(address: str) -> None:
    with connected(address) as client:
        for _ in client.frames():
            pass


async def test_a_connection_is_closed() -> None:
    network = GrpcNetwork(on_crash=fail, settings=GrpcSettings(handshake_s=0.3, server_keepalive_s=3600))
    server = await network.listen("127.0.0.1:0", unary={METHOD: echo}, streaming={})
    with pytest.raises(ConnectionError):
        await asyncio.to_thread(read_until_closed, server.address)
    await network.close()
