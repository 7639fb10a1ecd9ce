"""A server on loopback whose answer never ends: it sends a byte now and then."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

EVERY_S: Final = 0.05
BYTES_MAX: Final = 200
"""Then it closes the connection, so that a test whose reader waits without end fails instead."""


@contextmanager
def dripping(begin: bytes) -> Iterator[str]:
    """`begin`: of the answer, sent at once. Yields the server's URL."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_serve, args=(listening, begin, ended), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        ended.set()
        thread.join()


def _serve(listening: socket.socket, begin: bytes, ended: threading.Event) -> None:
    connection, _ = listening.accept()
    with connection:
        try:
            connection.sendall(begin)
            for _ in range(BYTES_MAX):
                if ended.wait(EVERY_S):
                    return
                connection.sendall(b" ")
        except OSError:
            pass
