"""The event loop of a Python process of Spark: one thread for all of its clients.

Each task and commit creates clients: they share a thread, as all of them are used by one.
"""

from __future__ import annotations

import os

from streamlog.client.connection.sync_loop import LoopThread

_threads: dict[int, LoopThread] = {}  # by process: a forked child has none of its parent's threads


def loop_thread() -> LoopThread:
    """This process's thread; started at the first call."""
    found = _threads.get(os.getpid())
    if found is None:
        found = _threads[os.getpid()] = LoopThread("streamlog-spark", shared=True)
    return found
