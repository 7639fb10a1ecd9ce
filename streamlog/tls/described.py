"""The certificates in a PEM file, for people to read."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from msgspec import Struct

from streamlog.errors import InvalidRequestError
from streamlog.model import BrokerId
from streamlog.regular_file import read_regular
from streamlog.tls.identity import node_of
from streamlog.tls.material import FILE_BYTES_MAX, uris


class DescribedCertificate(Struct, frozen=True, kw_only=True):
    subject: str  # RFC 4514
    issuer: str
    node_id: BrokerId | None
    hosts: tuple[str, ...]  # names and IP addresses
    expires: datetime.datetime  # UTC


def described(path: Path) -> list[DescribedCertificate]:
    """InvalidRequestError if there is none; OSError."""
    data, _ = read_regular(path, FILE_BYTES_MAX)
    return described_pem(data, str(path))


def described_pem(data: bytes, where: str) -> list[DescribedCertificate]:
    """`where`: for the message of InvalidRequestError, if there is none."""
    try:
        found = x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise InvalidRequestError(f"{where}: no certificate in PEM ({error})", field="file") from None
    return [
        DescribedCertificate(
            subject=one.subject.rfc4514_string(),
            issuer=one.issuer.rfc4514_string(),
            node_id=node_of(uris(one)),
            hosts=_hosts(one),
            expires=one.not_valid_after_utc,
        )
        for one in found
    ]


def _hosts(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    addresses = names.get_values_for_type(x509.IPAddress)
    return (*names.get_values_for_type(x509.DNSName), *(str(address) for address in addresses))
