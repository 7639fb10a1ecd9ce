"""Settings of both sides of the network port.

A peer that lost its power is noticed within keepalive_s + keepalive_timeout_s by the connecting side, also without
calls. The accepting side only has resources to release, and looks more rarely: an idle node of three has ten
connections. Attempts to connect are at most 0.2 s apart, which is shorter than a fail-over.
"""

from __future__ import annotations

from msgspec import Struct

from streamlog.ports.grpc_adapter.accepting.connections import ConnectionLimits


class GrpcSettings(Struct, frozen=True, kw_only=True):
    """A message larger than the limit ends its call with RESOURCE_EXHAUSTED."""

    message_bytes_max: int = 4 << 20  # that is received
    keepalive_s: float = 2.0  # of the connecting side
    server_keepalive_s: float = 10.0  # of the accepting side
    keepalive_timeout_s: float = 2.0
    connect_timeout_s: float = 2.0
    backoff_s: tuple[float, float] = (0.05, 0.2)  # first and longest wait between attempts to connect
    # A connection without a call is closed after so long by the accepting and by the connecting side; the next call
    # makes another.
    server_idle_s: float = 600.0
    idle_s: float = 600.0
    handshake_s: float = 10.0  # of the accepting side: TLS, and then HTTP/2's first settings
    defers_silent: bool = True  # connections that have not sent a byte stay in the kernel (`deferred_accept`)
    connections: ConnectionLimits | None = None  # of the accepting side; None: no limit
    # Of the accepting side: bytes and calls of all callers together that no handler has taken yet (`inflow`).
    unread_bytes_max: int = 256 << 20
    calls_max: int = 20_000
