"""The segments of one log: when they roll, their names and sizes (SEMANTICS 11)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from streamlog.errors import CorruptMessageError, MessageTooLargeError, StorageError
from streamlog.model import Offset
from streamlog.ports import File
from streamlog.records.held_batch import HeldBatch
from streamlog.sim.machine import Machine
from streamlog.storage.log import batch_lookup
from streamlog.storage.log_config import LogConfig
from streamlog.storage.producers.transaction_replay import aborted_in
from streamlog.storage.segments import index_rebuild
from streamlog.storage.segments.header_scan import Scanned, scan_file
from streamlog.storage.segments.index_rebuild import rebuild_indexes
from streamlog.storage.segments.scan import Scan
from streamlog.storage.segments.segment import Segment
from tests.storage.rig import Rig


def test_segments_roll_by_size_age_index_and_on_demand() -> None:
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=24, segment_bytes=1000, segment_ms=500, index_interval_bytes=1))
    rig.append(b"x" * 300)
    rig.append(b"x" * 300)
    assert [s.base_offset for s in rig.log.segments] == [0]
    rig.append(b"x" * 500)
    assert [s.base_offset for s in rig.log.segments] == [0, 2]
    rig.append(b"x", timestamp=1501)
    assert [s.base_offset for s in rig.log.segments] == [0, 2, 3]
    for _ in range(4):
        rig.append(b"x", timestamp=1501)
    assert len(rig.log.segments) == 5  # an index of 24 bytes has three places, a time index one
    rig.do(rig.log.roll_now)
    assert len(rig.log.segments) == 6
    assert rig.values()[-1] == (7, b"x")
    with pytest.raises(MessageTooLargeError):
        rig.append(b"x" * 1001)
    rig.machine.close()


def test_the_active_segment_rolls_by_the_settings_that_hold_now() -> None:
    """Its own were those at its creation; after a start, which comes before the topic's are known, the defaults."""
    rig = Rig(Machine(1))
    rig.append(b"x", timestamp=1000)
    rig.log.config = LogConfig(segment_index_bytes=1024, segment_ms=500)
    rig.do(lambda: rig.log.roll_if_due(1501, rig.machine.clock.monotonic() + 0.6))
    assert [s.base_offset for s in rig.log.segments] == [0, 1]
    rig.log.config = LogConfig(segment_index_bytes=1024, segment_bytes=300, index_interval_bytes=100)
    for _ in range(4):
        rig.append(b"x" * 50)
    assert [s.base_offset for s in rig.log.segments] == [0, 1, 3]
    rig.log.config = LogConfig(segment_index_bytes=1024, index_interval_bytes=100)
    for _ in range(4):
        rig.append(b"x")
    assert list(rig.log.segments.active.offset_index.entries())
    rig.machine.close()


def test_a_segment_of_old_records_stays_open_while_it_is_written() -> None:
    """An import of records that are older than segment.ms made a segment at each look, every 30 seconds."""
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, segment_ms=500))
    rig.append(b"x", timestamp=1000)
    appended_s = rig.machine.clock.monotonic()
    rig.do(lambda: rig.log.roll_if_due(1_000_000, appended_s + 0.5))
    assert [s.base_offset for s in rig.log.segments] == [0]
    rig.do(lambda: rig.log.roll_if_due(1_000_000, appended_s + 0.6))
    assert [s.base_offset for s in rig.log.segments] == [0, 1]
    rig.append(b"x", timestamp=1000)
    rig.stop()
    rig.start()  # when it was appended is not known
    rig.do(lambda: rig.log.roll_if_due(1_000_000, appended_s))
    assert [s.base_offset for s in rig.log.segments] == [0, 1, 2]
    rig.machine.close()


def test_segments_that_are_removed_while_the_last_batches_are_read_are_not_opened_again() -> None:
    """The files would be there again, empty: an index that knows its entries cannot map them (seed 2018216)."""
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=24, segment_bytes=1000, file_delete_delay_ms=0))
    for _ in range(4):
        rig.append(b"x" * 600)
    log, read = rig.log, batch_lookup._read

    async def removing(segment: Segment, scan: Callable[[], Scan[list[HeldBatch]]]) -> list[HeldBatch]:
        found = await read(segment, scan)
        if segment is log.segments.active:
            log.remove_oldest(3)
            await rig.directory.reaper.remove_due()
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_lookup, "_read", removing)
        held = rig.machine.run(batch_lookup.last_batches(log, 5))
    assert [one.base_offset for one in held] == [3]
    names = rig.do(lambda: rig.machine.fs.list(log.directory))
    assert [name for name in names if name.endswith(".deleted")] == []
    rig.machine.close()


def test_the_last_batches_of_a_log_that_was_removed_are_not_read() -> None:
    """At its paths may be those of a log that was created since, whose index would be mapped (seed 2060556)."""
    rig = Rig(Machine(1), LogConfig())
    rig.append(b"x")
    log = rig.log

    async def remove() -> None:
        await rig.directory.remove_log(log.partition)
        await rig.directory.create_log(log.partition, rig.config)

    rig.machine.run(remove())
    for reading in (batch_lookup.last_batches(log, 5), batch_lookup.batches_between(log, Offset(0), Offset(1), 5)):
        with pytest.raises(StorageError):
            rig.machine.run(reading)
    rig.append(b"y")
    rig.do(rig.log.roll_now)  # trims the index
    rig.machine.close()


@pytest.mark.parametrize("step", ["indexes", "transactions"])
def test_a_segment_that_is_scanned_for_its_indexes_is_not_idle(step: str) -> None:
    """Housekeeping closed its files: the scan failed as if the disk had, and the whole directory went offline."""
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024))
    rig.append(b"x")
    rig.do(rig.log.roll_now)
    log, segment = rig.log, rig.log.segments.first

    async def scan_and_keep_house() -> None:
        if step == "indexes":
            scan: asyncio.Future[object] = asyncio.ensure_future(rebuild_indexes(segment))
        else:
            scan = asyncio.ensure_future(aborted_in(log.fs, log.directory, log.segments, segment))
        await asyncio.sleep(0)
        log.release_idle()
        log.release_idle()
        await scan

    rig.machine.run(scan_and_keep_house())
    assert rig.values() == [(0, b"x")]
    rig.machine.close()


@pytest.mark.parametrize("is_rolled", [False, True])
def test_a_truncation_ends_the_rebuild_of_indexes(is_rolled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read before it, and noted after it, is no longer in the segment, whether it is the active one or closed
    again.
    """
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, segment_bytes=2000, index_interval_bytes=100))
    for i in range(40):
        rig.append(b"x" * 40, timestamp=1000 + i)
    rig.sync()
    log, segment = rig.log, rig.log.segments.first

    async def scan(file: File, start: int, end: int, *, check_crc: bool) -> AsyncIterator[list[Scanned]]:
        async for batches in scan_file(file, start, end, check_crc=check_crc):
            await log.truncate(Offset(3))
            if is_rolled:
                log.roll_now()
            yield batches

    monkeypatch.setattr(index_rebuild, "scan_file", scan)
    rig.machine.run(rebuild_indexes(segment))
    assert segment.max_timestamp == (1002, 2)
    assert segment.offset_index.last().offset <= 2
    assert (segment.tail is None) is is_rolled
    for _ in range(5):
        rig.append(b"y" * 40, timestamp=2000, epoch=1)
    assert [offset for offset, _ in rig.values()] == list(range(8))
    rig.machine.close()


@pytest.mark.parametrize("at", [20, 39], ids=["with an index entry", "with the largest timestamp only"])
def test_rebuilt_indexes_end_before_a_base_offset_outside_of_the_segment(at: int) -> None:
    """It is outside of the CRC. A truncation that had to rebuild an index failed with a ValueError."""
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, index_interval_bytes=1))
    for i in range(40):
        rig.append(b"x" * 40, timestamp=1000 + i)
    rig.sync()
    rig.do(rig.log.roll_now)
    segment = rig.log.segments.first
    rig.machine.disk.damage(segment.path(".log"), segment.size_bytes // 40 * at, b"\x80")
    with pytest.raises(CorruptMessageError, match="segment of base offset 0"):
        rig.machine.run(rebuild_indexes(segment))
    assert segment.max_timestamp == (1000 + at - 1, at - 1)
    assert segment.offset_index.last().offset == at - 1
    rig.machine.close()


def test_files_are_named_and_preallocated_as_kafkas() -> None:
    rig = Rig(Machine(1), LogConfig())
    rig.append(b"x")
    directory = rig.log.directory
    names = rig.do(lambda: rig.machine.fs.list(directory))
    assert names == [f"{0:020d}.index", f"{0:020d}.log", f"{0:020d}.timeindex"]

    def size(name: str) -> int:
        file = rig.machine.fs.open_readonly(f"{directory}/{name}")
        return file.size()

    assert rig.do(lambda: size(names[0])) == 10485760
    assert rig.do(lambda: size(names[2])) == 10485756
    rig.machine.run(rig.directory.checkpoint())
    assert "leader-epoch-checkpoint" in rig.do(lambda: rig.machine.fs.list(directory))
    rig.machine.close()
