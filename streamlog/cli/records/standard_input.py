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
    queue: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(_AHEAD)
    ended = threading.Event()
    loop = asyncio.get_running_loop()
    threading.Thread(target=_read, args=(loop, queue, room, ended), name="stdin", daemon=True).start()
    try:
        while True:
            chunk = await queue.get()
            room.release()
            if isinstance(chunk, OSError):
                raise click.ClickException(f"standard input cannot be read: {chunk.strerror}.") from None
            if not chunk:
                return
            yield chunk
    finally:
        ended.set()
        room.release()


def _read(
    loop: asyncio.AbstractEventLoop,
    queue: asyncio.Queue[bytes | OSError],
    room: threading.Semaphore,
    ended: threading.Event,
) -> None:
    """Leaves no coroutine to the loop, which may end at any moment: it would be cancelled, or never awaited."""
    chunk: bytes | OSError = b" "
    while chunk and not isinstance(chunk, OSError):
        room.acquire()
        if ended.is_set():
            return
        try:
            chunk = os.read(sys.stdin.fileno(), _CHUNK_BYTES)
        except OSError as error:
            chunk = error
        try:
            loop.call_soon_threadsafe(queue.put_nowait, chunk)
        except RuntimeError:
            return  # the loop has ended
