"""A caller over TLS is the owner of its certificate, and never treated as one without TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address

import pytest
from cryptography import x509
from hpack import Encoder

from streamlog.ports import CallInfo
from streamlog.ports.grpc_adapter import frames, server_connection
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.ports.grpc_adapter.settings import GrpcSettings
from streamlog.ports.grpc_adapter.tls.credentials import TlsCredentials
from streamlog.ports.grpc_adapter.tls.peer_certificate import NONE

from .certificates import Authority, Pem, credentials

ECHO = "/test.Service/Echo"
IN_TIME_S = 60.0
TOMORROW = time.time() + 2 * 86_400
LOCAL = x509.IPAddress(ip_address("127.0.0.1"))
LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop]
with suppress(ImportError):
    import uvloop

    LOOPS.append(uvloop.new_event_loop)

both_loops = pytest.mark.parametrize("loop", LOOPS)


def crash(error: Exception) -> None:
    raise error


class Node:
    def __init__(self, *, requires_client: bool = True) -> None:
        self.own = Authority()
        self.callers: list[CallInfo] = []
        self.material = self.own.issue("node", [LOCAL])
        self.tls = credentials(self.material, requires_client=requires_client)
        self.network = GrpcNetwork(on_crash=crash, tls=self.tls, settings=GrpcSettings(handshake_s=IN_TIME_S))

    async def __aenter__(self) -> Node:
        self.server = await self.network.listen("127.0.0.1:0", unary={ECHO: self._echo}, streaming={})
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.network.close()

    async def _echo(self, request: bytes, info: CallInfo) -> bytes:
        self.callers.append(info)
        return repr(info.identity).encode()

    async def call(self, tls: TlsCredentials) -> bytes:
        client = GrpcNetwork(on_crash=crash, tls=tls, settings=GrpcSettings(connect_timeout_s=IN_TIME_S))
        try:
            return await client.connect(self.server.address).unary(ECHO, b"", timeout_s=IN_TIME_S)
        finally:
            await client.close()


def run(loop: Callable[[], asyncio.AbstractEventLoop], main: Callable[[Node], object], **how: bool) -> None:
    async def with_node() -> None:
        async with Node(**how) as node:
            found = main(node)
            assert asyncio.iscoroutine(found)
            await found

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(with_node())


FIELDS = [
    (":method", "POST"), (":scheme", "https"), (":path", ECHO), (":authority", "node"),
    ("te", "trailers"), ("content-type", "application/grpc"),
]  # fmt: skip
CALL = (
    frames.PREFACE
    + frames.settings({})
    + frames.SETTINGS_ACK
    + frames.frame(frames.HEADERS, frames.END_HEADERS, 1, Encoder().encode(FIELDS))
    + frames.frame(frames.DATA, frames.END_STREAM, 1, bytes(5))
)


def call_at_once(port: int, context: ssl.SSLContext) -> None:
    """All of a call in the segment that ends the handshake; returns once something of the response has come."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    secured = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with socket.create_connection(("127.0.0.1", port), timeout=IN_TIME_S) as plain:
        while True:
            try:
                secured.do_handshake()
                break
            except ssl.SSLWantReadError:
                plain.sendall(outgoing.read())
                incoming.write(some_of(plain))
        secured.write(CALL)
        plain.sendall(outgoing.read())
        received = b""
        while b"application/grpc" not in received and b"CN=" not in received:
            try:
                if not (data := secured.read()):
                    raise ConnectionResetError("it was closed")
                received += data
            except ssl.SSLWantReadError:
                incoming.write(some_of(plain))


def some_of(plain: socket.socket) -> bytes:
    if data := plain.recv(1 << 16):
        return data
    raise ConnectionResetError("it was closed")


@both_loops
def test_a_call_that_arrives_with_the_end_of_the_handshake(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main(node: Node) -> None:
        for number in range(20):
            context = credentials(node.own.issue(f"client-{number}")).client_context
            await asyncio.to_thread(call_at_once, node.server.port, context)
        assert [one.identity for one in node.callers] == [f"CN=client-{number}" for number in range(20)]
        assert all(one.certificate is not None for one in node.callers)

    run(loop, main)


@both_loops
def test_many_at_a_time_have_each_their_own_identity(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main(node: Node) -> None:
        callers = [credentials(node.own.issue(f"client-{number}")) for number in range(40)]
        found = await asyncio.gather(*[node.call(one) for one in callers])
        assert found == [f"'CN=client-{number}'".encode() for number in range(40)]

    run(loop, main)


@both_loops
def test_where_no_certificate_is_requested_the_caller_has_an_empty_identity(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main(node: Node) -> None:
        for material in (Pem(b"", b"", node.own.roots), node.own.issue("x")):
            assert await node.call(credentials(material)) == b"''"
            assert (node.callers[-1].names, node.callers[-1].certificate) == ((), None)

    run(loop, main, requires_client=False)


@both_loops
@pytest.mark.parametrize(
    "patched",
    [lambda _: NONE, lambda _: (_ for _ in ()).throw(ValueError("not a certificate"))],
    ids=["none", "unreadable"],
)
def test_one_whose_certificate_cannot_be_read_is_not_served(
    loop: Callable[[], asyncio.AbstractEventLoop],
    patched: Callable[[ssl.SSLObject], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_connection, "peer_certificate", patched)

    async def main(node: Node) -> None:
        context = credentials(node.own.issue("x")).client_context
        with pytest.raises(ConnectionError):
            await asyncio.to_thread(call_at_once, node.server.port, context)
        assert node.callers == []

    run(loop, main)


@both_loops
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_is_resumed_neither_with_other_authorities_nor_with_an_expired_certificate(
    loop: Callable[[], asyncio.AbstractEventLoop], version: ssl.TLSVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(node: Node) -> None:
        context = credentials(node.own.issue("x")).client_context
        context.minimum_version = context.maximum_version = version
        session: ssl.SSLSession | None = None

        def is_resumed() -> bool:
            """And the call is served."""
            nonlocal session
            plain = socket.create_connection(("127.0.0.1", node.server.port), timeout=IN_TIME_S)
            with context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as one:
                assert one.selected_alpn_protocol() == "h2"
                one.sendall(CALL)
                received = b""
                while b"CN=" not in received:
                    received += (data := one.recv(1 << 16))
                    if not data:
                        raise ConnectionResetError("it was closed")
                session = one.session
                return bool(one.session_reused)

        assert not await asyncio.to_thread(is_resumed)
        if await asyncio.to_thread(is_resumed):
            monkeypatch.setattr(time, "time", lambda: TOMORROW)
            with pytest.raises(OSError, match=r".*"):  # its certificate has expired
                await asyncio.to_thread(is_resumed)
            monkeypatch.undo()
        node.tls._use(node.material)
        assert not await asyncio.to_thread(is_resumed)
        assert {one.identity for one in node.callers} == {"CN=x"}

    run(loop, main)
