"""Certificates that change while connections use them; what cannot be used is reported, and what was stays."""

from __future__ import annotations

import asyncio
import ssl
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from streamlog.errors import InvalidConfigError
from streamlog.ports import CallInfo, HandshakeError, Stream
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.ports.grpc_adapter.tls import contexts
from streamlog.ports.grpc_adapter.tls import credentials as module
from streamlog.ports.grpc_adapter.tls.credentials import TlsCredentials

from .certificates import Authority, Pem

ECHO, RELAY = "/test.Service/Echo", "/test.Service/Relay"
IN_TIME_S = 60.0
LOCAL = x509.IPAddress(ip_address("127.0.0.1"))


def crash(error: Exception) -> None:
    raise error


class Changing:
    """A MaterialSource, and what is said about its reloads."""

    def __init__(self, material: Pem | Exception) -> None:
        self.said: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._material = material
        self._version = 0

    def change(self, material: Pem | Exception) -> None:
        self._material = material
        self._version += 1

    async def changed(self, material: Pem | Exception) -> tuple[str, str]:
        """What is said then."""
        self.change(material)
        async with asyncio.timeout(IN_TIME_S):
            return await self.said.get()

    def signature(self) -> int:
        return self._version

    def load(self) -> Pem:
        if isinstance(self._material, Exception):
            raise self._material
        return self._material

    def report(self, level: str, what: str) -> None:
        self.said.put_nowait((level, what))

    def credentials(self) -> TlsCredentials:
        return TlsCredentials(self, self.report)


async def who(request: bytes, info: CallInfo) -> bytes:
    return (info.identity or "none").encode()


async def relay(stream: Stream, info: CallInfo) -> None:
    while (message := await stream.recv()) is not None:
        await stream.send(message + await who(b"", info))


USED = ("INFO", "the changed TLS files are used for new connections")


async def test_both_ends_follow_their_files_and_calls_under_way_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RELOAD_S", 0.01)
    former, later = Authority(), Authority("its successor")
    both = former.roots + later.roots
    of_node = Changing(former.issue("node", [LOCAL]))
    of_client = Changing(former.issue("first"))
    node = GrpcNetwork(on_crash=crash, tls=of_node.credentials())
    client = GrpcNetwork(on_crash=crash, tls=of_client.credentials())
    try:
        server = await node.listen("127.0.0.1:0", unary={ECHO: who}, streaming={RELAY: relay})
        channel = client.connect(server.address)

        async def call() -> bytes:
            return await channel.unary(ECHO, b"", timeout_s=IN_TIME_S)

        async with channel.stream(RELAY) as stream:
            await stream.send(b"1 ")
            assert await stream.recv() == b"1 CN=first"
            assert await of_client.changed(former.issue("second").trusting(both)) == USED
            assert await call() == b"CN=second"
            assert await of_node.changed(later.issue("node", [LOCAL])) == USED
            # The node trusts the successor alone now: connections that exist go on, others are refused.
            assert await call() == b"CN=second"
            assert await of_client.changed(former.issue("third").trusting(both)) == USED
            with pytest.raises(HandshakeError):
                await call()
            assert await of_client.changed(later.issue("fourth").trusting(both)) == USED
            async with asyncio.timeout(IN_TIME_S):
                while True:  # it fails at once until the backoff has passed
                    try:
                        assert await call() == b"CN=fourth"
                        break
                    except HandshakeError:
                        await asyncio.sleep(0.01)
            await stream.send(b"2 ")
            assert await stream.recv() == b"2 CN=first"
    finally:
        await client.close()
        await node.close()


async def test_what_cannot_be_used_is_reported_once_and_the_earlier_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RELOAD_S", 0.01)
    own = Authority()
    of_node = Changing(own.issue("node", [LOCAL]))
    node = GrpcNetwork(on_crash=crash, tls=of_node.credentials())
    client = GrpcNetwork(on_crash=crash, tls=Changing(own.issue("x")).credentials())
    try:
        server = await node.listen("127.0.0.1:0", unary={ECHO: who}, streaming={})
        one, other = own.issue("node"), own.issue("node")
        for material, why in (
            (InvalidConfigError("/etc/node.pem: no such file"), "/etc/node.pem: no such file"),
            (Pem(one.key, other.chain, own.roots), "OpenSSL does not accept the certificates"),
            (Pem(b"-----BEGIN", other.chain, own.roots), "OpenSSL does not accept the certificates"),
            (Pem(one.key, one.chain, b"nothing"), "OpenSSL does not accept the certificates"),
            (RuntimeError("a disk that fails"), "a disk that fails"),
        ):
            level, said = await of_node.changed(material)
            assert level == "WARN"
            assert said.startswith(f"the changed TLS files are not used, the earlier ones stay in use: {why}")
            channel = client.connect(server.address)
            assert await channel.unary(ECHO, b"", timeout_s=IN_TIME_S) == b"CN=x"
        assert of_node.said.empty()
    finally:
        await client.close()
        await node.close()


async def test_what_is_not_valid_yet_is_used_once_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files do not change meanwhile."""
    monkeypatch.setattr(module, "RELOAD_S", 0.01)
    own = Authority()
    source = Changing(own.issue("node", [LOCAL]))
    later, errors = own.issue("node", [LOCAL]), [InvalidConfigError("not valid yet")] * 3

    def load() -> Pem:
        if errors:
            raise errors.pop()
        return later

    credentials = source.credentials()
    watching = asyncio.ensure_future(credentials.watch())
    monkeypatch.setattr(source, "load", load)
    assert (await source.changed(later))[0] == "WARN"
    async with asyncio.timeout(IN_TIME_S):
        assert await source.said.get() == USED  # and nothing in between
    watching.cancel()
    assert credentials.version == 1


@pytest.mark.parametrize(
    "broken",
    [
        lambda pem, other: Pem(pem.key, other.chain, pem.roots),
        lambda pem, other: Pem(pem.key, b"", pem.roots),
        lambda pem, other: Pem(b"garbage", pem.chain, pem.roots),
        lambda pem, other: Pem(pem.key, pem.chain, b"garbage"),
        lambda pem, other: Pem(pem.key, pem.chain, pem.roots[:60]),
    ],
    ids=["of another", "no chain", "no key", "no roots", "half a root"],
)
def test_material_that_openssl_does_not_accept(broken: object) -> None:
    own = Authority()
    assert callable(broken)
    material = broken(own.issue("a"), own.issue("b"))
    for made in (contexts.client_context, lambda one: contexts.server_context(one, requires_client=True)):
        with pytest.raises(InvalidConfigError, match=r"ssl.keystore or ssl.truststore: .") as refused:
            made(material)
        assert "Error" not in refused.value.message


def test_a_key_that_is_too_small() -> None:
    own = Authority()
    small = rsa.generate_private_key(public_exponent=65_537, key_size=1_024)
    pem = own.issue("a", key=small)
    with pytest.raises(InvalidConfigError, match=r"too small: RSA keys need 2,048 bits, and signatures SHA-256$"):
        contexts.client_context(pem)


def test_versions_ciphers_and_protocol() -> None:
    own = Authority()
    material = own.issue("a")
    for context in (
        contexts.client_context(material),
        contexts.server_context(material, requires_client=True),
        contexts.server_context(material, requires_client=False),
    ):
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
        for one in context.get_ciphers():
            assert one["protocol"] == "TLSv1.3" or ("ECDHE" in one["name"] and one["aead"]), one
        wanted = ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        assert context.options & wanted == wanted
    client = contexts.client_context(material)
    assert client.check_hostname
    assert client.verify_mode == ssl.CERT_REQUIRED
    assert contexts.server_context(material, requires_client=True).verify_mode == ssl.CERT_REQUIRED
