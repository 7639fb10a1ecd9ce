"""Retention by time, and compaction, where a time index is wrong: it has no checksum, and batches that are not due
stay.
"""

from __future__ import annotations

import asyncio
import errno
from contextlib import suppress

import pytest
from msgspec.structs import replace

from streamlog.errors import DamagedFileError, StorageError
from streamlog.model import Offset, PartitionId, TopicPartition
from streamlog.ports import File
from streamlog.sim.files.inode import FileNode
from streamlog.sim.machine import Machine
from streamlog.storage.cleaning.cleaner import Cleaner
from streamlog.storage.cleaning.maintenance import Maintenance, MaintenanceConfig
from streamlog.storage.log.log import Log
from streamlog.storage.log_config import LogConfig
from streamlog.storage.segments.time_index import TimeIndex
from tests.storage.rig import Rig

DAY_MS = 86_400_000
CONFIG = LogConfig(segment_index_bytes=1024, segment_bytes=600)


def restarted(damage: bytes | None, age_ms: int) -> Rig:
    """Three segments with records of this age; the newest time in the index of the first begins with `damage`."""
    rig = Rig(Machine(1), CONFIG)
    rig.now_ms = rig.machine.clock.wall_ms()
    for _ in range(9):
        rig.append(b"v" * 100, timestamp=rig.now_ms - age_ms)
    rig.stop()
    path = rig.log.segments.first.path(".timeindex")
    rig.start()
    if damage is not None:
        rig.machine.disk.damage(path, 0, damage)
    return rig


def test_what_only_the_index_calls_old_stays_and_the_index_is_rebuilt() -> None:
    rig = restarted(bytes(4), age_ms=1000)
    for _ in range(2):
        assert rig.retain(rig.now_ms, 9) == 0
    reasons = [str(fields["reason"]) for event, fields in rig.events if event == "index_rebuilt"]
    assert len(reasons) == 1
    assert reasons[0].startswith(rig.log.segments.first.path(".timeindex"))
    assert len(rig.values()) == 9


def test_what_is_old_by_its_batches_goes() -> None:
    rig = restarted(None, age_ms=8 * DAY_MS)
    assert rig.retain(rig.now_ms, 9) == 3


def test_a_damaged_segment_is_examined_before_it_goes() -> None:
    """It is not kept for ever: there may be no replica to repair it from."""
    rig = restarted(None, age_ms=8 * DAY_MS)
    segment = rig.log.segments.first
    rig.machine.disk.damage(segment.path(".log"), 16, b"\1")  # the magic byte of the first batch
    assert rig.retain(rig.now_ms, 9) == 0
    assert segment in rig.log.damaged_segments
    assert rig.retain(rig.now_ms, 9) == 3


@pytest.mark.parametrize("flipped", [(0, b"\x80"), (35 + 1, b"\x10")], ids=["base offset", "largest timestamp"])
def test_a_damaged_header_does_not_end_retention_nor_reach_an_index(flipped: tuple[int, bytes]) -> None:
    """The indexes were rebuilt from headers whose CRC was not checked: an error that ended the node, or a false time
    that kept the segment for ever.
    """
    rig = Rig(Machine(1), CONFIG)
    rig.now_ms = rig.machine.clock.wall_ms()
    for i in range(9):
        rig.append(b"v" * 100, timestamp=rig.now_ms - 8 * DAY_MS + i)
    rig.stop()
    rig.start()
    segment = rig.log.segments.first
    newest = segment.max_timestamp
    rig.machine.disk.damage(segment.path(".log"), segment.size_bytes * 2 // 3 + flipped[0], flipped[1])
    maintenance = maintenance_of(rig)
    assert rig.machine.run(maintenance.retain()) == 0
    assert segment in rig.log.damaged_segments
    assert segment.max_timestamp == newest
    assert rig.machine.run(maintenance.retain()) == 3


def test_a_full_index_that_ends_before_the_largest_timestamp_keeps_no_segment_for_ever() -> None:
    """After `segment.index.bytes` was lowered and the indexes were rebuilt."""
    config = replace(CONFIG, index_interval_bytes=100, segment_bytes=100_000)
    rig = Rig(Machine(1), config)
    for i in range(60):
        rig.append(b"x" * 150, timestamp=1000 + i * 100)
    rig.do(rig.log.roll_now)
    rig.append(b"y", timestamp=2_000_000)
    rig.sync()
    rig.config = replace(config, segment_index_bytes=240, retention_ms=1000)
    rig.crash()
    rig.machine.run(rig.directory.checkpoint())
    rig.stop()
    rig.start()
    assert rig.log.segments.first.time_index.is_full
    end = rig.log.log_end_offset
    assert [rig.retain(1_500_000, end, 1e6) for _ in range(3)] == [0, 1, 0]


def test_records_without_timestamps_go_by_the_time_of_their_file() -> None:
    """They kept the partition's later segments from their deletion for ever."""
    rig = Rig(Machine(1), CONFIG)
    before_ms = rig.machine.clock.wall_ms()
    for timestamp in (-1, 1000):
        for _ in range(9):
            rig.append(b"v" * 100, timestamp=timestamp)
    rig.stop()
    rig.start()
    after_ms = rig.machine.clock.wall_ms()
    assert rig.retain(before_ms + 7 * DAY_MS, 18) == 0
    assert rig.retain(after_ms + 7 * DAY_MS + 1, 18) == 6


def test_the_file_of_an_empty_log_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of them the process had no descriptors left, and the directory went offline."""
    rig = Rig(Machine(1), CONFIG)
    rig.stop()
    rig.start()
    opened, open_file = list[str](), rig.machine.fs.open

    def recording(path: str, *, create: bool = False) -> File:
        opened.append(path)
        return open_file(path, create=create)

    monkeypatch.setattr(rig.machine.fs, "open", recording)
    assert rig.retain(rig.machine.clock.wall_ms() + 8 * DAY_MS, 0) == 0
    assert [path for path in opened if path.endswith(".log")] == []


def committed(log: Log) -> Offset:
    return log.durability.synced_end


def maintenance_of(rig: Rig) -> Maintenance:
    machine = rig.machine
    cleaner = Cleaner(machine.fs, rig.directory, machine.clock, machine.workers, rig.probe)
    return Maintenance(rig.directory, cleaner, machine.clock, committed, MaintenanceConfig())


def cut_index(rig: Rig) -> None:
    """Of the first segment: by a byte, so that it does not end with an entry."""
    node = rig.machine.disk.find(rig.log.segments.first.path(".timeindex"))
    assert isinstance(node, FileNode)
    node.cache.resize(11)
    node.platter.resize(11)


def test_an_index_of_impossible_length_is_rebuilt_and_retention_goes_on() -> None:
    """It ended the node, at every start."""
    rig = restarted(None, age_ms=8 * DAY_MS)
    cut_index(rig)
    maintenance = maintenance_of(rig)
    assert [rig.machine.run(maintenance.retain()) for _ in range(2)] == [0, 3]
    assert "index_rebuilt" in [event for event, _ in rig.events]


def test_an_index_of_impossible_length_is_rebuilt_and_its_log_is_compacted() -> None:
    rig = restarted(None, age_ms=1000)
    cut_index(rig)
    rig.log.config = replace(CONFIG, cleanup_compact=True, min_cleanable_dirty_ratio=0.0)
    rig.machine.run(rig.directory.checkpoint())
    cleaner = maintenance_of(rig)._cleaner
    assert rig.machine.run(cleaner.clean_filthiest(committed)) is None
    assert rig.machine.run(cleaner.clean_filthiest(committed)) is not None


@pytest.mark.parametrize("work", ["retain", "clean"])
def test_an_index_that_cannot_be_read_takes_the_directory_offline(work: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = restarted(None, age_ms=1000)
    rig.log.config = replace(CONFIG, cleanup_compact=True)
    maintenance = maintenance_of(rig)

    def failing(index: TimeIndex) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(TimeIndex, "last", failing)

    async def round_() -> object:
        cleaner = maintenance._cleaner
        return await (maintenance.retain() if work == "retain" else cleaner.clean_filthiest(committed))

    with pytest.raises(StorageError, match="Input/output error"):
        rig.machine.run(round_())
    assert rig.directory.failure is not None


def test_a_node_stops_despite_an_index_of_impossible_length() -> None:
    rig = restarted(None, age_ms=1000)
    cut_index(rig)
    with suppress(DamagedFileError):
        rig.machine.run(rig.log.truncate(Offset(2)))  # so that it is the active segment's
    rig.stop()
    rig.start()
    assert rig.values()


def test_a_log_that_is_removed_during_a_round_does_not_end_retention() -> None:
    rig = restarted(None, age_ms=8 * DAY_MS)
    other = TopicPartition("another", PartitionId(0))  # its turn comes later

    async def round_() -> int:
        await rig.directory.create_log(other, CONFIG)
        retaining = asyncio.get_running_loop().create_task(maintenance_of(rig).retain())
        await asyncio.sleep(0)
        await rig.directory.remove_log(other)
        return await retaining

    assert rig.machine.run(round_()) == 3
    assert rig.directory.failure is None
