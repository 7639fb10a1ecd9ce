"""A peer that answers no ping, on a link so slow that what was written before it still takes its time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from streamlog.errors import Status
from streamlog.ports import RpcError
from streamlog.ports.grpc_adapter import channel, frames, server
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.ports.grpc_adapter.send_progress import SendProgress
from streamlog.ports.grpc_adapter.settings import GrpcSettings

from ..networks import eventually

SETTINGS = GrpcSettings(keepalive_s=0.01, keepalive_timeout_s=0.01, server_keepalive_s=0.01)
LARGE = 1 << 20


async def pair() -> tuple[asyncio.Transport, socket.socket]:
    """A transport, and the socket at its other end, which takes little."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(asyncio.Protocol, *listener.getsockname())
        return transport, listener.accept()[0]


async def test_what_the_peer_takes_is_progress_until_all_of_it_is_there() -> None:
    transport, peer = await pair()
    with peer:
        assert not SendProgress(transport).has_advanced()  # nothing is under way
        transport.write(bytes(LARGE))
        progress = SendProgress(transport)
        transport.write(b"ping")
        peer.setblocking(False)
        taken, advances = 0, 0
        while taken < LARGE:
            taken += len(await asyncio.get_running_loop().sock_recv(peer, LARGE // 8))
            advances += progress.has_advanced()
        assert advances >= 4
        await eventually(lambda: not progress.has_advanced())  # it has all: from now on only an answer counts
        transport.write(b"more")
        assert not progress.has_advanced()
    transport.abort()


async def test_a_peer_that_takes_nothing_makes_none() -> None:
    transport, peer = await pair()
    with peer:
        transport.write(bytes(LARGE))
        progress = SendProgress(transport)
        await eventually(lambda: not progress.has_advanced())  # its buffer is full
        assert not progress.has_advanced()
    transport.abort()


LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop]
with suppress(ImportError):
    import uvloop

    LOOPS.append(uvloop.new_event_loop)


@pytest.mark.parametrize("new_loop", LOOPS, ids=["asyncio", "uvloop"][: len(LOOPS)])
def test_a_connection_that_has_ended_makes_none(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Its socket has no descriptor any more. The watch of a server asks about it as about others."""

    async def work() -> None:
        transport, peer = await pair()
        peer.close()
        transport.write(bytes(LARGE))
        progress = SendProgress(transport)
        lost = transport.get_extra_info("socket")
        transport.abort()
        await eventually(lambda: lost.fileno() < 0)
        assert not progress.has_advanced()
        assert not SendProgress(transport).has_advanced()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(work())


def crashed(error: Exception) -> None:
    raise error


class Progress:
    """Has advanced as often as is said."""

    def __init__(self, times: Iterator[bool]) -> None:
        self.times = times
        self.asked = 0

    def __call__(self, transport: asyncio.Transport) -> Progress:
        return self

    def has_advanced(self) -> bool:
        self.asked += 1
        return next(self.times, False)


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """It speaks HTTP/2, and then does not answer."""
    writer.write(frames.settings({}) + frames.SETTINGS_ACK)
    while await reader.read(1 << 16):
        pass
    writer.close()


async def test_a_node_that_takes_a_request_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Progress(iter([True, True]))
    monkeypatch.setattr(channel, "SendProgress", progress)
    network = GrpcNetwork(on_crash=crashed, settings=SETTINGS)
    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with listener:
        host, port = listener.sockets[0].getsockname()
        with pytest.raises(RpcError) as caught:
            await network.connect(f"{host}:{port}").unary("/a/b", b"x", timeout_s=60)
        assert (caught.value.status, caught.value.message) == (Status.UNAVAILABLE, "the node does not answer")
        assert progress.asked == 3
        await network.close()


async def test_a_caller_that_takes_a_response_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Progress(iter([True, True]))
    monkeypatch.setattr(server, "SendProgress", progress)
    network = GrpcNetwork(on_crash=crashed, settings=SETTINGS)

    async def handle(request: bytes, info: Any) -> bytes:
        return request

    handlers: dict[str, Callable[[bytes, Any], Awaitable[bytes]]] = {"/a/b": handle}
    listening = await network.listen("127.0.0.1:0", unary=handlers, streaming={})
    reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
    writer.write(frames.PREFACE + frames.settings({}) + frames.SETTINGS_ACK)
    while await reader.read(1 << 16):
        pass
    assert progress.asked == 3
    writer.close()
    await network.close()
