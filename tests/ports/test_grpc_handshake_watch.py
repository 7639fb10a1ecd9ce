"""Connections over TLS that end before a first call are noticed, with their addresses."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from streamlog.ports import CallInfo, RpcError
from streamlog.ports.grpc_adapter import handshake_watch as module
from streamlog.ports.grpc_adapter.credentials import TlsCredentials
from streamlog.ports.grpc_adapter.handshake_watch import HandshakeWatch
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.tls.authority import CA_CERTIFICATE, Authority
from streamlog.tls.material import MaterialFiles

ECHO = "/test.Service/Echo"


class Rig:
    def __init__(self) -> None:
        self.now = 0.0
        self.open: list[str] = []
        self.lines: list[str] = []
        self.watch = HandshakeWatch(self.lines.append, lambda port: self.open, lambda: self.now)
        self.watch.port = 9092

    def connect(self, peer: str) -> None:
        self.open = [*self.open, peer]
        self.now += module.LOOK_S
        self.watch.begins()

    def disconnect(self, peer: str) -> None:
        self.open = [one for one in self.open if one != peer]
        self.now += module.CHECK_S
        self.watch.check()


def test_one_that_never_calls_is_reported_with_its_address() -> None:
    rig = Rig()
    rig.connect("10.0.0.7:5000")
    rig.disconnect("10.0.0.7:5000")
    assert (rig.watch.begun, rig.watch.ended_without_call) == (1, 1)
    [line] = rig.lines
    assert line.startswith("the connection from 10.0.0.7:5000 to port 9092 was closed before a first call")


def test_one_that_has_called_is_not() -> None:
    rig = Rig()
    rig.connect("[::1]:5000")
    rig.watch.has_called("[::1]:5000")
    rig.watch.has_called("[::1]:5000")
    rig.disconnect("[::1]:5000")
    assert (rig.watch.ended_without_call, rig.lines) == (0, [])


def test_one_that_called_before_it_was_seen_is_not_either() -> None:
    """Sockets are not listed for each handshake."""
    rig = Rig()
    rig.connect("a:1")
    rig.open.append("b:2")
    rig.watch.begins()  # too soon after the last look
    rig.watch.has_called("b:2")
    rig.connect("c:3")
    rig.disconnect("b:2")
    assert rig.watch.ended_without_call == 0
    rig.open.append("b:2")  # the same port again, another connection
    rig.connect("d:4")
    rig.disconnect("b:2")
    assert rig.watch.ended_without_call == 1


def test_one_line_a_minute() -> None:
    rig = Rig()
    for number in range(10):
        rig.connect(f"a:{number}")
        rig.disconnect(f"a:{number}")
    assert len(rig.lines) == 1
    rig.now += module.REPORT_S
    rig.connect("a:11")
    rig.disconnect("a:11")
    assert rig.lines[1].startswith("10 connections to port 9092, the last from a:11, were closed")
    assert rig.watch.ended_without_call == 11


def test_one_that_stays_without_a_call_is_forgotten() -> None:
    rig = Rig()
    rig.connect("a:1")
    rig.now += module.FORGOTTEN_S
    rig.watch.check()
    rig.disconnect("a:1")
    assert rig.watch.ended_without_call == 0


def test_what_it_holds_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PENDING_MAX", 3)
    monkeypatch.setattr(module, "CALLED_MAX", 3)
    rig = Rig()
    for number in range(10):
        rig.connect(f"a:{number}")
        rig.watch.has_called(f"short:{number}")
    for number in range(10):
        rig.disconnect(f"a:{number}")
    assert rig.watch.ended_without_call == 3
    assert len(rig.watch._called) <= 3


def credentials(keystore: Path, authority: Authority) -> TlsCredentials:
    roots = str(authority.directory / CA_CERTIFICATE)
    return TlsCredentials(MaterialFiles(keystore=str(keystore), key=None, chain=None, truststore=roots, roots=None))


def crash(error: Exception) -> None:
    raise error


async def test_a_caller_of_another_authority_and_one_without_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.0)
    monkeypatch.setattr(module, "CHECK_S", 0.01)
    own, foreign = Authority.create(tmp_path / "own"), Authority.create(tmp_path / "foreign")
    lines: list[str] = []
    node_tls = credentials(own.add_node(1, ["127.0.0.1"]), own)
    node = GrpcNetwork(on_crash=crash, on_connections=lines.append, tls=node_tls)
    stranger = GrpcNetwork(on_crash=crash, tls=credentials(foreign.add_client("x"), own))
    known = GrpcNetwork(on_crash=crash, tls=credentials(own.add_client("client"), own))
    try:
        peers: list[str] = []

        async def note_peer(request: bytes, info: CallInfo) -> bytes:
            peers.append(info.peer)
            return request

        server = await node.listen("127.0.0.1:0", unary={ECHO: note_peer}, streaming={})
        [watch] = node.handshake_watches()
        assert await known.connect(server.address).unary(ECHO, b"", timeout_s=60) == b""
        async with asyncio.timeout(60):
            while watch.ended_without_call == 0:  # a list of the sockets may come too late for one, not for all
                with suppress(RpcError):
                    await stranger.connect(server.address).unary(ECHO, b"", timeout_s=60)
            seen = watch.ended_without_call
            while watch.ended_without_call == seen:
                await asyncio.to_thread(speak_plainly, server.address)
        assert "closed before a first call" in lines[0]
        assert "from 127.0.0.1:" in lines[0]
        assert watch.begun >= 3
        watch.check()
        assert watch._open & set(peers) == set(peers), "the open connection is found under gRPC's name for it"
        assert not watch._pending.keys() & set(peers)
    finally:
        for network in (stranger, known, node):
            await network.close()


def speak_plainly(address: str) -> None:
    host, _, port = address.rpartition(":")
    with suppress(OSError), socket.create_connection((host, int(port)), timeout=60) as one:
        one.sendall(b"GET / HTTP/1.0\r\n\r\n")
        one.recv(1)
