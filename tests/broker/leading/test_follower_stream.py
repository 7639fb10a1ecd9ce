"""What a message to a follower is put together of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from streamlog.broker.leading.follower_slot import FollowerSlot
from streamlog.broker.leading.follower_stream import FollowerStream
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.broker.replica_wire import Follow, FollowerHello, SlotUpdate
from streamlog.broker.throttle import Throttle
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
from tests.storage.batches import batch
from tests.support.clocks import FakeClock

ME, FOLLOWER = BrokerId(1), BrokerId(2)
MESSAGE_BYTES = 1 << 20


class FakeLog:
    """Batches of one record and one size, all in the page cache."""

    log_start_offset = Offset(0)
    has_gaps = False

    def __init__(self, size: int, end: int) -> None:
        self.size = size
        self.log_end_offset = Offset(end)

    def batch(self, offset: int) -> bytes:
        return batch([bytes(self.size)], base_offset=offset)

    def try_read(self, offset: Offset, size_max: int, *, at_least_one: bool) -> bytes | None:
        count = min(self.log_end_offset - offset, max(size_max // len(self.batch(0)), int(at_least_one)))
        return b"".join(map(self.batch, range(offset, offset + count)))


class Rig:
    """A stream, and what it would send."""

    def __init__(self) -> None:
        self.stream = FollowerStream(
            FollowerHello("cluster", FOLLOWER, BrokerEpoch(1), ME),
            cast(Any, None),
            find_leader=cast(Any, None),
            isr=cast(Any, None),
            throttle=Throttle(FakeClock()),
            fetch_bytes_max=MESSAGE_BYTES,
        )

    def open(self, log: FakeLog, *, at: int = 0, in_sync: bool = False) -> FollowerSlot:
        replica = SimpleNamespace(
            log=log,
            state=SimpleNamespace(in_sync=(ME, FOLLOWER) if in_sync else (ME,), high_watermark=Offset(0)),
            partition=TopicPartition("t", PartitionId(0)),
            traffic=SimpleNamespace(replicated_out=0),
            traces=None,
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
