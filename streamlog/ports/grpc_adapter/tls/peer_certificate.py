"""What a peer's certificate says about its owner, in the form in which gRPC's own servers give it.

The subject is written as by `openssl x509 -subject -nameopt RFC2253`: the last part first, parts joined by commas (by +
where they are of one set), types by their short names, and bytes above 0x7F as \\XX. Of a type without a name, its
number is written and its value in DER (`1.2.3.4=#0C0178`). Rules that map subjects to principals
(ssl.principal.mapping.rules) see this text.

Of the alternative names those count that are text or an IP address.
"""

from __future__ import annotations

import ssl
import time
from _socket import AF_INET6, inet_ntop  # PySyncObj puts one for Windows into `socket`, on every system
from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address
from typing import Any, Final, TypeAlias

from msgspec import Struct

Subject: TypeAlias = Sequence[Sequence[tuple[str, str]]]
"""Of the form of `getpeercert`: sets of types and values."""

# By the long names that OpenSSL gives; what is not here is written as it is.
_SHORT_NAMES: Final = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "streetAddress": "street",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "surname": "SN",
    "givenName": "GN",
    "domainComponent": "DC",
    "userId": "UID",
}
# OpenSSL has a name for these, gRPC has not.
_NUMBERS: Final = {
    "organizationIdentifier": "2.5.4.97",
    "jurisdictionLocalityName": "1.3.6.1.4.1.311.60.2.1.1",
    "jurisdictionStateOrProvinceName": "1.3.6.1.4.1.311.60.2.1.2",
    "jurisdictionCountryName": "1.3.6.1.4.1.311.60.2.1.3",
}
_NAME_KINDS: Final = frozenset({"DNS", "URI", "email", "IP Address"})
_ESCAPED: Final = frozenset(',+"\\<>;')


class PeerCertificate(Struct, frozen=True):
    subject: str
    names: tuple[str, ...]  # alternative ones
    pem: bytes | None


NONE: Final = PeerCertificate("", (), None)
"""Of a caller without one."""


def peer_certificate(connection: ssl.SSLObject) -> PeerCertificate:
    """Of a connection whose handshake has succeeded: it is verified. ValueError: it cannot be read; or a session was
    resumed (`contexts`), and it is not valid any more.
    """
    der = connection.getpeercert(binary_form=True)
    if der is None:
        return NONE
    found: dict[str, Any] = connection.getpeercert() or {}
    if connection.session_reused and ssl.cert_time_to_seconds(found["notAfter"]) < time.time():
        raise ValueError("certificate has expired")
    names = tuple(_name(kind, value) for kind, value in found.get("subjectAltName", ()) if kind in _NAME_KINDS)
    return PeerCertificate(_subject(found.get("subject", ()), der), names, ssl.DER_cert_to_PEM_cert(der).encode())


def _subject(subject: Subject, der: bytes) -> str:
    sets = [[_attribute(kind, value) for kind, value in one] for one in subject]
    if any(_is_numbered(kind) for one in subject for kind, _ in one):
        sets = _with_numbers(sets, subject, der)
    return ",".join("+".join(reversed(one)) for one in reversed(sets))


def _is_numbered(kind: str) -> bool:
    return kind in _NUMBERS or kind[:1].isdigit()


def _with_numbers(sets: list[list[str]], subject: Subject, der: bytes) -> list[list[str]]:
    from cryptography import x509  # takes long to import, and is rarely needed here

    raw = x509.load_der_x509_certificate(der).subject.rdns
    return [
        [
            f"{_NUMBERS.get(kind, kind)}=#{_value(x509.Name([attribute]).public_bytes()).hex().upper()}"
            if _is_numbered(kind)
            else text
            for text, (kind, _), attribute in zip(texts, types, attributes, strict=True)
        ]
        for texts, types, attributes in zip(sets, subject, raw, strict=True)
    ]


def _value(name: bytes) -> bytes:
    """In DER, of a name of one attribute: a sequence of a set of a sequence of its type and its value."""
    for _ in range(3):
        name = name[_header_bytes(name) :]
    return name[_header_bytes(name) + name[1] :]  # a type is shorter than 128 bytes


def _header_bytes(der: bytes) -> int:
    return 2 if der[1] < 0x80 else 2 + der[1] - 0x80


def _attribute(kind: str, value: str) -> str:
    return f"{_SHORT_NAMES.get(kind, kind)}={_escaped(value)}"


def _escaped(value: str) -> str:
    written: list[str] = []
    for at, character in enumerate(value):
        is_edge = (at == 0 and character in " #") or (at == len(value) - 1 and character == " ")
        if character in _ESCAPED or is_edge:
            written.append("\\" + character)
        elif " " <= character <= "~":
            written.append(character)
        else:
            written += [f"\\{byte:02X}" for byte in character.encode("utf-8", "surrogateescape")]
    return "".join(written)


def _name(kind: str, value: str) -> str:
    if kind != "IP Address":
        return value
    try:
        address = ip_address(value.strip())
    except ValueError:
        return value
    return inet_ntop(AF_INET6, address.packed) if isinstance(address, IPv6Address) else str(address)
