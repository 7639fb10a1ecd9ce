"""When the logs of new replicas are created: a few at a time, and only while the process may open their files.

One request creates thousands of partitions. Each step of a creation takes the event loop, and each of its syncs one of
the disk's threads; all at once would delay the metadata quorum by seconds, and it would elect another leader.

A log keeps three files open. Where the process may open no more, that is not a failure of the disk: new replicas wait,
and those that exist, rolling logs and connections have what is left. Deleted topics and a higher limit (after a
restart) make room.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from streamlog.ports import Clock, FileSystem, Probe

AT_ONCE: Final = 8
FILES_FREE: Final = 256
"""Left for connections, rolling logs, checkpoints and snapshots."""
WAIT_S: Final = 1.0
WARNED_EACH_S: Final = 60.0


class ReplicaCreations:
    """Owned by the partition table. One event loop."""

    def __init__(self, fs: FileSystem, clock: Clock, probe: Probe) -> None:
        self._fs = fs
        self._clock = clock
        self._probe = probe
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._warned_s: float | None = None
        self.lacks_descriptors = False  # creations wait for them

    @asynccontextmanager
    async def slot(self, wanted: Callable[[], bool]) -> AsyncIterator[bool]:
        """Waits until a log may be created here. False: it is not `wanted` any more."""
        async with self._slots:
            yield await self._until_room(wanted)

    async def _until_room(self, wanted: Callable[[], bool]) -> bool:
        while wanted():
            free = self._fs.free_descriptors()
            self.lacks_descriptors = free < FILES_FREE
            if not self.lacks_descriptors:
                return True
            self._warn(free)
            await asyncio.sleep(WAIT_S)
        self.lacks_descriptors = False  # if others wait, they find it again
        return False

    def _warn(self, free: int) -> None:
        now_s = self._clock.monotonic()
        if self._warned_s is None or now_s - self._warned_s >= WARNED_EACH_S:
            self._warned_s = now_s
            self._probe("replicas_lack_descriptors", free=free, needed=FILES_FREE)
