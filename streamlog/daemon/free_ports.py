"""Ports on loopback that nobody has, for clusters that are made for a test or by `--port 0`."""

from __future__ import annotations

import errno
import random
import socket
from typing import Final

from streamlog.errors import InvalidRequestError

HOST: Final = "127.0.0.1"
_PORTS: Final = range(20_000, 32_768)
"""Below the ephemeral ports of Linux, macOS and Windows: one of those is lost as soon as its node is killed, since any
process that connects to anything, the node's own clients among them, may be given it to connect from.
"""

_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Distinct, and never the same one twice in a process. Another process may still be faster."""
    free: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        if len(free) == count:
            return free
        if port not in _given and is_free(HOST, port):
            _given.add(port)
            free.append(port)
    raise InvalidRequestError(
        f"fewer than {count} ports of {_PORTS.start} to {_PORTS.stop - 1} are free: name one with --port", field="port"
    )


def is_free(host: str, port: int) -> bool:
    """False where a process has it. Whatever else hinders listening there, the one that listens says."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what is closed and lingers is no hindrance
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True
