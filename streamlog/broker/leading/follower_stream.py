"""The leader's side of one replication stream: all partitions that one follower node copies from this one.

    appends --> slots' queues --+                                   receiving <-- hello, follow, position, unfollow
                                +--> one message --> the wire           |
    disk, page cache -----------+     of at most replica.fetch.max.bytes, unless a single batch is larger
    disk, cold --off the loop--> slots' queues

What is pending is collected when the stream can take a message, so one message carries what many appends have left
meanwhile, of all partitions. Slots at the tail come first; those that are behind get a quarter of a message, or all
that is left. A read that the page cache cannot answer is done by a task of its own, one at a time: the tail does not
wait for the disk. High watermarks that move without bytes are sent after a moment, most of them with the next bytes.

A follower names the last batches of its log when it begins. They are compared with the leader's before the slot is
opened, by a task of its own, because the leader's may have to be read from the disk (`replication.joining`).

What a stream holds in memory is bounded by QUEUE_BYTES_MAX, and one read. What does not fit is read from the disk when
its turn comes.

A position counts only while the follower's registration is the one of its hello (KIP-903): the owner closes the stream
when the metadata say otherwise.
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
"""Of appended bytes that wait for one follower: some hundred ms of a busy node."""
NEWS_DELAY_S: Final = 0.02
"""A high watermark without bytes may wait so long. Followers need it for what they do after a change of leaders."""
SLOTS_MAX: Final = 1 << 17
"""Partitions that one node follows on one other."""
NEWS_BYTES: Final = 32
"""What an entry of a message takes besides its batches."""
COMPARED_AT_ONCE: Final = 16
"""Logs whose last batches are read for comparison."""
THROTTLED_READ_BYTES: Final = 64 << 10
"""Read at a time for a follower that is held back: the smaller, the smoother."""


class FollowerStream:
    """One incarnation. `run` lives as long as the stream does; all else is called on the event loop."""

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
        self._compared: dict[int, Follow] = {}  # what is to be compared before it begins, by slot
        self._compare_wake = asyncio.Event()
        self._ready: deque[FollowerSlot] = deque()  # those that are marked
        self._behind: deque[FollowerSlot] = deque()  # to be read from the page cache
        self._behind_first = False  # what is next of `_behind` did not fit into what was left of a message
        self._cold: deque[FollowerSlot] = deque()  # to be read off the loop
        self._moved: dict[FollowerSlot, None] = {}  # whose high watermark or log start has moved
        self._moved_timer: asyncio.TimerHandle | None = None
        self._endings: list[SlotUpdate] = []  # one a slot at most
        self._queued_bytes = 0
        self._wake = asyncio.Event()
        self._cold_wake = asyncio.Event()
        self._room = asyncio.Event()  # set where what was read off the loop has left
        self._over = asyncio.Event()
        self._error: StreamlogError | RpcError | None = None  # why it is over
        self._superseded = False

    async def run(self) -> None:
        """Until the follower ends the stream (returns), it breaks (RpcError), or it is closed (the error of that)."""
        try:
            async with asyncio.TaskGroup() as tasks:
                workers = [
                    tasks.create_task(work()) for work in (self._receive, self._send, self._read_cold, self._compare)
                ]
                try:
                    await self._over.wait()
                finally:
                    for worker in workers:
                        worker.cancel()
        finally:
            self._over.set()
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
        """End it. Idempotent; the first reason counts."""
        if not self._over.is_set():
            self._error = error
            self._over.set()

    def supersede(self) -> None:
        """End it, because the follower has opened another stream: it is not gone."""
        self._superseded = True
        self.close()

    # -- what the follower says

    async def _receive(self) -> None:
        try:
            while (data := await self._stream.recv()) is not None:
                if self._over.is_set():
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
        slot = self._slots.get(position.slot)
        if slot is None:
            return  # it has ended, and the follower did not know it yet
        if not slot.ackable_end <= position.ackable_end <= slot.next_offset:
            raise InvalidRequestError(
                f"{slot.replica.partition}: position {position.ackable_end} after {slot.ackable_end}, sent is"
                f" {slot.next_offset}",
                field="log_end_offset",
                limit=slot.next_offset,
            )
        slot.ackable_end = position.ackable_end
        if position.credit_bytes is not None:
            slot.grant(position.credit_bytes)
            self.mark(slot)
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
        if follow.held:
            self._compared[follow.slot] = follow
            self._compare_wake.set()
        else:
            self._open_slot(follow, None)

    def _open_slot(self, follow: Follow, differs_from: Offset | None) -> None:
        """`differs_from`: what the comparison has found."""
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
        replica.on_position(self.follower, follow.ackable_end)

    async def _compare(self) -> None:
        """Several at a time, in the order in which they came."""
        while True:
            await self._compare_wake.wait()
            self._compare_wake.clear()
            while self._compared:
                some = list(self._compared.values())[:COMPARED_AT_ONCE]
                found = await asyncio.gather(*map(self._difference, some))
                for follow, differs_from in zip(some, found, strict=True):
                    if self._compared.pop(follow.slot, None) is not None:
                        self._open_slot(follow, differs_from)

    async def _difference(self, follow: Follow) -> Offset | None:
        try:
            replica = self._find_leader(follow.topic_id, follow.partition)
            if self._check(replica, follow) is not None:
                return None  # epochs say where, and go first
            return await replica.difference(follow.held, follow.fetch_offset)
        except StreamlogError:
            return None  # it is answered when the slot is opened

    def _check(self, replica: LeaderReplica, follow: Follow) -> Divergence | None:
        """Whether the follower may go on where it wants to (KIP-101, KIP-595)."""
        replica.check_epoch(follow.leader_epoch)
        if self.follower not in replica.state.replicas:
            raise UnknownTopicOrPartitionError(
                f"{replica.partition}: node {self.follower} has no replica of it, as far as is known here",
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

    # -- what the slots say

    def reserve(self, size: int) -> bool:
        if self._queued_bytes and self._queued_bytes + size > QUEUE_BYTES_MAX:
            return False
        self._queued_bytes += size
        return True

    def release(self, size: int) -> None:
        self._queued_bytes -= size

    def holds_back(self, slot: FollowerSlot) -> bool:
        return self._throttle.limited and not slot.in_sync

    def mark(self, slot: FollowerSlot) -> None:
        if not slot.marked and not slot.over:
            slot.marked = True
            self._ready.append(slot)
            self._wake.set()

    def mark_news(self, slot: FollowerSlot) -> None:
        self._moved[slot] = None
        if self._moved_timer is None:
            self._moved_timer = asyncio.get_running_loop().call_later(NEWS_DELAY_S, self._mark_moved)

    def _mark_moved(self) -> None:
        self._moved_timer = None
        moved, self._moved = self._moved, {}
        for slot in moved:
            self.mark(slot)

    def end_slot(self, slot: FollowerSlot, error: StreamlogError) -> None:
        if self._slots.pop(slot.number, None) is not None:
            slot.close()
            self._end(SlotUpdate(slot.number, Offset(0), Offset(0), error=error))

    def _end(self, news: SlotUpdate) -> None:
        self._endings.append(news)
        self._wake.set()

    # -- sending

    async def _send(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while news := self._collect():
                    await self._stream.send(wire.encode_response(news))
        except RpcError as error:
            self.close(error)

    def _collect(self) -> list[SlotUpdate]:
        """The next message; empty: nothing is pending."""
        news, self._endings = self._endings, []
        room = self._fetch_bytes_max
        if self._behind_first:
            room = self._collect_behind(news, room)
        room = self._collect_ready(news, room, keep=room // 4 if self._behind else 0)
        self._collect_behind(news, room)
        self._room.set()
        return news

    def _collect_ready(self, news: list[SlotUpdate], room: int, *, keep: int) -> int:
        """From the queues, in the order in which slots were marked. What is left of `room`."""
        while self._ready and room > keep:
            slot = self._ready[0]
            batches, size = slot.take(room - keep, at_least_one=room == self._fetch_bytes_max)
            if slot.has_queue and not size:
                break
            if size or (slot.has_news and not slot.over):
                news.append(slot.news(batches))
                room -= size + NEWS_BYTES
                self._charge(slot, size)
            if slot.has_queue:
                continue  # for the next message
            self._ready.popleft()
            slot.marked = False
            if slot.is_behind and not slot.busy and not slot.over:
                slot.busy = True
                self._behind.append(slot)
        return room

    def _collect_behind(self, news: list[SlotUpdate], room: int) -> int:
        """From the page cache, each in turn."""
        self._behind_first = False
        for _ in range(len(self._behind)):
            if room <= 0:
                break
            slot = self._behind.popleft()
            slot.busy = False
            size_max = min(room, self._allowance(slot))
            if slot.over or not slot.is_behind or not size_max:
                continue
            alone = room == self._fetch_bytes_max
            try:
                data = slot.replica.log.try_read(slot.next_offset, size_max, at_least_one=alone)
                if data:
                    slot.took_read(data)
            except StreamlogError as error:
                self.end_slot(slot, error)
                continue
            slot.busy = not data
            if data == b"" and alone:
                slot.busy = False  # there is nothing up to the end: compaction has left a gap
            elif data is None:
                self._cold.append(slot)
                self._cold_wake.set()
            elif not data:  # it does not fit: it begins the next message
                self._behind.appendleft(slot)
                self._behind_first = True
                self._wake.set()
                break
            else:
                news.append(slot.news((data,)))
                room -= len(data) + NEWS_BYTES
                self._charge(slot, len(data))
                self.mark(slot)
        return room

    def _allowance(self, slot: FollowerSlot) -> int:
        """How many bytes of the disk it may have now; 0: it is marked again when that changes."""
        allowed = min(slot.credit_left, self._fetch_bytes_max)
        if not allowed or not self.holds_back(slot):
            return allowed
        wait_s = self._throttle.wait_s()
        if wait_s > 0:
            slot.busy = True
            asyncio.get_running_loop().call_later(wait_s, self._go_on, slot)
            return 0
        return min(allowed, THROTTLED_READ_BYTES)

    def _go_on(self, slot: FollowerSlot) -> None:
        slot.busy = False
        self.mark(slot)

    def _charge(self, slot: FollowerSlot, size: int) -> None:
        if self.holds_back(slot):
            self._throttle.charge(size)

    # -- the cold disk

    async def _read_cold(self) -> None:
        """One read at a time; what it brought must be gone before the next but one."""
        while True:
            await self._cold_wake.wait()
            self._cold_wake.clear()
            while self._cold:
                slot = self._cold.popleft()
                if not slot.over:
                    await self._read_one(slot)

    async def _read_one(self, slot: FollowerSlot) -> None:
        size_max = min(self._fetch_bytes_max, max(1, slot.credit_left))
        try:
            data = await slot.replica.log.read(slot.next_offset, size_max, at_least_one=True)
            if not data:
                slot.busy = False  # as in `_collect_behind`
                return
            while not self.reserve(len(data)):
                self._room.clear()
                await self._room.wait()
            if slot.over:
                self.release(len(data))
            else:
                slot.put_read(data)
                self._go_on(slot)
        except StreamlogError as error:
            self.end_slot(slot, error)
