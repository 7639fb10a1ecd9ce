"""gRPC's own words about a missing connection, in those of this project."""

from __future__ import annotations

import pytest

from streamlog.ports.grpc_adapter.handshakes import handshake_failure
from streamlog.ports.grpc_adapter.stream import no_connection

ALL = "failed to connect to all addresses; last error: "


@pytest.mark.parametrize(
    ("of_grpc", "shown"),
    [
        (
            ALL + "UNKNOWN: ipv4:127.0.0.1:9092: Failed to connect to remote host: Connection refused",
            "no connection to 127.0.0.1:9092: connection refused",
        ),
        (
            ALL + "UNKNOWN: ipv4:10.1.2.3:9092: Failed to connect to remote host: connect: Connection refused (111)",
            "no connection to 10.1.2.3:9092: connection refused",
        ),
        (
            ALL + "UNAVAILABLE: ipv6:%5B::1%5D:9092: No route to host",
            "no connection to [::1]:9092: no route to host",
        ),
        ("DNS resolution failed for a:1: C-ares status", "DNS resolution failed for a:1: C-ares status"),
        (ALL + "a reason of a later release", ALL + "a reason of a later release"),
    ],
)
def test_a_missing_connection(of_grpc: str, shown: str) -> None:
    assert no_connection(of_grpc) == shown


@pytest.mark.parametrize(
    ("of_grpc", "address"), [("ipv4:127.0.0.1:9092", "127.0.0.1:9092"), ("ipv6:%5B::1%5D:9092", "[::1]:9092")]
)
def test_a_failed_handshake_names_the_address(of_grpc: str, address: str) -> None:
    said = handshake_failure(f"{ALL}UNKNOWN: {of_grpc}: Ssl handshake failed: Socket closed")
    assert said is not None
    assert said.startswith(f"the node at {address} cannot be used: it closed the connection at once: ")
