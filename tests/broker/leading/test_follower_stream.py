"""What a message to a follower is put together of, and what the throttle does to it. Time is virtual."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from streamlog.broker.leading.follower_slot import FollowerSlot
from streamlog.broker.leading.follower_stream import THROTTLED_READ_BYTES, FollowerStream
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.broker.replica_wire import Follow, FollowerHello, SlotUpdate
from streamlog.broker.throttle import UNLIMITED, Throttle
from streamlog.model import (
    Appended,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionId,
    TopicId,
    TopicPartition,
)
from streamlog.ports import Clock
from streamlog.sim import SimClock, SimLoop, run
from tests.storage.batches import batch
from tests.support.clocks import FakeClock

ME, FOLLOWER = BrokerId(1), BrokerId(2)
MESSAGE_BYTES = 1 << 20


class FakeLog:
    """Batches of one record and one size, in the page cache unless it is cold."""

    log_start_offset = Offset(0)
    has_gaps = False

    def __init__(self, size: int, end: int) -> None:
        self.size = size
        self.log_end_offset = Offset(end)
        self.cold = False
        self.read_bytes: list[int] = []  # of each read from the disk

    def batch(self, offset: int) -> bytes:
        return batch([bytes(self.size)], base_offset=offset)

    def try_read(self, offset: Offset, size_max: int, *, at_least_one: bool) -> bytes | None:
        return None if self.cold else self._read(offset, size_max, at_least_one)

    async def read(self, offset: Offset, size_max: int, *, at_least_one: bool) -> bytes:
        await asyncio.sleep(0.001)
        data = self._read(offset, size_max, at_least_one)
        self.read_bytes.append(len(data))
        return data

    def _read(self, offset: Offset, size_max: int, at_least_one: bool) -> bytes:
        count = min(self.log_end_offset - offset, max(size_max // len(self.batch(0)), int(at_least_one)))
        return b"".join(map(self.batch, range(offset, offset + count)))


class CountingThrottle(Throttle):
    looked_up = 0

    def wait_s(self) -> float:
        self.looked_up += 1
        return super().wait_s()


class Sink:
    """The follower's end of a stream."""

    async def send(self, message: bytes) -> None:
        await asyncio.sleep(0)

    async def recv(self) -> bytes | None:
        return await asyncio.get_running_loop().create_future()


class Rig:
    """A stream, and what it would send."""

    def __init__(self, clock: Clock | None = None, rate: int = UNLIMITED) -> None:
        self.throttle = CountingThrottle(FakeClock() if clock is None else clock, rate)
        self.stream = FollowerStream(
            FollowerHello("cluster", FOLLOWER, BrokerEpoch(1), ME),
            cast(Any, Sink()),
            find_leader=cast(Any, None),
            isr=cast(Any, None),
            throttle=self.throttle,
            fetch_bytes_max=MESSAGE_BYTES,
        )

    def open(self, log: FakeLog, *, at: int = 0, in_sync: bool = False) -> FollowerSlot:
        replica = SimpleNamespace(
            log=log,
            state=SimpleNamespace(in_sync=(ME, FOLLOWER) if in_sync else (ME,), high_watermark=Offset(0)),
            partition=TopicPartition("t", PartitionId(0)),
            traffic=SimpleNamespace(replicated_out=0),
            traces=None,
            unwatch=lambda _: None,
            on_gone=lambda _: None,
        )
        number, offset = len(self.stream._slots), Offset(at)
        topic_id, epoch = TopicId(bytes(16)), LeaderEpoch(0)
        follow = Follow(number, topic_id, PartitionId(0), epoch, offset, epoch, offset, Offset(0), None)
        slot = self.stream._slots[number] = FollowerSlot(self.stream, cast(LeaderReplica, replica), FOLLOWER, follow)
        self.stream.mark(slot)
        return slot

    def append(self, slot: FollowerSlot) -> None:
        log = cast(FakeLog, slot.replica.log)
        offset, data = log.log_end_offset, log.batch(log.log_end_offset)
        log.log_end_offset = Offset(offset + 1)
        slot.on_appended(Appended(offset, log.log_end_offset, -1, len(data), (data,)))


def has_batches(updates: list[SlotUpdate], slot: FollowerSlot) -> bool:
    return any(update.slot == slot.number and update.batches for update in updates)


@pytest.mark.parametrize("size", [16 << 10, 300_000, 700_000, 2 << 20])
@pytest.mark.parametrize("behind_count", [1, 50])
def test_the_tail_waits_for_one_message_of_those_that_are_behind(size: int, behind_count: int) -> None:
    rig = Rig()
    tail = rig.open(FakeLog(size, 5), at=5, in_sync=True)
    behind = [rig.open(FakeLog(size, 10_000)) for _ in range(behind_count)]
    for _ in range(5):
        rig.stream._collect()  # catching up is under way
    begun_at = [slot.next_offset for slot in behind]
    for _ in range(2 * behind_count):
        rig.append(tail)
        assert any(has_batches(rig.stream._collect(), tail) for _ in range(2))
        assert not tail.queue
    assert all(slot.next_offset > at for slot, at in zip(behind, begun_at, strict=True))


def throttled(story: Callable[[Rig], Awaitable[None]], rate: int) -> None:
    async def main(loop: SimLoop) -> None:
        rig = Rig(SimClock(loop), rate)
        running = asyncio.ensure_future(rig.stream.run())
        await story(rig)
        rig.stream.close()
        await running
        assert not rig.throttle._waiting

    run(main)


def test_partitions_that_are_throttled_share_the_rate_and_one_timer() -> None:
    async def story(rig: Rig) -> None:
        slots = [rig.open(FakeLog(16 << 10, 1_000)) for _ in range(300)]
        await asyncio.sleep(0.01)
        looked_up = rig.throttle.looked_up
        await asyncio.sleep(9.99)
        assert len(rig.throttle._waiting) == 1
        sent = [slot._sent_bytes for slot in slots]
        assert 100_000_000 < sum(sent) < 102_000_000
        assert max(sent) - min(sent) <= THROTTLED_READ_BYTES
        assert rig.throttle.looked_up - looked_up < 10 * sum(sent) // THROTTLED_READ_BYTES

    throttled(story, 10_000_000)


def test_what_is_throttled_is_read_from_the_disk_as_the_rate_allows() -> None:
    async def story(rig: Rig) -> None:
        slots = [rig.open(FakeLog(16 << 10, 1_000)) for _ in range(50)]
        logs = [cast(FakeLog, slot.replica.log) for slot in slots]
        for log in logs:
            log.cold = True
        for second in range(1, 6):
            await asyncio.sleep(1)
            read = [size for log in logs for size in log.read_bytes]
            assert max(read) <= THROTTLED_READ_BYTES
            assert 0.9 * second < sum(read) / 1_000_000 < second + 0.2
        assert all(slot._sent_bytes for slot in slots)

    throttled(story, 1_000_000)


@pytest.mark.parametrize("rate", [100_000_000, UNLIMITED])
def test_a_rate_that_is_raised_counts_at_once(rate: int) -> None:
    async def story(rig: Rig) -> None:
        slots = [rig.open(FakeLog(16 << 10, 20)) for _ in range(10)]
        await asyncio.sleep(1)
        assert sum(slot._sent_bytes for slot in slots) <= THROTTLED_READ_BYTES
        rig.throttle.set_rate(rate)
        await asyncio.sleep(0.1)
        assert all(slot.next_offset == 20 for slot in slots)

    throttled(story, 1_000)


def test_a_replica_that_joins_the_isr_is_not_throttled_any_more() -> None:
    async def story(rig: Rig) -> None:
        slots = [rig.open(FakeLog(16 << 10, 1_000)) for _ in range(100)]
        joining = rig.open(FakeLog(16 << 10, 20))
        await asyncio.sleep(1)
        assert joining.next_offset == 0
        cast(Any, joining.replica.state).in_sync = (ME, FOLLOWER)
        joining.on_readable()
        await asyncio.sleep(0.2)
        assert joining.next_offset == 20
        assert sum(slot._sent_bytes for slot in slots) <= THROTTLED_READ_BYTES

    throttled(story, 1_000)
