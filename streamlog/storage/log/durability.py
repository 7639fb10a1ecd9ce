"""How much of one log is on stable storage: the log's side of group commit.

    written   --mark-->  queued  --begin-->  in a sync  --end-->  synced
                           ^                    |
                           +---- written since --+     a truncation in between: nothing is counted, queued again

`synced_end` is the offset below which every batch, and the name of every file that holds one, survives a power cut.
It rises at the end of a sync to what had been written at its *beginning*, unless the log was truncated in between
(`generation` has changed): the batches now at those offsets may not be the ones that were synced. It falls at a
truncation.

Only this object changes these facts; `GroupCommit` drives it, the log reports what it wrote.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from streamlog.aio.offset_waiters import OffsetWaiters
from streamlog.errors import OutcomeUnknownError, StorageError, ThrottledError
from streamlog.model import Offset
from streamlog.ports import File
from streamlog.storage.segments.segment import Segment


class SyncTicket(Struct, frozen=True):
    """What one sync of one log must cover."""

    files: tuple[File, ...]
    sync_names: bool  # files were created, renamed or removed
    end_offset: Offset
    written_bytes: int
    generation: int


class Durability:
    """Owned by its log. Waiters and listener run on the event loop."""

    __slots__ = (
        "_dirty",
        "_failure",
        "_generation",
        "_listener",
        "_mark",
        "_names_dirty",
        "_settled",
        "_synced_bytes",
        "_timer",
        "_waiters",
        "_written_bytes",
        "synced_end",
        "written_end",
    )

    def __init__(self, mark: Callable[[], None], end_offset: Offset) -> None:
        self._mark = mark  # requests a sync from group commit
        self.synced_end = end_offset  # <= written_end
        self.written_end = end_offset
        self._dirty: dict[Segment, None] = {}
        self._names_dirty = False
        self._generation = 0
        self._written_bytes = 0  # never falls, nor does the next
        self._synced_bytes = 0
        self._waiters = OffsetWaiters()  # for the synced end
        self._listener: Callable[[Offset], None] | None = None
        self._failure: StorageError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._settled = asyncio.Event()  # no sync of this log is under way
        self._settled.set()

    @property
    def unsynced_bytes(self) -> int:
        return self._written_bytes - self._synced_bytes

    @property
    def generation(self) -> int:
        """Rises with each truncation, which invalidates what was read or planned before it."""
        return self._generation

    def check(self) -> None:
        """Raise StorageError where the log directory is offline."""
        if self._failure is not None:
            raise self._failure

    def check_unsynced(self, size: int, limit: int) -> None:
        unsynced = self._written_bytes - self._synced_bytes
        if unsynced and unsynced + size > limit:
            raise ThrottledError(
                f"{unsynced} bytes are waiting for the disk already, the limit is {limit}: retry later",
                field="unsynced_bytes_max",
                limit=limit,
            )

    def listen(self, listener: Callable[[Offset], None]) -> None:
        """Call `listener(synced_end)` after each rise. One listener; it must not block or raise."""
        self._listener = listener

    # -- called by the log

    def wrote(self, segment: Segment, size: int, end_offset: Offset) -> None:
        self._dirty[segment] = None
        self._written_bytes += size
        self.written_end = end_offset

    def names_changed(self) -> None:
        self._names_dirty = True

    def truncated(self, end_offset: Offset, active: Segment, removed: list[Segment], *, restarted: bool) -> None:
        """The log ends at `end_offset` now; `active` was truncated, `removed` were removed.

        `restarted`: `active` is a new segment, and until its name is durable a power cut may restore the old log,
        wherever that ended. So the synced end falls to 0.
        """
        self._generation += 1
        self.written_end = end_offset
        self.synced_end = Offset(0) if restarted else min(self.synced_end, end_offset)
        for segment in removed:
            self._dirty.pop(segment, None)
        self._dirty[active] = None
        self._names_dirty = True
        for offset, future in self._waiters.above(end_offset):
            future.set_exception(OutcomeUnknownError(f"the log was truncated to {end_offset}, below {offset}"))
        self._mark()

    def request(self) -> None:
        """Request a sync of what has been written so far."""
        self._mark()

    def request_within(self, delay_s: float) -> None:
        """Request one sync after at most the delay, for all that is written until then."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._mark()

    def fail(self, error: StorageError) -> None:
        """The directory is offline, or the log is closed: every waiter and every later call gets the error. Nothing is
        synced any more.
        """
        self._failure = error
        self._dirty = {}
        self._names_dirty = False
        if self._timer is not None:
            self._timer.cancel()
        self._waiters.fail_all(error)

    # -- called by group commit

    def begin(self) -> SyncTicket:
        files = tuple([segment.file for segment in self._dirty])
        ticket = SyncTicket(
            files,
            self._names_dirty,
            self.written_end,
            self._written_bytes,
            self._generation,
        )
        self._dirty = {}
        self._names_dirty = False
        self._settled.clear()
        return ticket

    def end(self, ticket: SyncTicket) -> None:
        """All of the ticket is on stable storage."""
        if self._failure is not None:
            return  # `fail` has dropped the dirty files, so the ticket may be incomplete
        self._synced_bytes = ticket.written_bytes
        if ticket.generation != self._generation:
            return  # `truncated` has queued the log again
        if ticket.end_offset > self.synced_end:
            self.synced_end = ticket.end_offset
            self._wake()

    def settle(self) -> None:
        """The sync has ended, successfully or not, and no longer uses the files."""
        self._settled.set()

    async def wait_until_settled(self) -> None:
        """Return once no sync is under way: the files may be closed then, after `fail`."""
        await self._settled.wait()

    def _wake(self) -> None:
        for _, future in self._waiters.reached(self.synced_end):
            future.set_result(None)
        if self._listener is not None:
            self._listener(self.synced_end)

    async def wait_until_synced(self, end_offset: Offset) -> None:
        """Return once every batch below `end_offset` is on stable storage.

        Raises StorageError when the directory goes offline, OutcomeUnknownError when the log is truncated below it.
        """
        self.check()
        if end_offset <= self.synced_end:
            return
        future = self._waiters.add(end_offset)
        self._mark()
        await future
