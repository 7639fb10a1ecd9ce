"""Reading one log: whole batches below a bound, lookup by time (SEMANTICS 5)."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamlog.errors import CorruptMessageError, OffsetOutOfRangeError
from streamlog.model import LeaderEpoch, Offset
from streamlog.ports.posix_disk import PosixFileSystem
from streamlog.records import decode, read_header, scan_headers, validate
from streamlog.records.batch import encode_batch
from streamlog.records.decode import iter_batches
from streamlog.records.payload import unpacked_records
from streamlog.sim.machine import Machine
from streamlog.storage.log_config import LogConfig
from tests.cluster.mutants import reads_pass_over_what_does_not_fit
from tests.storage.batches import batch
from tests.storage.recovery.writer_process import open_directory
from tests.storage.rig import LIMITS, PARTITION, Rig


def test_reads_end_at_whole_batches_and_below_the_bound(rig: Rig) -> None:
    for i in range(100):
        rig.append(b"%03d" % i)
    size = len(rig.read(0, end=1))
    assert len(rig.read(0, size * 3 + 5)) == size * 3
    assert len(rig.read(10, 1)) == size  # at least one
    assert rig.read(10, end=10) == b""
    assert rig.read(100) == b""
    assert len(rig.read(95)) == size * 5
    for offset in (101, -1):
        with pytest.raises(OffsetOutOfRangeError) as e:
            rig.read(offset)
        assert (e.value.details["log_start"], e.value.details["log_end"]) == (0, 100)


@pytest.mark.parametrize("end", [None, 100])
def test_a_read_that_waits_for_the_disk_has_nothing_of_what_is_appended_meanwhile(rig: Rig, end: int | None) -> None:
    """Its end was the high watermark, and the log's own, when it began: a reader got what no follower had yet."""
    for i in range(100):
        rig.append(b"%03d" % i)
    rig.sync()
    rig.stop()
    rig.start()
    rig.machine.disk.faults.cold = 1.0
    log = rig.log

    async def story() -> bytes:
        bound = None if end is None else Offset(end)
        reading = asyncio.ensure_future(log.read(Offset(0), 1 << 20, end_offset=bound))
        await asyncio.sleep(0)
        data = batch([b"late"])
        log.append_as_leader(data, validate(data, 0, len(data), LIMITS, rig.now_ms), LeaderEpoch(0), rig.now_ms)
        return await reading

    got = rig.machine.run(story())
    assert [record.value for record in iter_batches(got, 0, len(got))][-1] == b"099"
    assert log.log_end_offset == 101


@pytest.mark.parametrize("cold", [0.0, 1.0])
def test_a_batch_that_does_not_fit_is_not_passed_over(rig: Rig, cold: float) -> None:
    """The next segment's would fit, and is none of it: found as records that a follower never got."""
    rig.append(b"large" * 100)
    rig.do(rig.log.roll_now)
    rig.append(b"small")
    rig.machine.disk.faults.cold = cold
    log, room = rig.log, 200
    assert rig.machine.run(log.read(Offset(0), room, end_offset=None, at_least_one=False)) == b""
    if not cold:
        assert rig.do(lambda: log.try_read(Offset(0), room, at_least_one=False)) == b""
    assert (
        read_header(rig.machine.run(log.read(Offset(1), room, end_offset=None, at_least_one=False)), 0).base_offset == 1
    )


@pytest.mark.parametrize("index_interval_bytes", [0, 150, 4096])
def test_lookup_by_timestamp_after_a_truncation(index_interval_bytes: int) -> None:
    """The time index lacks the batches since its last entry: their timestamps were forgotten."""
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, index_interval_bytes=index_interval_bytes))
    for i in range(10):
        rig.append(b"x" * 20, timestamp=9000 if i == 4 else 1000 + i)
    for end in (9, 5):
        rig.machine.run(rig.log.truncate(Offset(end)))
        assert rig.log.segments.active.max_timestamp == (9000, 4)
    for i in range(10):
        rig.append(b"x" * 20, timestamp=2000 + i)
    for timestamp in (1500, 2005, 9000):
        found = rig.machine.run(rig.log.offset_for_timestamp(timestamp))
        assert found is not None
        assert found.offset == 4
    rig.do(rig.log.roll_now)
    assert rig.log.segments.first.max_timestamp == (9000, 4)
    rig.machine.run(rig.log.truncate(Offset(4)))
    assert rig.log.segments.active.max_timestamp == (1003, 3)
    rig.machine.close()


def test_lookup_by_timestamp_finds_the_first_at_or_above() -> None:
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, segment_bytes=2000, index_interval_bytes=200))
    for i in range(100):
        rig.append(b"x" * 20, timestamp=1000 + 10 * i)

    def lookup(timestamp: int) -> int | None:
        found = rig.machine.run(rig.log.offset_for_timestamp(timestamp))
        return None if found is None else found.offset

    assert lookup(0) == 0
    assert [lookup(1000 + 10 * i) for i in range(100)] == list(range(100))
    assert lookup(1005) == 1
    assert lookup(1991) is None
    rig.machine.close()


@pytest.mark.parametrize("segment_bytes", [400, 1 << 20])
def test_the_largest_timestamp_is_that_of_a_record_above_the_log_start(segment_bytes: int) -> None:
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, segment_bytes=segment_bytes, index_interval_bytes=100))
    times = [90, 80, 70, 20, 60, 50, 60, 10, 30, 40, 5, 4, 6, 3, 2]
    for first in range(0, len(times), 3):
        rig.append_bytes(encode_batch([b"v"] * 3, timestamps=times[first : first + 3]))
    assert (len(rig.log.segments) > 1) is (segment_bytes == 400)
    for start in range(len(times)):
        rig.do(partial(rig.log.advance_log_start, Offset(start)))
        largest = rig.machine.run(rig.log.largest_timestamp())
        found = rig.machine.run(rig.log.offset_for_timestamp(largest))
        assert found is not None
        assert (found.offset, found.timestamp_ms) == (times.index(largest, start), max(times[start:]))
    rig.do(partial(rig.log.advance_log_start, Offset(len(times))))
    assert rig.machine.run(rig.log.largest_timestamp()) == -1
    rig.machine.close()


def test_lookup_by_timestamp_decodes_in_the_thread_that_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch may unpack to a million records."""
    threads: list[str] = []

    def unpacked(*batch: Any) -> bytes:
        threads.append(threading.current_thread().name)
        return unpacked_records(*batch)

    async def story() -> int:
        directory = await open_directory(PosixFileSystem(), str(tmp_path))
        log = await directory.create_log(PARTITION, LogConfig(segment_index_bytes=1024))
        data = batch([b"v"] * 100)
        log.append_as_leader(data, validate(data, 0, len(data), LIMITS, 0), LeaderEpoch(0), 0)
        monkeypatch.setattr(decode, "unpacked_records", unpacked)
        found = await log.offset_for_timestamp(1)
        await directory.close()
        return -1 if found is None else found.offset

    assert asyncio.run(story()) == 0
    assert threads
    assert threading.current_thread().name not in threads


@pytest.mark.parametrize("at_least_one", [True, False])
def test_a_read_of_any_size_passes_over_nothing(at_least_one: bool) -> None:
    """What does not fit ends the read; it does not go on in the next segment."""
    assert _passed_over(at_least_one) == []


def test_a_segment_without_the_batches_before_the_next_one_is_refused() -> None:
    """A lookup that finds too little is not taken for the end of a segment."""
    with reads_pass_over_what_does_not_fit(), pytest.raises(CorruptMessageError, match="next segment begins at 2"):
        _passed_over(at_least_one=False)


def _passed_over(at_least_one: bool) -> list[tuple[int, int]]:
    """Offset and size of each read that does not begin with the batch of its offset."""
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, segment_bytes=300))
    for i in range(9):
        rig.append(b"%d" % i * 50)
    rig.sync()
    found = []
    for offset in range(9):
        for size_max in range(1, 500, 20):
            data = rig.machine.run(rig.log.read(Offset(offset), size_max, at_least_one=at_least_one))
            offsets = [header.base_offset for _, header in scan_headers(data, 0, len(data))]
            if offsets != list(range(offset, offset + len(offsets))) or (at_least_one and not offsets):
                found.append((offset, size_max))
    return found
