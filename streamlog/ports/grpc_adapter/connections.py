"""Limits a server's connections, in total and per address: `max.connections`, `max.connections.per.ip`.

gRPC's core accepts connections without a limit, so its sockets are inspected from outside: once a second the process's
descriptors are listed (every five seconds, while there are fewer of them than a limit), those with the server's local
port are counted by the peer's address, and the surplus is shut down (shutdown(2)); gRPC notices the end of such a
connection and closes it. Calls do not pay for this. A flood may take all descriptors during the second in between; for
that the disk reserves some (`spare_files`).

Connections that have not sent a byte are closed first, then the newest, never more than the surplus. gRPC itself closes
those that do not finish the handshake in time (`grpc.server_handshake_timeout_ms`) and those without calls
(`grpc.max_connection_idle_ms`).
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec import Struct

from streamlog.ports.grpc_adapter.descriptors import descriptor_count, sockets_of, tcp_socket_count

INTERVAL_S: Final = 1.0
SKIPPED_MAX: Final = 4
"""Looks in a row that only compare the number of descriptors with the limits, while it is below them. Listing all was a
tenth of an idle node's CPU. What the metrics count is up to five seconds old then.
"""
REPORT_S: Final = 60.0
"""Between two reports while connections are being closed."""
# struct tcp_info of <linux/tcp.h>: tcpi_bytes_received, since Linux 4.1.
_BYTES_RECEIVED: Final = struct.Struct("=Q")
_BYTES_RECEIVED_AT: Final = 128


class ServerConnection(Struct, frozen=True):
    descriptor: int
    address: str  # of the peer, without its port
    port: int
    is_silent: bool  # it has not sent a byte yet


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    total: int
    per_address: int


class Surplus(Struct, frozen=True):
    """The connections to close, by the limit that they exceed."""

    per_address: list[ServerConnection]
    total: list[ServerConnection]


def surplus(
    connections: Iterable[ServerConnection], first_seen: dict[tuple[str, int], int], limits: ConnectionLimits
) -> Surplus:
    """The connections to close. `first_seen`: by peer, a number that rises with time. Pure."""
    per_address: dict[str, list[ServerConnection]] = defaultdict(list)
    for one in connections:
        per_address[one.address].append(one)
    found = Surplus([], [])
    for of_one in per_address.values():  # the ones to close first are last
        of_one.sort(key=lambda one: (one.is_silent, first_seen[one.address, one.port]))
        while len(of_one) > limits.per_address:
            found.per_address.append(of_one.pop())
    left = sum(map(len, per_address.values()))
    while left > limits.total:  # of the address that has most
        found.total.append(max(per_address.values(), key=len).pop())
        left -= 1
    return found


class ConnectionWatch:
    """Enforces the limits of one server; `run` is its task."""

    def __init__(self, port: int, limits: ConnectionLimits, report: Callable[[str], None]) -> None:
        self.limits = limits
        self.count = 0
        self.silent_count = 0  # of these, those that have not sent a byte
        # Since the start: closed by a limit; and all that ended without having sent a byte.
        self.closed_per_address = self.closed_total = self.ended_silent = 0
        self._silent: set[tuple[str, int]] = set()
        self._port = port
        self._report = report
        self._first_seen: dict[tuple[str, int], int] = {}
        self._scans = 0
        self._reported_at = -REPORT_S

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        skipped = 0
        while True:
            await asyncio.sleep(INTERVAL_S)
            if skipped < SKIPPED_MAX and self._is_within_limits():
                skipped += 1
                continue
            skipped = 0
            closed = await asyncio.to_thread(self.scan)
            if closed and loop.time() - self._reported_at >= REPORT_S:
                self._reported_at = loop.time()
                self._report(
                    f"{self.count + closed} connections to port {self._port}: {closed} were closed, silent ones and "
                    f"the newest first; the limits are {self.limits.total} (max.connections) and "
                    f"{self.limits.per_address} from one address (max.connections.per.ip)"
                )

    def _is_within_limits(self) -> bool:
        """Whether there are so few descriptors, or sockets, that no limit can be exceeded. A log has three descriptors,
        and to go through those of thousands takes a twentieth of a core.
        """
        limit = min(self.limits.total, self.limits.per_address)
        return any(0 < count() <= limit for count in (descriptor_count, tcp_socket_count))

    def scan(self) -> int:
        """Closes the surplus; it ends, and is counted as ended, by the next scan. Returns how many were closed."""
        found = list(connections_of(self._port))
        self._scans += 1
        seen = self._first_seen
        self._first_seen = {(one.address, one.port): seen.get((one.address, one.port), self._scans) for one in found}
        self.ended_silent += len(self._silent - self._first_seen.keys())
        self._silent = {(one.address, one.port) for one in found if one.is_silent}
        over = surplus(found, self._first_seen, self.limits)
        per_address, total = (
            sum(_shut_down(one, self._port) for one in some) for some in (over.per_address, over.total)
        )
        self.closed_per_address += per_address
        self.closed_total += total
        self.count = len(found) - per_address - total
        self.silent_count = len(self._silent) - sum(one.is_silent for one in (*over.per_address, *over.total))
        return per_address + total


def connections_of(port: int) -> Iterator[ServerConnection]:
    """Connected sockets of this process with this local port."""
    for one in sockets_of(port):
        try:
            peer = one.getpeername()
            info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        except OSError:  # a listening or disconnected socket
            continue
        yield ServerConnection(one.fileno(), peer[0], peer[1], is_silent=_received(info) == 0)


def _received(info: bytes) -> int:
    if len(info) < _BYTES_RECEIVED_AT + _BYTES_RECEIVED.size:
        return 1  # unknown on an old kernel
    received: int = _BYTES_RECEIVED.unpack_from(info, _BYTES_RECEIVED_AT)[0]
    return received


def _shut_down(one: ServerConnection, port: int) -> bool:
    """False if the descriptor has another connection by now."""
    try:
        made = socket.socket(fileno=one.descriptor)
    except OSError:
        return False
    try:
        if made.getsockname()[1] != port or made.getpeername()[:2] != (one.address, one.port):
            return False
        made.shutdown(socket.SHUT_RDWR)
    except OSError:
        return False
    finally:
        made.detach()
    return True
