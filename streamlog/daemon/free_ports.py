"""Free ports on loopback, for clusters that are made for a test or by `--port 0`.

A port of a node that was killed, or has not been started yet, looks free. So a process reserves the ports that it got
until it ends: each port is a byte of one file, on which the process holds a lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import Final

from streamlog.errors import InvalidRequestError

HOST: Final = "127.0.0.1"
_PORTS: Final = range(20_000, 32_768)
"""Below the ephemeral ports of Linux, macOS and Windows: the kernel may use an ephemeral port for any outgoing
connection, those of the node's own clients too, as soon as the node that listened there was killed.
"""

_LOCKS: Final = Path(tempfile.gettempdir()) / f"streamlog-ports-{os.getuid()}"

_given: set[int] = set()
_locks: list[int] = []  # the descriptor of _LOCKS, never closed: closing it would release the locks


def free_ports(count: int) -> list[int]:
    """Distinct ports, none of them given before to this process or to another one that still runs."""
    free: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        if port not in _given and _locked(port) and is_free(HOST, port):
            _given.add(port)
            free.append(port)
            if len(free) == count:
                return free
    raise InvalidRequestError(
        f"fewer than {count} ports of {_PORTS.start} to {_PORTS.stop - 1} are free: choose with --port", field="port"
    )


def _locked(port: int) -> bool:
    """False if another process has reserved it."""
    if not _locks:
        _locks.append(os.open(_LOCKS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    try:
        fcntl.lockf(_locks[0], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise
    return True


def is_free(host: str, port: int) -> bool:
    """False if a process listens there. Other reasons that prevent listening are reported by the one that listens."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # TIME_WAIT does not count
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True
