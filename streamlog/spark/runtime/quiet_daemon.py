"""Spark's daemon of Python workers, without a traceback for each task whose Java process has ended.

The pipeline has already reported the stop, or the failure of Java; the task's result is no longer needed. `session`
gives this module to Spark (spark.python.daemon.module) where workers run the driver's Python. For the processes that
plan and commit Spark has no such setting: `launcher` runs this one in place of Spark's, where the session asks it to.
"""

from __future__ import annotations

import socket

from pyspark import daemon

_worker = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """As Spark's own: runs one task; 0: the process can be reused."""
    try:
        code: int = _worker(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return 1
    return code


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
