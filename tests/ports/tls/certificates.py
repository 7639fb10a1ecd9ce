"""Certificates of a test's own: with any subject, names, time and authority."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from msgspec import Struct

from streamlog.ports.grpc_adapter.tls.credentials import TlsCredentials

DAY = datetime.timedelta(days=1)


def named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


class Pem(Struct, frozen=True):
    """A PemMaterial, and the source of it."""

    key: bytes
    chain: bytes
    roots: bytes

    def signature(self) -> object:
        return None

    def load(self) -> Pem:
        return self

    def trusting(self, roots: bytes) -> Pem:
        return Pem(self.key, self.chain, roots)


class Authority:
    def __init__(self, name: str = "test authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = named(name)
        made = self._builder(self._name, self._key, 2 * DAY, [])
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.roots = made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def issue(
        self,
        subject: x509.Name | str,
        names: Sequence[x509.GeneralName] = (),
        *,
        valid_for: datetime.timedelta = DAY,
        key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | None = None,
    ) -> Pem:
        """Trusts this authority. `valid_for`: from now on; negative: it has expired so long ago."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        subject = named(subject) if isinstance(subject, str) else subject
        signed = self._builder(subject, key, valid_for, names).sign(self._key, hashes.SHA256())
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return Pem(pem, signed.public_bytes(Encoding.PEM), self.roots)

    def _builder(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey,
        valid_for: datetime.timedelta,
        names: Sequence[x509.GeneralName],
    ) -> x509.CertificateBuilder:
        end = datetime.datetime.now(datetime.UTC) + valid_for
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(end - 30 * DAY)
            .not_valid_after(end)
        )
        if names:
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return made


def credentials(material: Pem, *, requires_client: bool = True) -> TlsCredentials:
    return TlsCredentials(material, requires_client=requires_client)
