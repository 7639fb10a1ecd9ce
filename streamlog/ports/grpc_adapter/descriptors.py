"""This process's descriptors and sockets, found from outside: gRPC's core owns its sockets and does not show them."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterable, Iterator
from typing import Final

_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)


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


def descriptor_count() -> int:
    """How many are open; 0: unknown, as before Linux 6.2."""
    try:
        return os.stat("/proc/self/fd").st_size
    except OSError:
        return 0
