"""Standard input in an event loop: a thread reads it, since reads from files, pipes and terminals can block.

It is a daemon thread: a pending read must not prevent the process from exiting.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from typing import Final

import click

_CHUNK_BYTES: Final = 1 << 20
# Chunks read ahead.
_AHEAD: Final = 4


async def chunks() -> AsyncIterator[bytes]:
    """Chunks of the input as they arrive: from a terminal, lines. Ends with the input. ClickException where it cannot
    be read: an OSError without a file's name counts as one of standard output.
    """
    queue: asyncio.Queue[bytes | OSError] = asyncio.Queue(_AHEAD)
    loop = asyncio.get_running_loop()
    threading.Thread(target=_read, args=(loop, queue), name="stdin", daemon=True).start()
    while True:
        chunk = await queue.get()
        if isinstance(chunk, OSError):
            raise click.ClickException(f"standard input cannot be read: {chunk.strerror}.") from None
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
            return  # the loop has ended
