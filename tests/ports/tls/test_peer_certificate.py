"""What handlers learn of a caller's certificate: as of gRPC's own servers, so that mapping rules keep their meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any

import grpc
import grpc.aio
import pysyncobj  # noqa: F401  before the adapter: it replaces socket.inet_ntop
import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID, ObjectIdentifier
from msgspec import Struct

from streamlog.ports import CallInfo
from streamlog.ports.grpc_adapter.network import GrpcNetwork

from .certificates import Authority, Pem, credentials

ECHO = "/test.Service/Echo"
IN_TIME_S = 60.0
LOCAL = x509.IPAddress(ip_address("127.0.0.1"))


class Owner(Struct, frozen=True, kw_only=True):
    subject: x509.Name
    names: Sequence[x509.GeneralName] = ()


def name(*sets: Mapping[ObjectIdentifier, str]) -> x509.Name:
    return x509.Name(
        [
            x509.RelativeDistinguishedName([x509.NameAttribute(kind, value) for kind, value in one.items()])
            for one in sets
        ]
    )


def of(kind: ObjectIdentifier, value: str) -> x509.Name:
    return name({kind: value})


CN, ORG, UNIT = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME
OWNERS: Mapping[str, Owner] = {
    "usual": Owner(subject=name({ORG: "streamlog"}, {CN: "node-1"}), names=[x509.DNSName("node-1.example"), LOCAL]),
    "not ASCII": Owner(subject=name({ORG: "Bäckerei Müller"}, {CN: "日本語"})),
    "special characters": Owner(subject=of(CN, 'a,b+c"d\\e<f>g;h=i/j#k')),
    "at its edges": Owner(subject=name({ORG: "#first"}, {UNIT: " spaces "}, {CN: " "})),
    "control characters": Owner(subject=of(CN, "a\tb\x7fc\nd")),
    "of several values": Owner(subject=name({ORG: "streamlog"}, {CN: "x", NameOID.USER_ID: "42"})),
    "kinds": Owner(
        subject=name(
            {NameOID.DOMAIN_COMPONENT: "example"},
            {NameOID.DOMAIN_COMPONENT: "corp"},
            {NameOID.COUNTRY_NAME: "CH"},
            {NameOID.STATE_OR_PROVINCE_NAME: "Bern"},
            {NameOID.LOCALITY_NAME: "Thun"},
            {NameOID.STREET_ADDRESS: "Weg 1"},
            {NameOID.USER_ID: "u1"},
            {NameOID.EMAIL_ADDRESS: "a@b.example"},
        )
    ),
    "other kinds": Owner(
        subject=name(
            {NameOID.SERIAL_NUMBER: "0815"},
            {NameOID.TITLE: "Dr."},
            {NameOID.SURNAME: "Meier"},
            {NameOID.GIVEN_NAME: "Eva"},
            {NameOID.INITIALS: "E.M."},
            {NameOID.GENERATION_QUALIFIER: "II"},
            {NameOID.DN_QUALIFIER: "q"},
            {NameOID.PSEUDONYM: "em"},
            {NameOID.POSTAL_CODE: "3600"},
            {NameOID.BUSINESS_CATEGORY: "b"},
            {NameOID.ORGANIZATION_IDENTIFIER: "oi"},
            {NameOID.UNSTRUCTURED_NAME: "un"},
            {NameOID.JURISDICTION_COUNTRY_NAME: "CH"},
        )
    ),
    "unknown kind": Owner(subject=name({ObjectIdentifier("1.2.3.4.5"): "x", CN: "y"}, {ORG: "z"})),
    "long unknown kind": Owner(subject=of(ObjectIdentifier("1.2.3.4.999999.5"), "ä" * 300)),
    "empty": Owner(subject=x509.Name([]), names=[x509.UniformResourceIdentifier("spiffe://example/x")]),
    "names": Owner(
        subject=of(CN, "x"),
        names=[
            x509.DNSName("a.example"),
            x509.DNSName("*.b.example"),
            x509.UniformResourceIdentifier("spiffe://example/ns/a?b=c,d"),
            x509.RFC822Name("a@b.example"),
            x509.IPAddress(ip_address("10.0.0.7")),
            x509.IPAddress(ip_address("2001:db8::1")),
            x509.IPAddress(ip_address("::ffff:10.0.0.8")),
            x509.DirectoryName(of(CN, "directory")),
            x509.RegisteredID(ObjectIdentifier("1.2.3.4")),
            x509.OtherName(ObjectIdentifier("1.2.3.5"), b"\x0c\x01x"),
            x509.DNSName("last.example"),
        ],
    ),
}


def crash(error: Exception) -> None:
    raise error


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


async def of_ours(node: Pem, callers: Mapping[str, Pem]) -> dict[str, CallInfo]:
    network, found = GrpcNetwork(on_crash=crash, tls=credentials(node)), {}
    try:
        seen: list[CallInfo] = []

        async def note(request: bytes, info: CallInfo) -> bytes:
            seen.append(info)
            return request

        server = await network.listen("127.0.0.1:0", unary={ECHO: note}, streaming={})
        for key, pem in callers.items():
            client = GrpcNetwork(on_crash=crash, tls=credentials(pem))
            await client.connect(server.address).unary(ECHO, b"", timeout_s=IN_TIME_S)
            await client.close()
            found[key] = seen.pop()
    finally:
        await network.close()
    return found


async def of_grpc(node: Pem, callers: Mapping[str, Pem]) -> dict[str, Mapping[str, Sequence[bytes]]]:
    """What gRPC's server gives its handlers."""
    seen: list[Any] = []

    async def note(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        seen.append(context.auth_context())
        return request

    class Handlers(grpc.GenericRpcHandler):
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
            handler: Any = grpc.unary_unary_rpc_method_handler(note)
            return handler

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Handlers(),))
    secured = grpc.ssl_server_credentials([(node.key, node.chain)], node.roots, require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", secured)
    await server.start()
    found = {}
    try:
        for key, pem in callers.items():
            client = grpc.ssl_channel_credentials(pem.roots, pem.key, pem.chain)
            async with grpc.aio.secure_channel(f"127.0.0.1:{port}", client) as channel:
                await channel.unary_unary(ECHO)(b"", timeout=IN_TIME_S)  # type: ignore[arg-type]  # stubs without bytes
            found[key] = seen.pop()
    finally:
        await server.stop(None)
    return found


async def test_the_same_as_grpc_gives(authority: Authority) -> None:
    node = authority.issue("node", [LOCAL])
    callers = {key: authority.issue(one.subject, one.names) for key, one in OWNERS.items()}
    ours, theirs = await of_ours(node, callers), await of_grpc(node, callers)
    found, expected = {}, {}
    for key, info in ours.items():
        found[key] = (info.identity, info.names, info.certificate)
        of_it = theirs[key]
        subject = b"".join(of_it.get("x509_subject", ()))
        all_names = tuple(one.decode() for one in of_it.get("x509_subject_alternative_name") or ())
        names = tuple(one for one in all_names if one != "other types of SAN")
        expected[key] = (subject.decode(), names, b"".join(of_it["x509_pem_cert"]))
    assert found == expected
