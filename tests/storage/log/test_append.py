"""Appending to one log, and when what was appended is on stable storage (SEMANTICS 5, 6)."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from streamlog.errors import (
    CorruptMessageError,
    StorageError,
    ThrottledError,
)
from streamlog.model import LeaderEpoch, Offset
from streamlog.records import TimestampType, read_header
from streamlog.records.decode import decode_batch
from streamlog.sim.machine import Machine
from streamlog.storage.log_config import LogConfig
from tests.storage.batches import batch
from tests.storage.rig import Rig


def test_what_is_appended_is_read(rig: Rig) -> None:
    first = rig.append(b"a", b"b")
    second = rig.append(b"c")
    assert (first.first_offset, first.next_offset) == (0, 2)
    assert (second.first_offset, second.next_offset) == (2, 3)
    assert rig.values() == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_known_positions_of_the_requirements(rig: Rig) -> None:
    """One record a batch, key group_demo, values {"id":0}...: positions 0, 86, 172, 258, 344, 430."""
    for i in range(6):
        rig.append(b'{"id":%d}' % i, keys=[b"group_demo"])
    data = rig.read(0)
    assert [data.find(b"group_demo", 86 * i) // 86 for i in range(6)] == list(range(6))
    assert len(data) == 516


def test_the_leader_stamps_offset_and_epoch_and_keeps_the_rest(rig: Rig) -> None:
    sent = batch([b"a"], base_offset=77, epoch=3)
    rig.append(b"x", epoch=5)
    rig.append_bytes(sent, epoch=5)
    stored = rig.read(1)
    assert read_header(stored, 0).base_offset == 1
    assert read_header(stored, 0).leader_epoch == 5
    assert stored[16:] == sent[16:]


def test_log_append_time_is_stamped_and_the_crc_follows(rig: Rig) -> None:
    rig.log.config = LogConfig(segment_index_bytes=1024, timestamp_type=TimestampType.LOG_APPEND_TIME)
    done = rig.append(b"a", timestamp=5)
    assert done.log_append_time_ms == rig.now_ms
    (record,) = decode_batch(rig.read(0))
    assert record.timestamp == rig.now_ms
    rig.crash()
    assert rig.log.log_end_offset == 1  # recovery checks the CRC


def test_nothing_is_ackable_before_its_sync(rig: Rig) -> None:
    rig.append(b"a")
    assert rig.log.ackable_end == 0
    rig.sync()
    assert rig.log.ackable_end == 1


def test_page_cache_policy_is_one_setting_away() -> None:
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, flush_messages=2**63 - 1))
    rig.append(b"a")
    assert rig.log.ackable_end == 1
    rig.machine.close()


def test_flush_ms_syncs_within_the_time() -> None:
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, flush_messages=2**63 - 1, flush_ms=50))
    rig.sync()
    rig.append(b"a")
    rig.sync()
    assert rig.log.durability.synced_end == 0
    rig.machine.sleep(0.06)
    rig.sync()
    assert rig.log.durability.synced_end == 1
    rig.machine.close()


def test_waiters_hear_of_the_sync_that_covers_them(rig: Rig) -> None:
    async def append_and_wait() -> list[int]:

        synced_ends: list[int] = []
        rig.log.durability.listen(synced_ends.append)
        async with asyncio.TaskGroup() as tasks:
            rig.log.durability.request()
            waiting = tasks.create_task(rig.log.durability.wait_until_synced(Offset(1)))
            await rig.directory.group_commit.sync_now()
            await waiting
        return synced_ends

    rig.append(b"a")
    assert rig.machine.run(append_and_wait()) == [1]


def test_a_failed_sync_is_final(rig: Rig) -> None:
    """SEMANTICS 5: the directory goes offline; the next sync, which would say OK, is never made."""
    rig.append(b"a")
    rig.machine.disk.faults.sync_errors = 1
    with pytest.raises(StorageError):
        rig.sync()
    with pytest.raises(StorageError):
        rig.append(b"b")
    with pytest.raises(StorageError):
        rig.read(0)
    assert rig.directory.failure is not None
    assert rig.log.ackable_end == 0


def test_nothing_counts_as_synced_after_a_failure(rig: Rig) -> None:
    """What waited for a sync when another write failed waits no more; that is no sync."""
    rig.append(b"a")
    rig.sync()
    rig.append(b"b")
    rig.machine.disk.faults.write_errors = 1
    with pytest.raises(StorageError):
        rig.append(b"c")
    reported: list[int] = []
    rig.log.durability.listen(reported.append)
    rig.sync()
    assert rig.log.durability.synced_end == 1
    assert reported == []


def test_a_full_disk_takes_the_directory_offline_and_loses_nothing_synced(rig: Rig) -> None:
    rig.append(b"a")
    rig.sync()
    rig.machine.disk.faults.capacity_bytes = rig.machine.disk.used_bytes() + 4096
    with pytest.raises(StorageError):
        rig.append(b"b" * 9000)
    rig.machine.disk.faults.capacity_bytes = 1 << 40
    rig.crash()
    assert rig.values() == [(0, b"a")]


def test_followers_append_what_they_got(rig: Rig) -> None:
    first = batch([b"a"], base_offset=0, epoch=0) + batch([b"b"], base_offset=5, epoch=2)
    with pytest.raises(CorruptMessageError):  # offsets join, unless compaction was at work where it comes from
        rig.do(lambda: rig.log.append_as_follower(first))
    rig.log.leader_has_gaps = True
    rig.do(lambda: rig.log.append_as_follower(first))
    rig.log.leader_has_gaps = False
    assert rig.log.has_gaps
    with pytest.raises(CorruptMessageError):  # no index can name it
        rig.do(lambda: rig.log.append_as_follower(batch([b"c"], base_offset=2**40, epoch=2)))
    assert rig.log.log_end_offset == 6
    assert rig.log.end_offset_for(LeaderEpoch(0)) == (0, 5)
    bad = batch([b"c"], base_offset=6, epoch=2)
    for damaged in (bad[:-1], bad[:70] + b"?" + bad[71:], batch([b"c"], base_offset=5, epoch=2), b""):
        with pytest.raises(CorruptMessageError):
            rig.do(partial(rig.log.append_as_follower, damaged))
    with pytest.raises(CorruptMessageError):
        rig.do(lambda: rig.log.append_as_follower(batch([b"c"], base_offset=6, epoch=1)))
    end = rig.log.log_end_offset
    with pytest.raises(CorruptMessageError, match="epoch 4 from the leader of epoch 3"):
        rig.do(lambda: rig.log.append_as_follower(batch([b"d"], base_offset=end, epoch=4), LeaderEpoch(3)))
    assert rig.log.log_end_offset == end
    assert rig.values() == [(0, b"a"), (5, b"b")]


def test_unsynced_bytes_are_bounded() -> None:
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, unsynced_bytes_max=1000))
    rig.append(b"x" * 800)
    with pytest.raises(ThrottledError):
        rig.append(b"x" * 800)
    rig.sync()
    rig.append(b"x" * 800)
    rig.machine.close()
