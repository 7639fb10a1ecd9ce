"""Spark's daemon of Python workers, without its traceback for each task in whose midst Java has gone.

A pipeline that is stopped, or whose Java dies, has told so. There is nobody left who would take the task's result.
`session` names this module to Spark (spark.python.daemon.module) where workers have the driver's Python.
"""

from __future__ import annotations

import socket

from pyspark import daemon

_worker = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """As Spark's own: runs one task; 0 where the process may be used again."""
    try:
        code: int = _worker(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return 1
    return code


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
