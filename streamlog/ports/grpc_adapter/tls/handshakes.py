"""Why no connection was made although something listens at the address, in words, for either end."""

from __future__ import annotations

import ssl
from typing import Final

from streamlog.errors import Status
from streamlog.ports.grpc_adapter.tls.contexts import STRONG_ENOUGH
from streamlog.ports.network import HandshakeError

_EXPIRED, _NOT_YET_VALID = 10, 9  # X509_V_ERR_* of OpenSSL
_OTHER_HOST: Final = frozenset({62, 64})
_OTHER_AUTHORITY: Final = frozenset({2, 7, 18, 19, 20, 21, 24, 27})
_TOO_WEAK: Final = frozenset({66, 67, 68})
_NOT_TLS: Final = frozenset(
    {
        "WRONG_VERSION_NUMBER",
        "UNKNOWN_PROTOCOL",
        "HTTP_REQUEST",
        "HTTPS_PROXY_REQUEST",
        "PACKET_LENGTH_TOO_LONG",
        "RECORD_LAYER_FAILURE",
    }
)
_CLOSED: Final = (
    "it closed the connection at once: it may expect TLS (security.protocol=SSL), or a certificate that it trusts "
    "(ssl.keystore.location), or it is stopping"
)
_OF_CALLERS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it has no certificate, which ssl.client.auth requires",
    "UNSUPPORTED_PROTOCOL": "its version of TLS is below 1.2",
    "NO_SHARED_CIPHER": "it has no cipher suite in common with this node",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust this node's certificate: it needs the authority that signed it",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not trust this node's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it refuses this node's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it says that this node's certificate has expired",
}


def failed_handshake(address: str, error: ssl.SSLError) -> HandshakeError:
    """At the calling end."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _unusable(address, _of_certificate(error), is_refused_here=True)
    reason = error.reason or ""
    if reason in _NOT_TLS:
        return _unusable(address, "it does not speak TLS: its listener is PLAINTEXT", is_refused_here=True)
    if "ALERT" in reason or isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return closed_at_once(address)
    return _unusable(address, f"the TLS handshake failed ({reason or error})", is_refused_here=True)


def closed_at_once(address: str, *, expects_tls: bool = False) -> HandshakeError:
    """At the calling end: the node has closed the connection before its first settings. `expects_tls`: it has said so
    by an alert.
    """
    why = "it expects TLS (security.protocol=SSL)" if expects_tls else _CLOSED
    return _unusable(address, why, is_refused_here=False)


def _of_certificate(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code == _EXPIRED:
        return "its certificate has expired: renew it"
    if error.verify_code == _NOT_YET_VALID:
        return "its certificate is not valid yet: compare the clocks of the machines"
    if error.verify_code in _OTHER_HOST or "match" in error.verify_message:
        return "its certificate does not name this host: it must be among the subject alternative names"
    if error.verify_code in _OTHER_AUTHORITY:
        return "its certificate is not signed by a trusted authority (ssl.truststore.location)"
    if error.verify_code in _TOO_WEAK:
        return f"its certificate, or its authority's, is too weak ({error.verify_message}): {STRONG_ENOUGH}"
    return f"its certificate is not accepted ({error.verify_message})"


def _unusable(address: str, reason: str, *, is_refused_here: bool) -> HandshakeError:
    text = f"the node at {address} cannot be used: {reason}"
    return HandshakeError(Status.UNAVAILABLE, text, is_refused_here=is_refused_here)


def refused_caller(error: BaseException) -> str:
    """At the serving end: why a caller's handshake failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        if reason in _NOT_TLS:
            return "it does not use TLS"
        return _OF_CALLERS.get(reason) or f"the TLS handshake failed ({reason or 'without a reason'})"
    if isinstance(error, (TimeoutError, ConnectionAbortedError)):
        return "its TLS handshake was not complete in time (connections.handshake.timeout.ms)"
    return "it was closed during the TLS handshake"
