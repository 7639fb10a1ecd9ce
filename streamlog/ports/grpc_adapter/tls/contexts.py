"""Contexts of Python's ssl for the gRPC port: TLS 1.2 with ECDHE and an AEAD cipher, and TLS 1.3, with HTTP/2 by ALPN.

No session is resumed by a ticket. With TLS 1.2 one is by its number, by the same context alone: not once authorities
have changed, nor once the caller's certificate has expired (`peer_certificate`). What ends a chain of trust is an
authority of the truststore, also one that another has signed.

Python reads a key from files alone: it gets an anonymous one in memory, so the key is written to no disk.
"""

from __future__ import annotations

import os
import ssl
from typing import Final, Protocol

from streamlog.errors import InvalidConfigError

HTTP2: Final = "h2"
STRONG_ENOUGH: Final = "RSA keys need 2,048 bits, and signatures SHA-256"
_REASONS: Final = {
    "EE_KEY_TOO_SMALL": f"the key is too small: {STRONG_ENOUGH}",
    "CA_KEY_TOO_SMALL": f"an authority's key is too small: {STRONG_ENOUGH}",
    "CA_MD_TOO_WEAK": f"a signature is too weak: {STRONG_ENOUGH}",
    "KEY_VALUES_MISMATCH": "the private key is of another certificate",
    "NO_START_LINE": "there is no PEM block in it",
}
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"  # of TLS 1.2; those of 1.3 are all of this kind


class PemMaterial(Protocol):
    """In PEM. No key and chain: of a client without a certificate. No roots: of a server that requests none, or of a
    client that trusts the authorities of its system.
    """

    @property
    def key(self) -> bytes: ...

    @property
    def chain(self) -> bytes: ...

    @property
    def roots(self) -> bytes: ...


def server_context(material: PemMaterial, *, requires_client: bool) -> ssl.SSLContext:
    """`requires_client`: callers must present a certificate; else none is requested. InvalidConfigError."""
    context = _context(ssl.PROTOCOL_TLS_SERVER)
    if requires_client:
        context.verify_mode = ssl.CERT_REQUIRED
    _load(context, material)
    return context


def client_context(material: PemMaterial) -> ssl.SSLContext:
    """The node's certificate must name the host that is connected to. InvalidConfigError."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    _load(context, material)
    if not material.roots:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def _context(protocol: ssl._SSLMethod) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols([HTTP2])
    if protocol is ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0
    return context


def _load(context: ssl.SSLContext, material: PemMaterial) -> None:
    try:
        if material.roots:
            context.load_verify_locations(cadata=material.roots.decode("ascii", "ignore"))
        if material.key:
            _load_key(context, material)
    except (ssl.SSLError, ValueError) as error:
        why = getattr(error, "reason", None) or str(error)
        raise InvalidConfigError(
            f"OpenSSL does not accept the certificates of ssl.keystore or ssl.truststore: {_REASONS.get(why, why)}"
        ) from None


def _load_key(context: ssl.SSLContext, material: PemMaterial) -> None:
    descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            # A keystore is a file of both already.
            file.write(material.key if material.chain in material.key else material.key + b"\n" + material.chain)
        path = f"/proc/self/fd/{descriptor}"
        context.load_cert_chain(path, path, password="")  # never a question on a terminal
    finally:
        os.close(descriptor)
