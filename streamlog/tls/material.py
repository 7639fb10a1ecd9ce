"""Key, certificate chain and trusted authorities, from the ssl.* settings: loaded, and checked before they are used.

    ssl.keystore.location     PEM file: private key (not encrypted), then the chain, the own certificate first
      or ssl.keystore.key and ssl.keystore.certificate.chain, the same texts
    ssl.truststore.location   PEM file: trusted authorities
      or ssl.truststore.certificates, the same text

A wrong file shows as a failed handshake at the other end, minutes later, so everything that can be checked here is:
that the key belongs to the certificate, that it is valid now, that no other user can read the key.
"""

from __future__ import annotations

import datetime
import os
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from msgspec import Struct

from streamlog.config import Config
from streamlog.config.listeners import HTTPS, Listener, tls_of
from streamlog.config.settings import tls_settings as tls
from streamlog.config.settings.node_settings import NODE_ID
from streamlog.errors import InvalidConfigError
from streamlog.model import BrokerId
from streamlog.regular_file import OTHERS, read_regular
from streamlog.tls.identity import node_of, node_uri

FILE_BYTES_MAX: Final = 1 << 20
NEVER: Final = datetime.datetime.max.replace(tzinfo=datetime.UTC)
EXPIRY_WARNING: Final = datetime.timedelta(days=30)
_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"


class Material(Struct, frozen=True, kw_only=True):
    """In PEM. `expires`: when the own certificate or one of its chain does; `roots_expire`: the first of the trusted
    authorities. In UTC; NEVER where there is no such part.
    """

    key: bytes
    chain: bytes
    roots: bytes
    subject: str  # RFC 4514
    node_id: BrokerId | None  # None: the certificate is not a node's
    expires: datetime.datetime = NEVER
    roots_expire: datetime.datetime = NEVER

    def __repr__(self) -> str:
        """Without the key."""
        return f"Material({self.subject!r}, expires={self.expires})"

    def expiry_warning(self, now: datetime.datetime) -> str | None:
        """Of what expires first; None if there are more than 30 days left."""
        expires = min(self.expires, self.roots_expire)
        left = expires - now
        if left > EXPIRY_WARNING:
            return None
        if expires == self.expires:
            what, remedy = f"the certificate {self.subject}", "renew it (streamlogctl security node ID --renew)"
        else:
            what = "a trusted authority of ssl.truststore"
            remedy = "add its successor to the truststore, and renew the certificates that it signed"
        when = f"expires in {left.days} days" if left > datetime.timedelta() else "has expired, new connections fail"
        return f"{what} {when} ({expires:%Y-%m-%d %H:%M} UTC): {remedy}; changed files are used without a restart"


class MaterialFiles(Struct, frozen=True, kw_only=True):
    """Where the material comes from: a file's path, or the PEM text itself. Without a key (a client that logs in
    otherwise), or without authorities (a listener that requests no certificates), that part stays empty.
    """

    keystore: str | None
    key: str | None
    chain: str | None
    truststore: str | None
    roots: str | None
    node_id: BrokerId | None = None  # the certificate must be of this node

    def __repr__(self) -> str:
        """Without the key."""
        return f"MaterialFiles(keystore={self.keystore!r}, truststore={self.truststore!r}, node_id={self.node_id})"

    @classmethod
    def of_listener(cls, config: Config, listener: Listener) -> MaterialFiles:
        """Of a node's. Its certificate must be the node's own where nodes connect."""
        return cls._of(config, listener.name, BrokerId(config[NODE_ID]) if listener.for_nodes else None)

    @classmethod
    def of_https(cls, config: Config) -> MaterialFiles:
        """Of the addresses over TLS in http.listeners."""
        return cls._of(config, HTTPS, None)

    @classmethod
    def _of(cls, config: Config, listener: str, node_id: BrokerId | None) -> MaterialFiles:
        found = tls_of(config, listener)
        return cls(
            node_id=node_id,
            keystore=found.keystore,
            key=found.key,
            chain=found.chain,
            truststore=found.truststore,
            roots=found.roots,
        )

    @classmethod
    def of(cls, config: Config) -> MaterialFiles:
        """Of a client."""
        return cls(
            keystore=config[tls.SSL_KEYSTORE_LOCATION],
            key=config[tls.SSL_KEYSTORE_KEY],
            chain=config[tls.SSL_KEYSTORE_CERTIFICATE_CHAIN],
            truststore=config[tls.SSL_TRUSTSTORE_LOCATION],
            roots=config[tls.SSL_TRUSTSTORE_CERTIFICATES],
        )

    def signature(self) -> tuple[tuple[int, int, int], ...]:
        """Changes when a file is replaced or written. A file that is missing counts as a change."""
        return tuple(_signature(path) for path in (self.keystore, self.truststore) if path is not None)

    def load(self) -> Material:
        """Blocks. InvalidConfigError, with the setting, the file and what is wrong with it."""
        where = tls.SSL_KEYSTORE_KEY.name
        if self.keystore is not None:
            where = f"{tls.SSL_KEYSTORE_LOCATION.name}={self.keystore}"
            key = chain = _read(tls.SSL_KEYSTORE_LOCATION.name, self.keystore, secret=True)
            chain = chain[chain.find(_BEGIN) :] if _BEGIN in chain else b""
        else:
            key, chain = (self.key or "").encode(), (self.chain or "").encode()
        roots, roots_expire = self._load_roots()
        if self.keystore is None and self.key is None and self.node_id is None:
            return Material(key=b"", chain=b"", roots=roots, subject="", node_id=None, roots_expire=roots_expire)
        found = _checked(where, key, chain, roots, roots_expire)
        if self.node_id is not None and found.node_id != self.node_id:
            whose = "no node's" if found.node_id is None else f"node {found.node_id}'s"
            raise _wrong(
                where,
                f"the certificate {found.subject} is {whose}, and this is node {self.node_id}: it needs the URI "
                f"{node_uri(self.node_id)} among its alternative names (streamlogctl security node {self.node_id})",
            )
        return found

    def _load_roots(self) -> tuple[bytes, datetime.datetime]:
        if self.truststore is not None:
            roots = _read(tls.SSL_TRUSTSTORE_LOCATION.name, self.truststore)
            return roots, _first_expiry(f"{tls.SSL_TRUSTSTORE_LOCATION.name}={self.truststore}", roots)
        if self.roots is None:
            return b"", NEVER
        roots = self.roots.encode()
        return roots, _first_expiry(tls.SSL_TRUSTSTORE_CERTIFICATES.name, roots)


def _first_expiry(where: str, roots: bytes) -> datetime.datetime:
    return min(one.not_valid_after_utc for one in _certificates(where, roots))


def _checked(where: str, key: bytes, chain: bytes, roots: bytes, roots_expire: datetime.datetime) -> Material:
    certificates = _certificates(where, chain)
    try:
        private = load_pem_private_key(key, None)
    except TypeError:
        raise _wrong(where, "the private key is encrypted; it must be unencrypted, in a file of mode 0600") from None
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _wrong(where, f"no private key in PEM ({error})") from None
    own = certificates[0]
    if _public(private.public_key()) != _public(own.public_key()):
        raise _wrong(
            where,
            f"the private key does not belong to the first certificate, {own.subject.rfc4514_string()}: "
            "the chain must begin with the key's own certificate",
        )
    now = datetime.datetime.now(datetime.UTC)
    begins = max(one.not_valid_before_utc for one in certificates)
    expires = min(one.not_valid_after_utc for one in certificates)
    if begins > now:
        raise _wrong(
            where,
            f"the certificate {own.subject.rfc4514_string()} is valid from {begins:%Y-%m-%d %H:%M} UTC on, and it is "
            f"{now:%Y-%m-%d %H:%M} here: wait, use another, or correct this machine's clock",
        )
    if expires <= now:
        raise _wrong(where, f"the certificate {own.subject.rfc4514_string()} expired at {expires:%Y-%m-%d %H:%M} UTC")
    return Material(
        key=key,
        chain=chain,
        roots=roots,
        subject=own.subject.rfc4514_string(),
        node_id=node_of(uris(own)),
        expires=expires,
        roots_expire=roots_expire,
    )


def uris(certificate: x509.Certificate) -> list[str]:
    """The URIs among its subject's alternative names."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def _public(key: object) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined,no-any-return]


def _certificates(where: str, pem: bytes) -> list[x509.Certificate]:
    """At least one."""
    if _BEGIN not in pem:
        raise _wrong(where, "no certificate in PEM")
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise _wrong(where, f"a certificate cannot be read ({error})") from None


def _read(name: str, path: str, *, secret: bool = False) -> bytes:
    try:
        data, mode = read_regular(path, FILE_BYTES_MAX)
    except OSError as error:
        raise _wrong(f"{name}={path}", str(error.strerror)) from None
    if secret and mode & OTHERS:
        raise _wrong(f"{name}={path}", f"other users can read this private key (mode {mode:04o}): chmod 600 {path}")
    return data


def _signature(path: str) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return found.st_ino, found.st_mtime_ns, found.st_size


def _wrong(where: str, why: str) -> InvalidConfigError:
    return InvalidConfigError(f"{where}: {why}", field=where.partition("=")[0])
