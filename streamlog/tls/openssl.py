"""Material for Python's `ssl`, for HTTPS: of a node's HTTP listener, and of a client that scrapes it.

The listener's protocols and suites are those of the gRPC port: TLS 1.2 with ECDHE and an AEAD cipher, and TLS 1.3. No
session is resumed by a ticket, so that each connection is checked against the authorities that are trusted when it
begins.

Python reads a key from files alone. What was checked is passed to it in an anonymous file in memory, so the key is
written to no disk, and no other file can take its place in between.
"""

from __future__ import annotations

import os
import ssl
from typing import Final

from streamlog.errors import InvalidConfigError
from streamlog.tls.material import Material

CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"  # of TLS 1.2; those of 1.3 are all of this kind
_MODES: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def server_context(material: Material, client_auth: str, where: str) -> ssl.SSLContext:
    """`client_auth`: as ssl.client.auth. InvalidConfigError, with `where`, if OpenSSL does not accept the material."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    context.verify_mode = _MODES[client_auth]
    try:
        _load_key(context, material)
        if client_auth != "none":
            context.load_verify_locations(cadata=material.roots.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise InvalidConfigError(
            f"{where}: the certificate {material.subject} cannot be used for HTTPS ({why})", field=where
        ) from None
    return context


def client_context(material: Material) -> ssl.SSLContext:
    """Trusts the authorities of the system, and those of the material. ssl.SSLError, ValueError."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if material.roots:
        context.load_verify_locations(cadata=material.roots.decode("ascii", "ignore"))
    if material.key:
        _load_key(context, material)
    return context


def _load_key(context: ssl.SSLContext, material: Material) -> None:
    descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            # A keystore is a file of both already.
            file.write(material.key if material.chain in material.key else material.key + b"\n" + material.chain)
        path = f"/proc/self/fd/{descriptor}"
        context.load_cert_chain(path, path, password="")  # checked not to be encrypted: never a question on a terminal
    finally:
        os.close(descriptor)
