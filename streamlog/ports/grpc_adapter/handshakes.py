"""Why no connection was made although the node listens, in words; gRPC gives the words of its libraries."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

_NOT_CONNECTED: Final = "failed to connect"
_ADDRESS: Final = re.compile(r"(?:ipv4|ipv6|unix):(\S+?):? ")

_REASONS: Final = (
    ("certificate has expired", "its certificate has expired: renew it"),
    ("certificate is not yet valid", "its certificate is not valid yet: compare the clocks of the machines"),
    ("CERTIFICATE_VERIFY_FAILED", "its certificate is not signed by a trusted authority (ssl.truststore.location)"),
    (
        "Hostname Verification",
        "its certificate does not name this host: it must be among the subject alternative names",
    ),
    ("WRONG_VERSION_NUMBER", "it does not speak TLS: its listener is PLAINTEXT"),
    (
        "Socket closed",
        "it closed the connection at once: it may expect TLS (security.protocol=SSL), or a certificate that it trusts "
        "(ssl.keystore.location), or it is stopping",
    ),
    ("handshake failed", "the TLS handshake failed"),
)
_REFUSED_HERE: Final = "handshake failed"
"""The caller's own part of the handshake failed, so that it fails again. A node that refuses only closes."""


def is_refused_here(message: str) -> bool:
    """Whether this end refuses the node, as for its certificate."""
    return _REFUSED_HERE in message


def handshake_failure(message: str) -> str | None:
    """A sentence for gRPC's message about a call without a connection; None: the message is about something else."""
    if _NOT_CONNECTED not in message:
        return None
    for sign, reason in _REASONS:
        if sign in message:
            address = _ADDRESS.search(message)
            where = "the node" if address is None else f"the node at {unquote(address[1])}"  # %5B::1%5D
            return f"{where} cannot be used: {reason}"
    return None
