"""The leader's side of one replication stream: all partitions that one follower node copies from this one.

    appends --> slots' queues --+                                   receiving <-- hello, follow, position, unfollow
                                +--> one message --> the network
    disk, page cache -----------+     of at most replica.fetch.max.bytes, unless a single batch is larger
    disk, cold --worker-------> slots' queues

A message is put together when the stream can take one, so it carries the bytes of all appends since the last one, of
all partitions. Slots at the tail come first; those that are behind get a quarter of a message, or all that is left.
Where a batch of those does not fit, the next message begins with it, and the one after that with the tail again.
Slots that are throttled share one queue and one timer, so that a message costs the same however many they are.
Reads that the page cache cannot serve are done by a separate task, one at a time: the tail does not wait for the disk.
A high watermark that moves without bytes is sent a moment later, mostly with the next bytes.

A follower names the last batches of its log when it begins. A separate task compares them with the leader's before the
slot is opened, because the leader's may have to be read from the disk (`replication.joining`).

The memory of a stream is bounded by QUEUE_BYTES_MAX and one read. What does not fit is read from the disk later.

A position counts only while the follower's registration is the one of its hello (KIP-903): the owner closes the stream
when the metadata have another one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from streamlog.broker import replica_wire as wire
from streamlog.broker.leading.follower_slot import FollowerSlot
from streamlog.broker.leading.isr_changes import IsrChanges
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.broker.replica_wire import Divergence, Follow, FollowerHello, Position, SlotUpdate
from streamlog.broker.throttle import Throttle
from streamlog.errors import InvalidRequestError, StreamlogError, UnknownTopicOrPartitionError
from streamlog.model import Offset, PartitionId, TopicId
from streamlog.ports import RpcError, Stream

QUEUE_BYTES_MAX: Final = 16 << 20
"""Appended bytes that wait for one follower: some hundred ms of a busy node."""
MOVED_DELAY_S: Final = 0.1
"""A high watermark may wait so long for bytes to go with. Followers need it after a change of leaders only."""
SLOTS_MAX: Final = 1 << 17
"""Partitions that one node follows on one other."""
UPDATE_BYTES: Final = 32
"""The size of an update without its batches."""
COMPARED_AT_ONCE: Final = 16
"""Logs whose last batches are read for comparison at the same time."""
THROTTLED_READ_BYTES: Final = 64 << 10
"""Read at a time for a throttled follower: the smaller, the smoother."""


class FollowerStream:
    """`run` lasts as long as the gRPC stream. One event loop."""

    def __init__(
        self,
        hello: FollowerHello,
        stream: Stream,
        *,
        find_leader: Callable[[TopicId, PartitionId], LeaderReplica],
        isr: IsrChanges,
        throttle: Throttle,
        fetch_bytes_max: int,
    ) -> None:
        """`find_leader` raises a StreamlogError where this node does not lead the partition."""
        self.follower = hello.node_id
        self.broker_epoch = hello.broker_epoch
        self._stream = stream
        self._find_leader = find_leader
        self._isr = isr
        self._throttle = throttle
        self._fetch_bytes_max = fetch_bytes_max
        self._slots: dict[int, FollowerSlot] = {}
        self._last_slot = -1
        self._compared: dict[int, Follow] = {}  # to be compared before they begin, by slot
        self._compare_wake = asyncio.Event()
        self._ready: deque[FollowerSlot] = deque()  # marked slots
        self._behind: deque[FollowerSlot] = deque()  # to be read from the page cache
        self._throttled: dict[FollowerSlot, None] = {}  # likewise, as the throttle allows
        self._behind_first = False  # the next of these did not fit into the rest of the last message
        self._cold: deque[FollowerSlot] = deque()  # to be read by a worker
        self._moved: dict[FollowerSlot, None] = {}  # whose high watermark has moved
        self._moved_timer: asyncio.TimerHandle | None = None
        self._endings: list[SlotUpdate] = []  # one a slot at most
        self._queued_bytes = 0
        self._wake = asyncio.Event()
        self._cold_wake = asyncio.Event()
        self._freed = asyncio.Event()  # bytes have been sent: a worker's read may fit now
        self._waits_for_space = False  # such a read
        self._closed = asyncio.Event()
        self._error: StreamlogError | RpcError | None = None  # why it was closed
        self._superseded = False

    async def run(self) -> None:
        """Until the follower ends the stream (returns), it breaks (RpcError), or `close` (raises its error)."""
        try:
            async with asyncio.TaskGroup() as tasks:
                workers = [
                    tasks.create_task(work()) for work in (self._receive, self._send, self._read_cold, self._compare)
                ]
                try:
                    await self._closed.wait()
                finally:
                    for worker in workers:
                        worker.cancel()
        finally:
            self._closed.set()
            self._throttle.forget(self._wake.set)
            if self._moved_timer is not None:
                self._moved_timer.cancel()
            for slot in self._slots.values():
                slot.close()
                if not self._superseded:
                    slot.replica.on_gone(self.follower)
            self._slots.clear()
        if self._error is not None:
            raise self._error

    def close(self, error: StreamlogError | RpcError | None = None) -> None:
        """Idempotent; the first error counts."""
        if not self._closed.is_set():
            self._error = error
            self._closed.set()

    def supersede(self) -> None:
        """Close it, because the follower has opened another stream: it is not disconnected."""
        self._superseded = True
        self.close()

    # -- from the follower

    async def _receive(self) -> None:
        try:
            while (data := await self._stream.recv()) is not None:
                if self._closed.is_set():
                    return
                self._on_request(wire.decode_request(data))
            self.close()
        except (RpcError, StreamlogError) as error:
            self.close(error)

    def _on_request(self, request: wire.Request) -> None:
        if request.hello is not None:
            raise InvalidRequestError("a second hello on a replication stream", field="hello")
        for number in request.unfollow:
            self._compared.pop(number, None)
            slot = self._slots.pop(number, None)
            if slot is not None:
                slot.close()
        for position in request.positions:
            self._on_position(position)
        for follow in request.follows:
            self._begin(follow)

    def _on_position(self, position: Position) -> None:
        follow = self._compared.get(position.slot)
        if follow is not None:
            self._compared[position.slot] = _moved(follow, position)
            return
        slot = self._slots.get(position.slot)
        if slot is None:
            return  # the slot has ended, and the follower did not know it yet
        if not slot.ackable_end <= position.ackable_end <= slot.next_offset:
            raise InvalidRequestError(
                f"{slot.replica.partition}: position {position.ackable_end} after {slot.ackable_end}, sent up to"
                f" {slot.next_offset}",
                field="log_end_offset",
                limit=slot.next_offset,
            )
        slot.ackable_end = position.ackable_end
        if position.credit_bytes is not None:
            slot.grant(position.credit_bytes)
            self.mark(slot)
        if position.saved_log_start is not None:
            slot.replica.on_saved_log_start(self.follower, position.saved_log_start)
        slot.replica.on_position(self.follower, position.ackable_end)

    def _begin(self, follow: Follow) -> None:
        opened = len(self._slots) + len(self._compared)
        if follow.slot <= self._last_slot or opened >= SLOTS_MAX:
            raise InvalidRequestError(
                f"slot {follow.slot} after {self._last_slot}, {opened} are open",
                field="slot",
                limit=SLOTS_MAX,
            )
        self._last_slot = follow.slot
        if follow.held or follow.unproven is not None:
            self._compared[follow.slot] = follow
            self._compare_wake.set()
        else:
            self._open_slot(follow, None)

    def _open_slot(self, follow: Follow, differs_from: Offset | None) -> None:
        """`differs_from`: from the comparison."""
        try:
            replica = self._find_leader(follow.topic_id, follow.partition)
            divergence = self._check(replica, follow)
            if divergence is not None or differs_from is not None:
                facts = (replica.high_watermark, replica.log_start_offset)
                self._end(SlotUpdate(follow.slot, *facts, divergence=divergence, differs_from=differs_from))
                if divergence is None:
                    replica.on_differing(self.follower)
                return
            slot = FollowerSlot(self, replica, self.follower, follow)
            replica.watch(slot)
        except StreamlogError as error:
            self._end(SlotUpdate(follow.slot, Offset(0), Offset(0), error=error))
            return
        self._slots[follow.slot] = slot
        self._isr.follows(replica, self.follower, self.broker_epoch)
        self.mark(slot)
        if follow.incomplete:  # it may have differed from an earlier leader's log
            replica.on_differing(self.follower)
        replica.on_saved_log_start(self.follower, follow.saved_log_start)
        replica.on_position(self.follower, follow.ackable_end)

    async def _compare(self) -> None:
        """Several at a time, in order of arrival."""
        while True:
            await self._compare_wake.wait()
            self._compare_wake.clear()
            while self._compared:
                some = list(self._compared.values())[:COMPARED_AT_ONCE]
                found = await asyncio.gather(*map(self._difference, some))
                for compared, differs_from in zip(some, found, strict=True):
                    follow = self._compared.pop(compared.slot, None)  # with the positions reported meanwhile
                    if follow is not None:
                        self._open_slot(follow, differs_from)

    async def _difference(self, follow: Follow) -> Offset | None:
        try:
            replica = self._find_leader(follow.topic_id, follow.partition)
            if self._check(replica, follow) is not None:
                return None  # truncation by epochs comes first
            return await replica.difference(follow.held, follow.unproven, follow.fetch_offset)
        except StreamlogError:
            return None  # sent when the slot is opened

    def _check(self, replica: LeaderReplica, follow: Follow) -> Divergence | None:
        """Whether the follower may continue at its fetch offset (KIP-101, KIP-595)."""
        replica.check_epoch(follow.leader_epoch)
        if self.follower not in replica.state.replicas:
            raise UnknownTopicOrPartitionError(
                f"{replica.partition}: node {self.follower} is not one of its replicas in the metadata of this node",
                field="partition",
            )
        if follow.ackable_end > follow.fetch_offset:
            raise InvalidRequestError(
                "the reported end is above the fetch offset", field="log_end_offset", limit=follow.fetch_offset
            )
        if follow.fetch_offset >= replica.log_start_offset:
            end = replica.divergence(follow.last_epoch, follow.fetch_offset)
            if end is not None:
                return Divergence(end.epoch, Offset(max(0, end.end_offset)))
        if not replica.log_start_offset <= follow.fetch_offset <= replica.log_end_offset:
            raise replica.out_of_range(follow.fetch_offset)
        return None

    # -- from the slots

    def reserve(self, size: int) -> bool:
        if self._queued_bytes and self._queued_bytes + size > QUEUE_BYTES_MAX:
            return False
        self._queued_bytes += size
        return True

    def release(self, size: int) -> None:
        self._queued_bytes -= size

    def is_throttled(self, slot: FollowerSlot) -> bool:
        return self._throttle.limited and not slot.in_sync

    def mark(self, slot: FollowerSlot) -> None:
        if not slot.marked and not slot.is_closed:
            slot.marked = True
            self._ready.append(slot)
            self._wake.set()

    def mark_moved(self, slot: FollowerSlot) -> None:
        self._moved[slot] = None
        if self._moved_timer is None:
            self._moved_timer = asyncio.get_running_loop().call_later(MOVED_DELAY_S, self._mark_moved)

    def _mark_moved(self) -> None:
        self._moved_timer = None
        moved, self._moved = self._moved, {}
        for slot in moved:
            self.mark(slot)

    def end_slot(self, slot: FollowerSlot, error: StreamlogError) -> None:
        if self._slots.pop(slot.number, None) is not None:
            slot.close()
            self._end(SlotUpdate(slot.number, Offset(0), Offset(0), error=error))

    def _end(self, update: SlotUpdate) -> None:
        self._endings.append(update)
        self._wake.set()

    # -- sending

    async def _send(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while (self._ready or self._behind or self._endings or self._throttled) and (
                    updates := self._collect()
                ):
                    await self._stream.send(wire.encode_response(updates))
        except RpcError as error:
            self.close(error)

    def _collect(self) -> list[SlotUpdate]:
        """The next message; empty: nothing to send."""
        updates, self._endings = self._endings, []
        free_bytes = self._fetch_bytes_max
        behind_first, self._behind_first = self._behind_first, False
        if behind_first and (slot := self._next_behind()) is not None:
            free_bytes -= self._read_behind(slot, updates, free_bytes // 4, at_least_one=True) or 0
        if self._ready:
            others = (self._behind or self._throttled) and self._next_behind() is not None
            keep = free_bytes // 4 if others else 0
            free_bytes = self._collect_ready(updates, free_bytes, keep=keep)
        while (self._behind or self._throttled) and (slot := self._next_behind()) is not None:
            alone = free_bytes == self._fetch_bytes_max
            size = self._read_behind(slot, updates, free_bytes, at_least_one=alone) if free_bytes > 0 else None
            if size is None:
                self._behind_first = not behind_first  # the tail has its turn in between
                break
            free_bytes -= size
        if self._waits_for_space:
            self._freed.set()
        return updates

    def _collect_ready(self, updates: list[SlotUpdate], free_bytes: int, *, keep: int) -> int:
        """From the queues, in the order in which slots were marked. What is left of `free_bytes`."""
        while self._ready and free_bytes > keep:
            slot = self._ready[0]
            batches, size = slot.take(free_bytes - keep, at_least_one=free_bytes == self._fetch_bytes_max)
            if slot.queue and not size:
                break
            if size or (slot.has_update and not slot.is_closed):
                updates.append(slot.update(batches, size))
                free_bytes -= size + UPDATE_BYTES
            if slot.queue:
                continue  # for the next message
            self._ready.popleft()
            slot.marked = False
            if slot.is_behind and not slot.busy and not slot.is_closed:
                slot.busy = True
                self._behind.append(slot)
        return free_bytes

    def _next_behind(self) -> FollowerSlot | None:
        """The one to be read now. Those that are throttled come last, each in turn."""
        while self._behind:
            slot = self._behind[0]
            if not self.is_throttled(slot):
                return slot
            self._behind.popleft()
            slot.busy = False
            self._throttled[slot] = None  # where it was, if it was there
        if self._throttled:
            if not self._throttle.wait_s():
                return next(iter(self._throttled))
            self._throttle.wake_later(self._wake.set)
        return None

    def _read_behind(
        self, slot: FollowerSlot, updates: list[SlotUpdate], size_max: int, *, at_least_one: bool
    ) -> int | None:
        """From the page cache, for `_next_behind`. How many bytes of the message it takes; None: its next batch does
        not fit.
        """
        size_max = min(size_max, self._read_bytes_max(slot))
        data: bytes | None = b""
        if size_max and slot.is_behind and not slot.is_closed:
            try:
                data = slot.replica.log.try_read(slot.next_offset, size_max, at_least_one=at_least_one)
                if data:
                    slot.took_read(data)
                elif data is not None and not at_least_one:
                    return None
            except StreamlogError as error:
                data = b""
                self.end_slot(slot, error)
        if slot.busy:
            self._behind.popleft()
        self._throttled.pop(slot, None)  # it may have joined the ISR since
        slot.busy = data is None
        self._charge(slot, THROTTLED_READ_BYTES if data is None else len(data))
        if data:
            updates.append(slot.update((data,), len(data)))
            self.mark(slot)
            return len(data) + UPDATE_BYTES
        if data is None:
            self._cold.append(slot)
            self._cold_wake.set()
        return 0  # or no batch up to the end, since compaction has left a gap

    def _read_bytes_max(self, slot: FollowerSlot) -> int:
        size_max = min(slot.credit_left, self._fetch_bytes_max)
        return min(size_max, THROTTLED_READ_BYTES) if self.is_throttled(slot) else size_max

    def _charge(self, slot: FollowerSlot, size: int) -> None:
        if self.is_throttled(slot):
            self._throttle.charge(size)

    # -- the cold disk

    async def _read_cold(self) -> None:
        """One read at a time; the next but one waits until its bytes have been sent."""
        while True:
            await self._cold_wake.wait()
            self._cold_wake.clear()
            while self._cold:
                slot = self._cold.popleft()
                if not slot.is_closed:
                    await self._read_one(slot)

    async def _read_one(self, slot: FollowerSlot) -> None:
        size_max = max(1, self._read_bytes_max(slot))
        try:
            data = await slot.replica.log.read(slot.next_offset, size_max, at_least_one=True)
            self._charge(slot, len(data) - THROTTLED_READ_BYTES)  # this much was charged before
            if not data:
                slot.busy = False  # as in `_read_behind`
                return
            while not self.reserve(len(data)):
                self._freed.clear()
                self._waits_for_space = True
                await self._freed.wait()
                self._waits_for_space = False
            if slot.is_closed:
                self.release(len(data))
            else:
                slot.put_read(data)
                slot.busy = False
                self.mark(slot)
        except StreamlogError as error:
            self.end_slot(slot, error)


def _moved(follow: Follow, position: Position) -> Follow:
    """As if the follower had begun at this position."""
    credit, log_start = position.credit_bytes, position.saved_log_start
    return follow._replace(
        ackable_end=max(follow.ackable_end, position.ackable_end),
        credit_bytes=follow.credit_bytes if credit is None else credit,
        saved_log_start=follow.saved_log_start if log_start is None else log_start,
    )
