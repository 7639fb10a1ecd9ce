"""One partition on its way to one follower: what has been sent, what is queued, and where the rest comes from.

    at the tail    appended bytes are queued from memory as they are appended, up to the stream's limit
    behind         nothing is queued: the stream reads from the disk, until it has caught up with the log end

There is no explicit switch between the two. The queue begins where the sent bytes end; an append that does not begin
where the queue ends is not queued, and while the queue is empty and the log continues, the rest is on the disk.

A slot whose follower is throttled (and not in sync) is always read from the disk: its bytes must not wait in memory.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.broker.replica_wire import CREDIT_MAX, AppendTrace, Follow, SlotUpdate
from streamlog.errors import CorruptMessageError, StreamlogError
from streamlog.model import Appended, BrokerId, Offset
from streamlog.ports import Buffer
from streamlog.records import read_header
from streamlog.records.header import HEADER_SIZE, LOG_OVERHEAD

_LENGTH: Final = struct.Struct(">i")
_LENGTH_AT: Final = 8


class SlotOwner(Protocol):
    """The stream, as its slots see it."""

    def reserve(self, size: int) -> bool:
        """Reserve so many bytes in memory; False: they are not available."""
        ...

    def release(self, size: int) -> None: ...

    def is_throttled(self, slot: FollowerSlot) -> bool:
        """Whether the leader's throttle applies to it."""
        ...

    def mark(self, slot: FollowerSlot) -> None:
        """There may be something to send, at once."""
        ...

    def mark_moved(self, slot: FollowerSlot) -> None:
        """The high watermark has moved, which can wait for bytes to go with."""
        ...

    def end_slot(self, slot: FollowerSlot, error: StreamlogError) -> None: ...


class FollowerSlot:
    """Owned by its stream; a watcher of the partition's leader."""

    __slots__ = (
        "_credit_bytes",
        "_first",
        "_queued_end",
        "_sent_bytes",
        "_sent_facts",
        "_stream",
        "_traced_end",
        "ackable_end",
        "busy",
        "follower",
        "is_closed",
        "marked",
        "next_offset",
        "number",
        "queue",
        "replica",
    )

    def __init__(self, stream: SlotOwner, replica: LeaderReplica, follower: BrokerId, follow: Follow) -> None:
        self._stream = stream
        self.replica = replica
        self.follower = follower
        self.number = follow.slot
        self.next_offset = follow.fetch_offset  # all below has been passed to the stream
        self.ackable_end = follow.ackable_end  # the last reported position; <= next_offset
        self.queue: deque[tuple[Sequence[Buffer], int, Offset]] = deque()  # bytes, their size, the offset after them
        self._queued_end = follow.fetch_offset  # of the queue's last bytes; next_offset where it is empty
        self._sent_bytes = 0
        self._credit_bytes = CREDIT_MAX  # of _sent_bytes; the last batch may go beyond
        self._sent_facts = (Offset(-1), Offset(-1))  # high watermark and log start
        self._first = True  # no update has been sent
        self._traced_end = follow.fetch_offset  # the contexts of traced appends have been sent up to here
        self.is_closed = False
        self.marked = False  # waits in the stream's ready queue
        self.busy = False  # being read from the disk, or about to be
        self.grant(follow.credit_bytes)

    # -- from the leader (ReplicaWatcher)

    def on_appended(self, appended: Appended) -> None:
        if (
            self._queued_end == appended.first_offset
            and self._credit_bytes == CREDIT_MAX
            and not self._stream.is_throttled(self)
            and self._stream.reserve(appended.size_bytes)
        ):
            self.queue.append((appended.buffers, appended.size_bytes, appended.next_offset))
            self._queued_end = appended.next_offset
        self._stream.mark(self)

    def on_readable(self) -> None:
        if self._sent_facts[1] == self.replica.log.log_start_offset:
            self._stream.mark_moved(self)
        else:
            self._stream.mark(self)

    def on_ended(self, error: StreamlogError) -> None:
        self._stream.end_slot(self, error)

    # -- for the stream

    @property
    def in_sync(self) -> bool:
        return self.follower in self.replica.state.in_sync

    @property
    def is_behind(self) -> bool:
        """The next bytes are on the disk only."""
        return not self.queue and self.next_offset < self.replica.log.log_end_offset

    @property
    def has_update(self) -> bool:
        return self._sent_facts != (self.replica.state.high_watermark, self.replica.log.log_start_offset)

    @property
    def credit_left(self) -> int:
        return max(0, self._credit_bytes - self._sent_bytes)

    def grant(self, credit_bytes: int | None) -> None:
        """The follower allows so many bytes since the slot began; None: unchanged."""
        if credit_bytes is not None:
            self._credit_bytes = credit_bytes

    def put_read(self, data: bytes) -> None:
        """Queue `data`, read from `next_offset` on by a worker."""
        self._queued_end = end_of(data)
        self.queue.append(((data,), len(data), self._queued_end))

    def take(self, size_max: int, *, at_least_one: bool) -> tuple[list[Buffer], int]:
        """From the queue, at most `size_max` bytes; `at_least_one`: the first entry even if larger."""
        taken: list[Buffer] = []
        size = 0
        while self.queue and (size + self.queue[0][1] <= size_max or (at_least_one and not taken)):
            buffers, chunk, end = self.queue.popleft()
            taken += buffers
            size += chunk
            self.next_offset = end
        if size:
            self._sent_bytes += size
            self._stream.release(size)
        return taken, size

    def took_read(self, data: bytes) -> None:
        """`data`, read from `next_offset` on, is sent at once."""
        self.next_offset = self._queued_end = end_of(data)
        self._sent_bytes += len(data)

    def update(self, batches: Sequence[Buffer], size: int) -> SlotUpdate:
        """With these `size` bytes."""
        self._sent_facts = facts = (self.replica.state.high_watermark, self.replica.log.log_start_offset)
        self.replica.traffic.replicated_out += size
        first, self._first = self._first, False
        found: Sequence[AppendTrace] = ()
        if size and self.replica.traces is not None:
            found = self.replica.traces.between(self._traced_end, self.next_offset)
            self._traced_end = self.next_offset
        return SlotUpdate(self.number, *facts, batches, has_gaps=first and self.replica.log.has_gaps, traces=found)

    def close(self) -> None:
        """Release what is queued. Idempotent."""
        self.is_closed = True
        self.replica.unwatch(self)
        for _, size, _ in self.queue:
            self._stream.release(size)
        self.queue.clear()


def end_of(data: Buffer) -> Offset:
    """The offset after the last of these whole batches. CorruptMessageError if `data` is not whole batches."""
    position, last, size = 0, 0, len(data)
    while position + HEADER_SIZE <= size:
        last = position
        length: int = _LENGTH.unpack_from(data, position + _LENGTH_AT)[0]
        if length <= 0:
            break
        position += LOG_OVERHEAD + length
    if position != size or not size:
        raise CorruptMessageError("the log returned something else than whole batches", position=last)
    return Offset(read_header(data, last).next_offset)
