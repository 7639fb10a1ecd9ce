"""Callers over TLS whose connection ends before a first call: counted, and reported with address and reason."""

from __future__ import annotations

import asyncio
import datetime
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from ipaddress import ip_address

import pytest
from cryptography import x509

from streamlog.ports import CallInfo, HandshakeError
from streamlog.ports.grpc_adapter import frames
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.ports.grpc_adapter.settings import GrpcSettings
from streamlog.ports.grpc_adapter.tls.credentials import TlsCredentials
from streamlog.ports.grpc_adapter.tls.handshakes import refused_caller
from streamlog.ports.grpc_adapter.tls.refusals import REPORT_S, Refusals

from .certificates import Authority, Pem, credentials

ECHO = "/test.Service/Echo"
IN_TIME_S = 60.0


def test_one_line_a_minute() -> None:
    now, lines = 0.0, list[str]()
    refusals = Refusals(9092, lines.append, lambda: now)
    refusals.ended("10.0.0.7:5000", "it does not use TLS")
    for number in range(9):
        refusals.ended(f"a:{number}", "its certificate is not accepted (certificate has expired)")
    now += REPORT_S
    refusals.ended("[::1]:11", "it does not use TLS")
    assert lines == [
        "the connection from 10.0.0.7:5000 to port 9092 was closed before a first call: it does not use TLS",
        "10 connections to port 9092, the last from [::1]:11, were closed before a first call: it does not use TLS",
    ]
    assert refusals.ended_without_call == 11


def crash(error: Exception) -> None:
    raise error


class Node:
    """A server over TLS, and those that call it."""

    def __init__(self, *, handshake_s: float = IN_TIME_S) -> None:
        self.own, self.foreign = Authority(), Authority("another authority")
        address = x509.IPAddress(ip_address("127.0.0.1"))
        self.material = self.own.issue("node", [address])
        self.callers: list[CallInfo] = []
        self.peers: list[str] = []  # their own ends
        self._said: asyncio.Queue[str] = asyncio.Queue()
        self._networks: list[GrpcNetwork] = []
        self._settings = GrpcSettings(handshake_s=handshake_s, connect_timeout_s=IN_TIME_S)

    def network(self, tls: TlsCredentials | None) -> GrpcNetwork:
        self._networks.append(
            GrpcNetwork(on_crash=crash, on_connections=self._said.put_nowait, tls=tls, settings=self._settings)
        )
        return self._networks[-1]

    async def listen(self) -> None:
        network = self.network(credentials(self.material))
        self.server = await network.listen("127.0.0.1:0", unary={ECHO: self._echo}, streaming={})
        self.port = self.server.port
        (self.refusals,) = network.refusals()

    async def _echo(self, request: bytes, info: CallInfo) -> bytes:
        self.callers.append(info)
        return request

    async def call(self, material: Pem | None, host: str = "127.0.0.1", version: ssl.TLSVersion | None = None) -> bytes:
        tls = None if material is None else credentials(material)
        if tls is not None and version is not None:
            tls.client_context.minimum_version = tls.client_context.maximum_version = version
        return await self.network(tls).connect(f"{host}:{self.port}").unary(ECHO, b"x", timeout_s=IN_TIME_S)

    async def fail(self, material: Pem | None, host: str = "127.0.0.1", **how: ssl.TLSVersion) -> HandshakeError:
        with pytest.raises(HandshakeError) as refused:
            await self.call(material, host, **how)
        assert refused.value.message.startswith(f"the node at {host}:{self.port} cannot be used: ")
        return refused.value

    async def reported(self) -> str:
        """The reason in its next report."""
        async with asyncio.timeout(IN_TIME_S):
            line = await self._said.get()
        self.refusals._reported_at = -REPORT_S
        before, _, reason = line.partition(" was closed before a first call: ")
        assert before.startswith("the connection from 127.0.0.1:")
        assert before.endswith(f" to port {self.port}")
        return reason

    async def close(self) -> None:
        for network in reversed(self._networks):
            await network.close()


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    made = Node()
    await made.listen()
    yield made
    await made.close()


CLOSED = "it closed the connection at once: it may expect TLS"
VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])


@VERSIONS
async def test_one_with_a_certificate_of_another_authority(node: Node, version: ssl.TLSVersion) -> None:
    error = await node.fail(node.foreign.issue("x").trusting(node.own.roots), version=version)
    assert CLOSED in error.message
    assert not error.is_refused_here
    reason = await node.reported()
    assert reason.startswith("its certificate is not accepted (")
    assert "issuer" in reason
    assert (node.refusals.begun, node.refusals.ended_without_call, node.callers) == (1, 1, [])


@VERSIONS
async def test_one_without_a_certificate(node: Node, version: ssl.TLSVersion) -> None:
    error = await node.fail(Pem(b"", b"", node.own.roots), version=version)
    assert CLOSED in error.message
    assert await node.reported() == "it has no certificate, which ssl.client.auth requires"
    assert node.callers == []


@VERSIONS
async def test_one_whose_certificate_has_expired(node: Node, version: ssl.TLSVersion) -> None:
    expired = node.own.issue("x", valid_for=-datetime.timedelta(days=1))
    assert CLOSED in (await node.fail(expired, version=version)).message
    assert await node.reported() == "its certificate is not accepted (certificate has expired)"
    assert node.callers == []


async def test_one_without_tls(node: Node) -> None:
    assert CLOSED in (await node.fail(None)).message
    assert await node.reported() == "it does not use TLS"
    assert node.callers == []


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/1.0\r\n\r\n", b"CONNECT a:1 HTTP/1.1\r\n\r\n", b"SSH-2.0-OpenSSH\r\n", bytes(64)],
    ids=["HTTP", "a proxy's", "SSH", "zeros"],
)
async def test_one_that_speaks_something_else(node: Node, sent: bytes) -> None:
    assert await asyncio.to_thread(answer, node.port, sent) == b""
    assert await node.reported() == "it does not use TLS"


async def test_one_that_trusts_another_authority(node: Node) -> None:
    error = await node.fail(node.own.issue("x").trusting(node.foreign.roots))
    assert error.message.endswith("its certificate is not signed by a trusted authority (ssl.truststore.location)")
    assert error.is_refused_here
    assert await node.reported() == "it was closed during the TLS handshake"


async def test_one_that_connects_by_another_name(node: Node) -> None:
    error = await node.fail(node.own.issue("x"), host="localhost")
    assert error.message.endswith(
        "its certificate does not name this host: it must be among the subject alternative names"
    )
    assert error.is_refused_here


async def test_a_node_whose_certificate_has_expired_or_is_not_valid_yet() -> None:
    for valid_for, words in ((-1, "its certificate has expired: renew it"), (60, "its certificate is not valid yet: ")):
        node = Node()
        address = x509.IPAddress(ip_address("127.0.0.1"))
        node.material = node.own.issue("node", [address], valid_for=datetime.timedelta(days=valid_for))
        await node.listen()
        try:
            error = await node.fail(node.own.issue("x"))
            assert words in error.message
            assert error.is_refused_here
        finally:
            await node.close()


async def test_a_node_without_tls(node: Node) -> None:
    node.server = await node.network(None).listen("127.0.0.1:0", unary={}, streaming={})
    node.port = node.server.port
    error = await node.fail(node.own.issue("x"))
    assert error.message.endswith("it does not speak TLS: its listener is PLAINTEXT")
    assert error.is_refused_here


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("UNSUPPORTED_PROTOCOL", "its version of TLS is below 1.2"),
        ("NO_SHARED_CIPHER", "it has no cipher suite in common with this node"),
        ("TLSV1_ALERT_UNKNOWN_CA", "it does not trust this node's certificate: it needs the authority that signed it"),
        ("UNEXPECTED_MESSAGE", "the TLS handshake failed (UNEXPECTED_MESSAGE)"),
        (None, "the TLS handshake failed (without a reason)"),
    ],
)
def test_other_reasons(reason: str | None, words: str) -> None:
    error = ssl.SSLError(1, "")
    error.reason = reason  # type: ignore[assignment]
    assert refused_caller(error) == words


async def test_one_that_takes_too_long() -> None:
    node = Node(handshake_s=0.3)
    await node.listen()
    try:
        assert await asyncio.to_thread(answer, node.port, b"\x16\x03\x01") == b""
        assert await node.reported() == (
            "its TLS handshake was not complete in time (connections.handshake.timeout.ms)"
        )
    finally:
        await node.close()


async def test_one_that_leaves_after_the_handshake_is_reported_and_one_that_has_called_is_not(node: Node) -> None:
    material = node.own.issue("x")
    assert await node.call(material) == b"x"
    await node._networks[-1].close()
    assert await asyncio.to_thread(answer, node.port, frames.PREFACE[:3], credentials(material).client_context)
    assert "closed" in await node.reported()
    assert node.refusals.ended_without_call == 1
    assert [caller.identity for caller in node.callers] == ["CN=x"]


def answer(port: int, sent: bytes, context: ssl.SSLContext | None = None) -> bytes:
    """The first part; nothing: the connection has ended."""
    with socket.create_connection(("127.0.0.1", port), timeout=IN_TIME_S) as plain, suppress(ConnectionResetError):
        one = plain if context is None else context.wrap_socket(plain, server_hostname="127.0.0.1")
        one.sendall(sent)
        return one.recv(1024)
    return b""
