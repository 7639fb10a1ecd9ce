"""How many connections a server holds, in all and of one address: `max.connections`, `max.connections.per.ip`.

gRPC's core accepts by itself and has no bound, so its sockets are looked at from beside: once a second the process's
own descriptors are gone through, those whose own port is the server's are counted by the peer's address, and the
surplus is shut down (shutdown(2)); gRPC sees the end of such a connection and closes it. Nothing of that is on the way
of a call. What it does not cover is the second in between: a flood may take all descriptors for so long, and for that
the disk keeps some of its own (`spare_files`).

Closed first: connections that have not sent a byte, then the newest; never one more than is too many. Those that do not
finish the handshake in time gRPC closes itself (`grpc.server_handshake_timeout_ms`), as those that make no call
(`grpc.max_connection_idle_ms`).
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec import Struct

INTERVAL_S: Final = 1.0
REPORT_S: Final = 60.0
"""Between two reports while connections go on being closed."""
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
# struct tcp_info of <linux/tcp.h>: tcpi_bytes_received, since Linux 4.1.
_BYTES_RECEIVED: Final = struct.Struct("=Q")
_BYTES_RECEIVED_AT: Final = 128


class ServerConnection(Struct, frozen=True):
    descriptor: int
    address: str  # of the peer, without its port
    port: int
    is_silent: bool  # nothing has come of it yet


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    total: int
    per_address: int


def surplus(
    connections: Iterable[ServerConnection], first_seen: dict[tuple[str, int], int], limits: ConnectionLimits
) -> list[ServerConnection]:
    """Those to be closed. `first_seen`: by peer, a number that rises with time. Pure."""
    per_address: dict[str, list[ServerConnection]] = defaultdict(list)
    for one in connections:
        per_address[one.address].append(one)
    closed: list[ServerConnection] = []
    for of_one in per_address.values():  # the ones to go stand last
        of_one.sort(key=lambda one: (one.is_silent, first_seen[one.address, one.port]))
        while len(of_one) > limits.per_address:
            closed.append(of_one.pop())
    left = sum(map(len, per_address.values()))
    while left > limits.total:  # of whoever has most
        closed.append(max(per_address.values(), key=len).pop())
        left -= 1
    return closed


class ConnectionWatch:
    """Of one server. `run` it."""

    def __init__(self, port: int, limits: ConnectionLimits, report: Callable[[str], None]) -> None:
        self.count = 0
        self.closed_count = 0  # for being too many, since the start
        self._port = port
        self._limits = limits
        self._report = report
        self._first_seen: dict[tuple[str, int], int] = {}
        self._scans = 0
        self._reported_at = -REPORT_S

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(INTERVAL_S)
            closed = await asyncio.to_thread(self.scan)
            if closed and loop.time() - self._reported_at >= REPORT_S:
                self._reported_at = loop.time()
                self._report(
                    f"{self.count + closed} connections to port {self._port}: {closed} were closed, those that said "
                    f"nothing and the newest first; {self._limits.total} may be (max.connections), "
                    f"{self._limits.per_address} of one address (max.connections.per.ip)"
                )

    def scan(self) -> int:
        """How many were closed."""
        found = list(connections_of(self._port))
        self._scans += 1
        seen = self._first_seen
        self._first_seen = {(one.address, one.port): seen.get((one.address, one.port), self._scans) for one in found}
        closed = sum(_shut_down(one, self._port) for one in surplus(found, self._first_seen, self._limits))
        self.count = len(found) - closed
        self.closed_count += closed
        return closed


def connections_of(port: int) -> Iterator[ServerConnection]:
    """Sockets of this process whose own port it is, but those that listen."""
    for descriptor in _descriptors():
        try:
            made = socket.socket(fileno=descriptor)
        except OSError:  # no socket, or closed meanwhile
            continue
        try:
            if made.family in _FAMILIES and made.type == socket.SOCK_STREAM and made.getsockname()[1] == port:
                peer = made.getpeername()
                info = made.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                yield ServerConnection(descriptor, peer[0], peer[1], is_silent=_received(info) == 0)
        except OSError:  # it listens, or has ended
            pass
        finally:
            made.detach()


def _received(info: bytes) -> int:
    if len(info) < _BYTES_RECEIVED_AT + _BYTES_RECEIVED.size:
        return 1  # an old kernel does not say
    received: int = _BYTES_RECEIVED.unpack_from(info, _BYTES_RECEIVED_AT)[0]
    return received


def _descriptors() -> Iterable[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:  # no descriptor is left for that
        return range(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _shut_down(one: ServerConnection, port: int) -> bool:
    """Unless the descriptor is another's by now."""
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
