"""Truncating one log at either end (SEMANTICS 5, 11)."""

from __future__ import annotations

import contextlib
import struct

import pytest

from streamlog.errors import DamagedFileError, OffsetOutOfRangeError
from streamlog.model import Offset
from streamlog.records import read_header, scan_headers
from streamlog.sim.machine import Machine
from streamlog.sim.process import Killed
from streamlog.storage.log_config import LogConfig
from tests.storage.rig import DIRECTORY, Rig


def test_truncation_cuts_and_the_log_goes_on(rig: Rig) -> None:
    for i in range(10):
        rig.append(b"%d" % i, epoch=i // 4)
    rig.sync()
    rig.machine.run(rig.log.truncate(Offset(6)))
    assert rig.log.log_end_offset == 6
    assert rig.log.ackable_end == 6
    assert rig.log.epochs.latest == 1
    rig.append(b"new", epoch=7)
    assert rig.values()[-2:] == [(5, b"5"), (6, b"new")]
    rig.sync()
    rig.power_cut()
    assert rig.values()[-2:] == [(5, b"5"), (6, b"new")]


def test_a_straddling_batch_goes_as_a_whole(rig: Rig) -> None:
    rig.append(b"0", b"1")
    rig.append(b"2", b"3", b"4")
    rig.machine.run(rig.log.truncate(Offset(3)))
    assert rig.log.log_end_offset == 2


@pytest.mark.parametrize("shift", [1000, 1, -1, 1 << 40])
@pytest.mark.parametrize("number", [0, 1, 3])
@pytest.mark.parametrize("index_interval_bytes", [0, 4096])
def test_no_hole_is_left_where_a_base_offset_has_moved(index_interval_bytes: int, number: int, shift: int) -> None:
    """Seed 9161 of the simulation: nothing has read the damage when the leader's history is shorter. It is
    cut off, or a later read reports it.
    """
    config = LogConfig(segment_index_bytes=1024, segment_bytes=600, index_interval_bytes=index_interval_bytes)
    rig = Rig(Machine(1), config)
    for i in range(20):
        rig.append(b"%d" % i * 50)
    rig.sync()
    rig.stop()
    path = f"{DIRECTORY}/topic-0/00000000000000000000.log"
    data = bytes(rig.machine.disk.find(path).cache.read(600, 0))  # type: ignore[union-attr]  # it is a file
    places = [position for position, _ in scan_headers(data, 0, len(data))]
    position = places[number]
    base = read_header(data, position).base_offset
    rig.machine.disk.damage(path, position, struct.pack(">q", max(0, base + shift)))
    rig.start()
    rig.machine.run(rig.log.truncate(Offset(base + 1)))
    end = rig.log.log_end_offset
    assert end in (base, base + 1)
    while rig.log.log_end_offset < 10:
        rig.append(b"%d" % rig.log.log_end_offset * 50, epoch=1)
    try:
        assert [offset for offset, _ in rig.values()] == list(range(10))
    except DamagedFileError:
        assert end == base + 1, "the damaged batch is still there, and is reported"
    rig.machine.close()


@pytest.mark.parametrize("kind", ["index", "timeindex", "txnindex"])
def test_a_damaged_index_is_rebuilt_before_anything_is_cut(kind: str) -> None:
    """The cut failed half-way: the batches were gone, the log's end and its epochs as before."""
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, segment_bytes=600, index_interval_bytes=100))
    for i in range(20):
        rig.append(b"%d" % i * 50, timestamp=1000 + i)
    rig.stop()
    path = f"{DIRECTORY}/topic-0/00000000000000000000.{kind}"
    rig.do(lambda: rig.machine.fs.open(path, create=True).truncate(11))
    rig.start()
    rig.machine.run(rig.log.truncate(Offset(3)))
    assert rig.log.log_end_offset == 3
    rig.append(b"new", epoch=1)
    assert [offset for offset, _ in rig.values()] == [0, 1, 2, 3]
    assert [fields["path"] for event, fields in rig.events if event == "index_rebuilt"] == [path]
    found = rig.machine.run(rig.log.offset_for_timestamp(1001))
    assert found is not None
    assert found.offset == 1
    rig.machine.close()


def test_truncation_across_segments_and_to_the_start() -> None:
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, segment_bytes=300))
    for i in range(20):
        rig.append(b"%d" % i * 50)
    rig.sync()
    rig.machine.run(rig.log.truncate(Offset(5)))
    assert [offset for offset, _ in rig.values()] == [0, 1, 2, 3, 4]
    rig.machine.run(rig.log.restart_at(Offset(100)))
    assert (rig.log.log_start_offset, rig.log.log_end_offset) == (100, 100)
    rig.append(b"again")
    rig.sync()
    rig.power_cut()
    assert rig.values() == [(100, b"again")]
    rig.machine.close()


def test_a_sync_does_not_count_across_a_truncation(rig: Rig) -> None:
    """What was synced at an offset is not what stands there after a cut and a new append."""
    rig.append(b"old")
    log = rig.log
    ticket = rig.do(log.durability.begin)
    rig.machine.run(log.truncate(Offset(0)))
    rig.append(b"new")
    rig.do(lambda: log.durability.end(ticket))
    assert log.ackable_end == 0


def test_delete_records_moves_the_start(rig: Rig) -> None:
    for i in range(10):
        rig.append(b"%d" % i)
    rig.do(lambda: rig.log.advance_log_start(Offset(4)))
    assert rig.values()[0] == (4, b"4")
    with pytest.raises(OffsetOutOfRangeError):
        rig.read(3)
    rig.sync()
    rig.machine.run(rig.directory.checkpoint())
    rig.power_cut()
    assert rig.log.log_start_offset == 4


def test_a_cut_that_a_power_cut_halves_leaves_no_hole() -> None:
    """The newest segments go first: else an older one could be gone and a newer one be taken for the log's start."""
    for changes in range(20):
        rig = Rig(Machine(changes), LogConfig(segment_index_bytes=1024, segment_bytes=150))
        for i in range(6):
            rig.append(b"%d" % i * 50)
        rig.sync()
        rig.machine.cut_after(changes)
        with contextlib.suppress(Killed):
            rig.machine.run(rig.log.restart_at(Offset(3)))
        rig.machine.cut_after(None)
        rig.power_cut()
        found = [offset for offset, _ in rig.values()]
        assert found == list(range(rig.log.log_start_offset, rig.log.log_end_offset))
        rig.machine.close()


def test_a_cut_inside_a_batch_lowers_the_recovery_point_to_where_the_log_ends(rig: Rig) -> None:
    rig.append(b"0", b"1")
    rig.append(b"2", b"3", b"4")
    rig.sync()
    rig.machine.run(rig.directory.checkpoint())
    rig.machine.run(rig.log.truncate(Offset(4)))
    rig.crash()
    assert rig.log.damage is None
    assert rig.log.log_end_offset == 2
