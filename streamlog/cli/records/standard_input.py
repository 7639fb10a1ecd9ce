"""Standard input in an event loop: a thread reads it, since files, pipes and terminals wait each in their own way.

The thread is a daemon: one that waits for a person's next line must not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from typing import Final

_CHUNK_BYTES: Final = 1 << 20
# Chunks that are read ahead of whoever takes them.
_AHEAD: Final = 4


async def chunks() -> AsyncIterator[bytes]:
    """What comes, as it comes: of a terminal a line at a time. Ends with the input."""
    queue: asyncio.Queue[bytes | OSError] = asyncio.Queue(_AHEAD)
    loop = asyncio.get_running_loop()
    threading.Thread(target=_read, args=(loop, queue), name="stdin", daemon=True).start()
    while True:
        chunk = await queue.get()
        if isinstance(chunk, OSError):
            raise chunk
        if not chunk:
            return
        yield chunk


def _read(loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[bytes | OSError]) -> None:
    chunk: bytes | OSError = b" "
    while chunk and not isinstance(chunk, OSError):
        try:
            chunk = os.read(sys.stdin.fileno(), _CHUNK_BYTES)
        except OSError as error:
            chunk = error
        try:
            asyncio.run_coroutine_threadsafe(queue.put(chunk), loop).result()
        except (RuntimeError, asyncio.CancelledError):
            return  # the loop has ended, nobody wants it any more
