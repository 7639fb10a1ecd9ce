"""Connections that have not sent a byte stay in the kernel; those that have are served as ever."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from streamlog.ports import CallInfo
from streamlog.ports.grpc_adapter import deferred_accept
from streamlog.ports.grpc_adapter.connections import connections_of
from streamlog.ports.grpc_adapter.deferred_accept import defer_accept
from streamlog.ports.grpc_adapter.network import GrpcNetwork

METHOD = "/p.S/M"
SILENT = 20
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # and empty SETTINGS

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "TCP_DEFER_ACCEPT") or not deferred_accept._has_syn_cookies(),
    reason="the kernel has no TCP_DEFER_ACCEPT, or no SYN cookies",
)


def fail(error: Exception) -> None:
    raise error


async def echo(request: bytes, info: CallInfo) -> bytes:
    return request + b"!"


@pytest.fixture
async def network() -> AsyncIterator[GrpcNetwork]:
    made = GrpcNetwork(on_crash=fail)
    yield made
    await made.close()


async def test_only_connections_that_have_sent_a_byte_are_accepted(network: GrpcNetwork) -> None:
    server = await network.listen("127.0.0.1:0", unary={METHOD: echo}, streaming={})
    port = int(server.address.rpartition(":")[2])
    with ExitStack() as held:
        silent = [held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(SILENT)]
        # gRPC accepts in order: with the answer, it has accepted all that came before.
        assert await network.connect(server.address).unary(METHOD, b"a", timeout_s=60) == b"a!"
        assert len(list(connections_of(port))) == 1

        def talk() -> bytes:
            silent[0].sendall(PREFACE)
            return silent[0].recv(1)

        assert await asyncio.to_thread(talk)  # the server's SETTINGS
        assert len(list(connections_of(port))) == 2


def test_nothing_is_deferred_without_syn_cookies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The kernel would refuse everybody once its backlog is full."""
    off = tmp_path / "tcp_syncookies"
    off.write_text("0\n")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        monkeypatch.setattr(deferred_accept, "_SYN_COOKIES", off)
        assert not defer_accept(port)
        assert listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT) == 0
        monkeypatch.setattr(deferred_accept, "_SYN_COOKIES", tmp_path / "unknown")
        assert not defer_accept(port)
        off.write_text("1\n")
        monkeypatch.setattr(deferred_accept, "_SYN_COOKIES", off)
        assert defer_accept(port)
        assert listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT) >= deferred_accept.DEFER_S
