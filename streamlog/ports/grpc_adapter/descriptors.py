"""This process's descriptors and sockets, found from outside: gRPC's core owns its sockets and does not show them."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterable, Iterator
from typing import Final

_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
_SOCKSTAT_BYTES_MAX: Final = 4096


def sockets_of(port: int) -> Iterator[socket.socket]:
    """Stream sockets with this local port, listening ones too; each is open for the caller until the next is taken."""
    for descriptor in descriptors():
        try:
            found = socket.socket(fileno=descriptor)
        except OSError:  # not a socket, or closed meanwhile
            continue
        try:
            if found.family in _FAMILIES and found.type == socket.SOCK_STREAM and found.getsockname()[1] == port:
                yield found
        except OSError:  # closed meanwhile
            pass
        finally:
            found.detach()


def descriptors() -> Iterable[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:  # no descriptor is free to list them
        return range(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def tcp_socket_count() -> int:
    """TCP sockets of all processes of this network namespace, but those in TIME_WAIT: so many connections at most has
    this one. 0: unknown. Cheap, however many files are open.
    """
    try:
        lines = _net_lines("sockstat") + (_net_lines("sockstat6") if os.path.exists("/proc/self/net/sockstat6") else [])
        rows = [line.split() for line in lines]
        return sum(int(row[2]) for row in rows if row[0] in ("TCP:", "TCP6:"))
    except (OSError, ValueError, IndexError):
        return 0


def _net_lines(name: str) -> list[str]:
    with open(f"/proc/self/net/{name}", encoding="ascii") as file:
        return [line for line in file.read(_SOCKSTAT_BYTES_MAX).splitlines() if line]


def descriptor_count() -> int:
    """How many are open; 0: unknown, as before Linux 6.2."""
    try:
        return os.stat("/proc/self/fd").st_size
    except OSError:
        return 0
