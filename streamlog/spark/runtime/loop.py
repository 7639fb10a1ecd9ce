"""The event loop of a process of Spark's: one thread for all of its clients.

Clients come and go with tasks and commits. Each would have a loop of its own, and grpc keeps telling loops that it has
met of what happens, also when they are closed.
"""

from __future__ import annotations

import os

from streamlog.client.connection.sync_loop import LoopThread

_threads: dict[int, LoopThread] = {}  # by process: a forked child has none of its parent's threads


def loop_thread() -> LoopThread:
    """This process's; made at the first call."""
    found = _threads.get(os.getpid())
    if found is None:
        found = _threads[os.getpid()] = LoopThread("streamlog-spark", shared=True)
    return found
