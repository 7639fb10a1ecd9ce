"""Connections and reserved descriptors of the process, from the real ports."""

from __future__ import annotations

from streamlog.metrics import Family
from streamlog.metrics.families import counter, gauge, single
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.ports.posix_disk import PosixFileSystem


def process_families(network: GrpcNetwork, fs: PosixFileSystem) -> list[Family]:
    servers, refusals, rates = network.open_connections(), network.refusals(), network.connection_rates
    return [
        gauge(
            "streamlog_connections",
            "Connections of clients and other nodes.",
            single(sum(one.count for one in servers)),
        ),
        gauge(
            "streamlog_connections_limit",
            "Limit of connections: max.connections.",
            single(sum(one.limits.total for one in servers if one.limits is not None)),
        ),
        gauge(
            "streamlog_connections_silent",
            "Connections that have not sent a byte yet; over TLS, those whose handshake is not complete.",
            single(sum(one.silent_count for one in servers)),
        ),
        counter(
            "streamlog_connections_closed_total",
            "Connections that this node closed, by the limit that they exceeded.",
            [
                (("max.connections",), sum(one.closed_total for one in servers)),
                (("max.connections.per.ip",), sum(one.closed_per_address for one in servers)),
            ],
            ("limit",),
        ),
        counter(
            "streamlog_connections_ended_silent_total",
            "Connections that ended without having sent a byte: by a limit, by the handshake timeout, or by the peer.",
            single(sum(one.ended_silent for one in servers)),
        ),
        gauge(
            "streamlog_connection_creation_held",
            "Addresses whose requests to connect are not answered now, since they exceeded connection_creation_rate; "
            "all addresses together count as one (max.connection.creation.rate).",
            single(0 if rates is None else len(rates.held)),
        ),
        counter(
            "streamlog_connection_creation_held_seconds_total",
            "For how long addresses were held up like this, in all.",
            single(0 if rates is None else rates.held_s),
        ),
        counter(
            "streamlog_tls_handshakes_total",
            "TLS handshakes that callers of this node have begun.",
            single(sum(one.begun for one in refusals)),
        ),
        counter(
            "streamlog_tls_connections_ended_without_call_total",
            "Connections over TLS that were closed before a first call, mostly since the handshake failed.",
            single(sum(one.ended_without_call for one in refusals)),
        ),
        gauge(
            "streamlog_reserved_descriptors",
            "Descriptors reserved for the disk; fewer than at the start: the process may open no more files.",
            single(fs.spares.spare_count),
        ),
        counter(
            "streamlog_reserved_descriptors_used_total",
            "How often a reserved descriptor was given up so that a file could be opened.",
            single(fs.spares.used_count),
        ),
    ]
