"""gRPC's options on both sides, and the table between its status codes and ours.

Options that differ from gRPC's defaults, and why:
- `so_reuseport=0`: a second server would otherwise bind the same port without an error and take half of the calls;
- keepalive of 2 s + 2 s by the connecting side, also without calls: a peer that lost its power is detected within 4 s.
  The accepting side only has resources to release, and pings after 10 s: each ping wakes gRPC's threads ten times, and
  an idle node of three has ten connections. `http2.ping_timeout_ms` ends the wait for a ping's answer; without it that
  takes a minute, whatever `keepalive_timeout_ms` says (seen with grpcio 1.85);
- reconnecting after 50 to 200 ms: the default grows to 120 s, much longer than a failover;
- `min_reconnect_backoff_ms` is, in spite of its name, the timeout of one attempt to connect;
- a fixed window of 1 MiB a stream: gRPC otherwise grows it as far as a fast network allows (many MiB), and a receiver
  that does not read its streams would hold that much for each of them;
- the peer must acknowledge the settings within the time of a handshake, while gRPC's own bound is a minute: until then
  its limit of 16 KiB for a header block is 16 MiB;
- no retries (retrying is the caller's decision), no proxy from the environment between nodes, and a connection of its
  own for each channel.
"""

from __future__ import annotations

from typing import Final

import grpc
from msgspec import Struct

from streamlog.errors import Status
from streamlog.ports.grpc_adapter.connections import ConnectionLimits

DETAILS_KEY: Final = "grpc-status-details-bin"
"""Trailer that carries a serialized google.rpc.Status."""

STREAM_WINDOW_BYTES: Final = 1 << 20
"""What a stream's receiver buffers of messages that are not read yet."""
_INT32_MAX: Final = 2**31 - 1
TO_GRPC: Final = {status: grpc.StatusCode[status.name] for status in Status}
FROM_GRPC: Final = {code: status for status, code in TO_GRPC.items()}


class GrpcSettings(Struct, frozen=True, kw_only=True):
    """A message larger than the limit ends its call with RESOURCE_EXHAUSTED."""

    message_bytes_max: int = 4 << 20
    keepalive_s: float = 2.0  # of the connecting side
    server_keepalive_s: float = 10.0  # of the accepting side
    keepalive_timeout_s: float = 2.0
    connect_timeout_s: float = 2.0
    backoff_s: tuple[float, float] = (0.05, 0.2)  # first and longest wait between attempts to connect
    # A connection without a call is closed after so long by the accepting and by the connecting side; the next call
    # makes another.
    server_idle_s: float = 600.0
    idle_s: float = 600.0
    handshake_s: float = 10.0  # of the accepting side: TLS, and HTTP/2's first settings
    defers_silent: bool = True  # connections that have not sent a byte stay in the kernel (`deferred_accept`)
    connections: ConnectionLimits | None = None  # of the accepting side; None: no limit

    def server(self) -> list[tuple[str, int]]:
        return [
            *self._common(),
            ("grpc.so_reuseport", 0),
            ("grpc.http2.max_ping_strikes", 0),  # a peer's keepalive is not abuse
            ("grpc.keepalive_time_ms", _ms(self.server_keepalive_s)),
            ("grpc.max_connection_idle_ms", _ms(self.server_idle_s)),
            ("grpc.server_handshake_timeout_ms", _ms(self.handshake_s)),
            ("grpc.http2.settings_timeout", _ms(self.handshake_s)),
        ]

    def channel(self) -> list[tuple[str, int]]:
        first, longest = self.backoff_s
        return [
            *self._common(),
            ("grpc.initial_reconnect_backoff_ms", _ms(first)),
            ("grpc.max_reconnect_backoff_ms", _ms(longest)),
            ("grpc.min_reconnect_backoff_ms", _ms(self.connect_timeout_s)),
            ("grpc.enable_retries", 0),
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.keepalive_time_ms", _ms(self.keepalive_s)),
            ("grpc.client_idle_timeout_ms", _ms(self.idle_s)),
        ]

    def _common(self) -> list[tuple[str, int]]:
        return [
            ("grpc.max_receive_message_length", self.message_bytes_max),
            ("grpc.max_send_message_length", -1),
            ("grpc.keepalive_timeout_ms", _ms(self.keepalive_timeout_s)),
            ("grpc.http2.ping_timeout_ms", _ms(self.keepalive_timeout_s)),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.bdp_probe", 0),
            ("grpc.http2.lookahead_bytes", STREAM_WINDOW_BYTES),
            ("grpc.http2.max_pings_without_data", 0),
        ]


def _ms(seconds: float) -> int:
    return min(round(seconds * 1000), _INT32_MAX)
