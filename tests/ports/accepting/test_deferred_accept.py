"""Connections that have not sent a byte stay in the kernel; those that have are served as ever."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from streamlog.ports import CallInfo
from streamlog.ports.grpc_adapter import frames
from streamlog.ports.grpc_adapter.accepting import deferred_accept
from streamlog.ports.grpc_adapter.accepting.deferred_accept import defer_accept
from streamlog.ports.grpc_adapter.network import GrpcNetwork

METHOD = "/p.S/M"
SILENT = 20

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
    with ExitStack() as held:
        address = ("127.0.0.1", server.port)
        silent = [held.enter_context(socket.create_connection(address, timeout=60)) for _ in range(SILENT)]
        # They are accepted in order: with the answer, all that came before would have been.
        assert await network.connect(server.address).unary(METHOD, b"a", timeout_s=60) == b"a!"
        assert (server.connections.count, server.connections.silent_count) == (1, 0)

        def talk() -> bytes:
            silent[0].sendall(frames.PREFACE + frames.settings({}))
            return silent[0].recv(1)

        assert await asyncio.to_thread(talk)  # the server's SETTINGS
        assert server.connections.count == 2


def test_nothing_is_deferred_without_syn_cookies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The kernel would refuse everybody once its backlog is full."""
    off = tmp_path / "tcp_syncookies"
    off.write_text("0\n")
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_server(("127.0.0.1", 0)) as other:
        monkeypatch.setattr(deferred_accept, "_SYN_COOKIES", off)
        assert not defer_accept([listening])
        assert listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT) == 0
        monkeypatch.setattr(deferred_accept, "_SYN_COOKIES", tmp_path / "unknown")
        assert not defer_accept([listening])
        off.write_text("1\n")
        monkeypatch.setattr(deferred_accept, "_SYN_COOKIES", off)
        assert defer_accept([listening, other])
        for one in (listening, other):
            assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT) >= deferred_accept.DEFER_S
