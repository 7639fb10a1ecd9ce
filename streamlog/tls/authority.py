"""A certificate authority in a directory, and the certificates that it signs.

    DIR/ca.crt            the authority: what nodes and clients trust (ssl.truststore.location)
    DIR/ca.key            its private key: needed to sign only; keep it off the nodes
    DIR/node-3.pem        key and certificate of node 3 (ssl.keystore.location)
    DIR/NAME.pem          key and certificate of the client NAME

ECDSA with P-256. Files with keys have mode 0600, from their creation on. Nothing that exists is overwritten.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from streamlog.config.addresses import is_host_name
from streamlog.errors import InvalidRequestError
from streamlog.tls.identity import node_uri
from streamlog.tls.private_files import write_whole

AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 365
CA_CERTIFICATE: Final = "ca.crt"
CA_KEY: Final = "ca.key"
_BACKDATED: Final = datetime.timedelta(minutes=5)  # clocks of machines differ
_CLIENT_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
ORGANIZATION: Final = "streamlog"


class Authority:
    """`create`, or `load`."""

    def __init__(self, directory: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.directory = directory
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, directory: Path) -> Authority:
        """InvalidRequestError if there is one already; OSError."""
        if (directory / CA_KEY).exists() or (directory / CA_CERTIFICATE).exists():
            raise InvalidRequestError(
                f"{directory} has a certificate authority already: use it, or another directory", field="dir"
            )
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _subject("streamlog certificate authority")
        now = datetime.datetime.now(datetime.UTC)
        usage = _key_usage(signs=True)
        certificate = (
            _builder(name, name, key.public_key(), now, AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(key, hashes.SHA256())
        )
        write_whole(directory / CA_KEY, _pem(key))
        write_whole(directory / CA_CERTIFICATE, certificate.public_bytes(Encoding.PEM), mode=0o644)
        return cls(directory, certificate, key)

    @classmethod
    def load(cls, directory: Path) -> Authority:
        """InvalidRequestError if there is none."""
        try:
            certificate = x509.load_pem_x509_certificate((directory / CA_CERTIFICATE).read_bytes())
            key = load_pem_private_key((directory / CA_KEY).read_bytes(), None)
        except OSError as error:
            raise InvalidRequestError(
                f"no certificate authority in {directory} ({error.strerror}: {Path(error.filename).name}): make one "
                f"with 'streamlogctl security init --dir {directory}'",
                field="dir",
            ) from None
        except (ValueError, TypeError) as error:
            raise InvalidRequestError(f"{directory}: {CA_CERTIFICATE} or {CA_KEY}: {error}", field="dir") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise InvalidRequestError(f"{directory / CA_KEY}: not an ECDSA key", field="dir")
        return cls(directory, certificate, key)

    def add_node(
        self, node_id: int, hosts: Sequence[str], *, days: int = CERTIFICATE_DAYS, renew: bool = False
    ) -> Path:
        """Its keystore. `hosts`: the names and IP addresses by which clients and other nodes connect to it."""
        names = [_general_name(host) for host in hosts]
        uri = x509.UniformResourceIdentifier(node_uri(node_id))
        return self._issue(f"node-{node_id}", [*names, uri], [_SERVER, _CLIENT], days, renew=renew)

    def add_client(self, name: str, *, days: int = CERTIFICATE_DAYS, renew: bool = False) -> Path:
        """Its keystore."""
        if _CLIENT_NAME.fullmatch(name) is None or re.fullmatch(r"node-[0-9]+|ca", name):
            raise InvalidRequestError(
                f"{name!r} cannot be the name of a client: letters, digits, '.', '_' and '-', at most 63, and not ca "
                "or node-NUMBER",
                field="name",
            )
        return self._issue(name, [], [_CLIENT], days, renew=renew)

    def _issue(
        self, name: str, names: list[x509.GeneralName], uses: list[x509.ObjectIdentifier], days: int, *, renew: bool
    ) -> Path:
        path = self.directory / f"{name}.pem"
        if path.exists() and not renew:
            raise InvalidRequestError(f"{path} exists already: give --renew to replace it", field="name")
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            _builder(_subject(name), self._certificate.subject, key.public_key(), now, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        write_whole(path, _pem(key) + certificate.public_bytes(Encoding.PEM), replace=renew)
        return path


_SERVER: Final = ExtendedKeyUsageOID.SERVER_AUTH
_CLIENT: Final = ExtendedKeyUsageOID.CLIENT_AUTH


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _subject(common_name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def check_host(host: str) -> None:
    """InvalidRequestError if a certificate cannot name it."""
    _general_name(host)


def _general_name(host: str) -> x509.GeneralName:
    """InvalidRequestError if it is neither a name (possibly with `*.` before it) nor an address."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not is_host_name(host.removeprefix("*.")):
        raise InvalidRequestError(
            f"{host!r} is neither a host name nor an IP address: give it without a port, and without brackets",
            field="host",
        )
    return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
