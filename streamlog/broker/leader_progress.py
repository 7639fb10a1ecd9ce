"""What readers may see of a log that this node leads, and who is notified when it changes.

    appended --(synced, replicated)--> readable: high watermark, last stable offset or log start have moved
    end(error) --> no more calls; watchers are forgotten

A watcher sees the bytes as they are appended (a follower's stream sends them from memory); a reader is woken when the
readable end has moved, and reads the log.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from streamlog.errors import StreamlogError
from streamlog.model import Appended, Offset
from streamlog.replication.leader import PartitionLeader
from streamlog.storage.log.log import Log


class ReplicaWatcher(Protocol):
    """Long polls, fetch streams, followers' slots. Called on the event loop; must neither wait nor raise.

    A watcher may remove itself or others while it is called.
    """

    def on_appended(self, appended: Appended) -> None:
        """Appended to the log, not yet synced: `appended.buffers` are the bytes as they stand there."""
        ...

    def on_readable(self) -> None:
        """High watermark, last stable offset or log start have moved, or the ISR has changed."""
        ...

    def on_ended(self, error: StreamlogError) -> None:
        """The leadership has ended; `error` is for clients. The watcher has been removed already."""
        ...


class LeaderProgress:
    """Of one leadership. One event loop."""

    __slots__ = ("_epoch_start", "_former_committed", "_log", "_published", "_state", "watchers")

    def __init__(self, log: Log, state: PartitionLeader, epoch_start: Offset) -> None:
        """`epoch_start`: all below was appended by former leaders."""
        self._log = log
        self._state = state
        self._epoch_start = epoch_start
        self._former_committed: asyncio.Future[None] | None = None  # done: the high watermark reached `_epoch_start`
        self.watchers: dict[ReplicaWatcher, None] = {}
        self._published = self._facts()

    def on_appended(self, appended: Appended) -> None:
        for watcher in tuple(self.watchers):
            watcher.on_appended(appended)

    def publish(self, *, isr_changed: bool = False) -> None:
        """Notify the watchers where what readers see has changed, or who is in sync.

        The last stable offset changes with the other two only: what happens to transactions above the high watermark
        does not count yet.
        """
        published = self._published
        unmoved = self._state.high_watermark == published[0] and self._log.log_start_offset == published[2]
        if unmoved and not isr_changed:
            return
        self._published = facts = self._facts()
        if self._former_committed is not None and facts[0] >= self._epoch_start and not self._former_committed.done():
            self._former_committed.set_result(None)
        for watcher in tuple(self.watchers):
            watcher.on_readable()

    async def wait_for_former_leaders(self) -> None:
        """Until all that former leaders appended, and this log has, is committed; or the leadership has ended."""
        if self._state.high_watermark >= self._epoch_start:
            return
        if self._former_committed is None:
            self._former_committed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._former_committed)

    def wake_waiters(self) -> None:
        """The leadership has ended."""
        if self._former_committed is not None and not self._former_committed.done():
            self._former_committed.set_result(None)

    def end(self, error: StreamlogError) -> None:
        watchers, self.watchers = tuple(self.watchers), {}
        for watcher in watchers:
            watcher.on_ended(error)

    def _facts(self) -> tuple[Offset, Offset, Offset]:
        high_watermark = self._state.high_watermark
        return high_watermark, self._log.last_stable_offset(high_watermark), self._log.log_start_offset
