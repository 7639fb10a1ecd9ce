"""Damage in segments that no recovery reads: never served, found where it is, what stands around it served."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pytest

from streamlog.errors import DamagedFileError
from streamlog.model import Offset
from streamlog.records import read_header, scan_headers
from streamlog.records.decode import decode_batch
from streamlog.records.header import HEADER_SIZE
from streamlog.sim.files.disk import DiskFaults
from streamlog.sim.machine import Machine
from streamlog.storage.log.damage import damage_at
from streamlog.storage.log.examination import _Examination
from streamlog.storage.log_config import LogConfig
from tests.storage.batches import batch
from tests.storage.rig import DIRECTORY, Rig

SEGMENT = f"{DIRECTORY}/topic-0/00000000000000000000.log"
INDEX = f"{DIRECTORY}/topic-0/00000000000000000000.index"
VALUES = [b"%03d" % i + bytes(57) for i in range(40)]


@pytest.fixture(params=[0.0, 1.0], ids=["page cache", "cold disk"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """Forty batches, ten or so a segment, epochs 0 and 1, stopped in order."""
    machine = Machine(1)
    machine.disk.faults = DiskFaults(cold=request.param)
    rig = Rig(machine, LogConfig(segment_bytes=1500, segment_index_bytes=1024, index_interval_bytes=300))
    for i, value in enumerate(VALUES):
        rig.append(value, epoch=i // 25)
    rig.sync()
    rig.stop()
    yield rig
    machine.close()


def header_at(rig: Rig, number: int) -> tuple[int, bytes]:
    """Position and bytes of the header of batch `number` of the first segment."""
    data = bytes(rig.machine.disk.find(SEGMENT).cache.read(1500, 0))  # type: ignore[union-attr]  # it is a file
    places = [position for position, _ in scan_headers(data, 0, len(data))]
    return places[number], data[places[number] : places[number] + HEADER_SIZE]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "base offset far": lambda h: struct.pack(">q", read_header(h, 0).base_offset + 100_000) + h[8:],
    "base offset near": lambda h: struct.pack(">q", read_header(h, 0).base_offset + 3) + h[8:],
    "base offset before": lambda h: struct.pack(">q", read_header(h, 0).base_offset - 1) + h[8:],
    "length too long": lambda h: h[:8] + struct.pack(">i", 50_000_000) + h[12:],
    "length short": lambda h: h[:8] + struct.pack(">i", 60) + h[12:],
    "length negative": lambda h: h[:8] + struct.pack(">i", -5) + h[12:],
    "epoch": lambda h: h[:12] + struct.pack(">i", 77) + h[16:],
    "epoch negative": lambda h: h[:12] + struct.pack(">i", -3) + h[16:],
    "magic": lambda h: h[:16] + b"\x07" + h[17:],
    "crc": lambda h: h[:17] + bytes([h[17] ^ 1]) + h[18:],
    "attributes": lambda h: h[:22] + bytes([h[22] ^ 8]) + h[23:],
    "zeros": lambda h: bytes(HEADER_SIZE),
}


def readable(rig: Rig, size_max: int = 1 << 20) -> tuple[dict[int, bytes | None], list[tuple[int, int]]]:
    """All that can be read, and the ranges that cannot."""
    found: dict[int, bytes | None] = {}
    missing: list[tuple[int, int]] = []
    offset = rig.log.log_start_offset
    while offset < rig.log.log_end_offset:
        try:
            data = rig.read(offset, size_max)
        except DamagedFileError:
            segment = rig.log.segments.at(rig.log.segments.index_of(offset))
            damaged = damage_at(rig.log, segment, offset)
            assert damaged is not None
            missing.append((damaged.begin_offset, damaged.end_offset))
            offset = damaged.end_offset
            continue
        assert data
        for position, header in scan_headers(data, 0, len(data)):
            found.update((r.offset, r.value) for r in decode_batch(data, position))
            offset = header.next_offset
    return found, missing


@pytest.mark.parametrize(("number", "size_max"), [(0, 1 << 20), (4, 1), (5, 300), (-1, 1 << 20)])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_header_is_never_served(rig: Rig, damage: str, number: int, size_max: int) -> None:
    position, header = header_at(rig, number)
    base = read_header(header, 0).base_offset
    rig.machine.disk.damage(SEGMENT, position, DAMAGES[damage](header))
    rig.start()
    assert rig.log.damage is None  # the start does not read it
    found, missing = readable(rig)
    assert all(VALUES[offset] == value for offset, value in found.items())
    assert len(missing) == 1
    begin, end = missing[0]
    assert begin <= base < end
    assert end - begin <= 4, "what stands behind the next entry of the index is served"
    assert {*range(40)} - found.keys() == {*range(begin, end)}
    reported = [fields for event, fields in rig.events if event == "damage_found"]
    assert [(one["path"], one["position"]) for one in reported] == [(SEGMENT, position)]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("number", [0, 4, -1])
def test_wherever_a_reader_begins(rig: Rig, damage: str, number: int) -> None:
    position, header = header_at(rig, number)
    rig.machine.disk.damage(SEGMENT, position, DAMAGES[damage](header))
    for offset in range(0, 15, 2):
        rig.start()
        try:
            data = rig.read(offset, 1)
        except DamagedFileError:
            pass
        else:
            first = read_header(data, 0)
            assert (first.base_offset, first.leader_epoch) == (offset, 0)
            assert VALUES[offset] in data
        rig.stop()


def test_a_flipped_bit_in_a_record(rig: Rig) -> None:
    position, _ = header_at(rig, 3)
    rig.machine.disk.damage(SEGMENT, position + HEADER_SIZE + 9, b"?")
    rig.start()
    found, missing = readable(rig)
    assert missing == [(3, 4)]
    assert len(found) == 39


def test_an_epoch_at_the_border_of_two(rig: Rig) -> None:
    """Neighbours of two epochs, and a number between them: the log's table decides."""
    rig.start()
    index = rig.log.segments.index_of(rig.log.epochs.entries[1].start_offset)
    segment = rig.log.segments.at(index)
    data = segment.file.pread(1500, 0)
    place = next(p for p, h in scan_headers(data, 0, len(data)) if h.base_offset == 25)
    path = segment.file.path
    rig.stop()
    rig.machine.disk.damage(path, place + 12, struct.pack(">i", 0))
    rig.start()
    _, missing = readable(rig)
    assert missing == [(25, 26)]


def test_a_batch_behind_missing_offsets_is_in_doubt(rig: Rig) -> None:
    """Two base offsets in a row are wrong (seed 1000852 of the cluster): the first batch stands where the second one
    was, which stands beyond the log. Whether offset 3 is missing, or what is at 4, no byte of this log shows.
    """
    for number, base in ((3, 4), (4, 1_004)):
        position, _ = header_at(rig, number)
        rig.machine.disk.damage(SEGMENT, position, struct.pack(">q", base))
    rig.start()
    found, missing = readable(rig)
    assert missing == [(3, 4), (4, 5)]
    assert 4 not in found
    (examined,) = rig.log.damaged_segments.values()
    assert [(one.begin_offset, one.end_offset, one.in_doubt) for one in examined.damages] == [
        (3, 4, False),
        (4, 5, True),
    ]
    rig.log.serves_doubtful = True
    assert readable(rig)[1] == [(3, 4)], "it is served where no replica can say more"


@pytest.mark.parametrize("size_max", [1, 1 << 20])
@pytest.mark.parametrize("moved", [2, 5])
def test_batches_between_missing_offsets_and_a_contradiction_are_in_doubt(rig: Rig, moved: int, size_max: int) -> None:
    """Base offsets in a row are each the next batch's (seed 2101304 of the cluster): behind the gap all join, up to
    a batch whose offset the one before has.
    """
    for number in range(3, 3 + moved):
        position, _ = header_at(rig, number)
        rig.machine.disk.damage(SEGMENT, position, struct.pack(">q", number + 1))
    rig.start()
    found, missing = readable(rig, size_max)
    assert missing == [(3, 4), (4, 4 + moved)]
    assert not found.keys() & set(range(3, 4 + moved))
    (examined,) = rig.log.damaged_segments.values()
    assert [(one.begin_offset, one.end_offset, one.in_doubt) for one in examined.damages] == [
        (3, 4, False),
        (4, 4 + moved, True),
    ]


@pytest.mark.parametrize("is_last", [False, True])
def test_a_batch_between_a_corrupt_one_and_missing_offsets_is_in_doubt(is_last: bool) -> None:
    """Its base offset is the last one of the corrupt batch before it (seed 2054517 of the cluster): that batch was
    fetched as if it had an offset less, and no replica has a batch that ends there.
    """
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024))
    for values in ((b"0", b"1"), (b"2",), *([(b"3",)] if not is_last else [])):
        rig.append(*values)
    rig.sync()
    segment = rig.log.segments.active
    path, data = segment.path(".log"), segment.file.pread(segment.size_bytes, 0)
    (_, corrupt), (position, moved), *_ = scan_headers(data, 0, len(data))
    assert (corrupt.next_offset, moved.base_offset) == (2, 2)
    rig.machine.disk.damage(path, HEADER_SIZE + 3, b"?")
    rig.machine.disk.damage(path, position, struct.pack(">q", 1))
    segment.verified.forget()
    found = rig.machine.run(rig.log.examine(segment))
    assert found is not None
    assert [(one.begin_offset, one.end_offset, one.in_doubt) for one in found.damages] == [
        (0, 1, False),
        (1, 2, True),
        (2, 3, False),
        *([] if is_last else [(3, 4, True)]),
    ]
    assert not found.intact
    rig.machine.close()


def test_batches_behind_a_corrupt_one_are_in_doubt_only_up_to_an_index_entry() -> None:
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, index_interval_bytes=300))
    for value in VALUES:
        rig.append(value)
    rig.sync()
    segment = rig.log.segments.active
    path, data = segment.path(".log"), segment.file.pread(segment.size_bytes, 0)
    places = [position for position, _ in scan_headers(data, 0, len(data))]
    confirmed = {entry.offset for entry in segment.offset_index.entries()}
    corrupt = next(number for number in range(1, 40) if number + 1 not in confirmed)
    first = min(offset for offset in confirmed if offset > corrupt)
    rig.machine.disk.damage(path, places[corrupt] + HEADER_SIZE + 3, b"?")
    rig.machine.disk.damage(path, places[35], bytes(HEADER_SIZE))
    segment.verified.forget()
    found = rig.machine.run(rig.log.examine(segment))
    assert found is not None
    assert corrupt + 1 < first < 35
    assert [one.begin_offset for one in found.damages] == [corrupt, 35]
    assert not any(one.in_doubt for one in found.damages)
    rig.machine.close()


@pytest.mark.parametrize("epoch", [0, 2, 9])
def test_an_epoch_of_a_batch_that_is_alone_in_its_segment(epoch: int) -> None:
    """No neighbour shows whether the batch or the table is wrong: it is reported, and its records can be served."""
    rig = Rig(Machine(1), LogConfig(segment_bytes=150, segment_index_bytes=1024))
    for i in range(8):
        rig.append(b"%d" % i * 40, epoch=i // 3)
    rig.sync()
    rig.stop()
    rig.machine.disk.damage(f"{DIRECTORY}/topic-0/{4:020}.log", 12, struct.pack(">i", epoch))
    rig.start()
    with pytest.raises(DamagedFileError, match=f"leader epoch {epoch}, but the log's table says 1"):
        rig.read(4)
    (found,) = rig.log.damaged_segments.values()
    assert [(one.begin_offset, one.end_offset, one.in_doubt) for one in found.damages] == [(4, 5, True)]
    rig.log.serves_doubtful = True
    assert rig.values() == [(i, b"%d" % i * 40) for i in range(8)]
    assert read_header(rig.read(4), 0).leader_epoch == 1, "the table's, by which followers are compared"
    # Served or not, it proves nothing about a follower's log, which would be cut there (seed 1102437 of the cluster).
    assert rig.machine.run(rig.log.is_damaged_since(Offset(4)))
    assert not rig.machine.run(rig.log.is_damaged_since(Offset(5)))
    rig.machine.close()


@pytest.mark.parametrize("is_last", [False, True])
def test_a_batch_in_doubt_behind_compacted_offsets(is_last: bool) -> None:
    """Read from the offset after the batch before, which compaction has removed: it was passed over, with all that
    follows in its segment.
    """
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, cleanup_compact=True))
    size = 0
    for base, epoch in ((0, 0), (2, 1), (3, 2), (4, 2), (5, 2)):
        if base == 5 and not is_last:
            rig.do(rig.log.roll_now)
        data = batch([b"%d" % base], base_offset=base, epoch=epoch)
        rig.do(lambda: rig.log.append_as_follower(data))  # noqa: B023  # called at once
        size = size or len(data)
    rig.stop()
    rig.machine.disk.damage(SEGMENT, size + 12, struct.pack(">i", 2))
    rig.start()
    assert read_header(rig.read(0), 0).base_offset == 0
    assert rig.read(1, end=2) == b""
    for offset in (1, 2):
        with pytest.raises(DamagedFileError, match="cannot be read at offset 2"):
            rig.read(offset)
    assert read_header(rig.read(3), 0).base_offset == 3
    rig.log.serves_doubtful = True
    assert [offset for offset, _ in rig.values()] == [0, 2, 3, 4, 5]
    rig.machine.close()


@pytest.mark.parametrize("keep", [0, 1, 60, 300, 1000])
def test_a_closed_segment_that_was_cut(rig: Rig, keep: int) -> None:
    file = rig.machine.disk.find(SEGMENT)
    file.cache.resize(keep)  # type: ignore[union-attr]  # it is a file
    file.platter.resize(keep)  # type: ignore[union-attr]
    rig.start()
    end = rig.log.segments.at(1).base_offset
    found, missing = readable(rig)
    assert len(missing) == 1
    assert missing[0][1] == end
    assert {*range(40)} - found.keys() == {*range(*missing[0])}
    assert all(VALUES[offset] == value for offset, value in found.items())


def test_a_segment_in_the_middle_that_is_gone(rig: Rig) -> None:
    rig.start()
    gone, following = rig.log.segments.at(1), rig.log.segments.at(2).base_offset
    path, base = gone.path(".log"), gone.base_offset
    rig.stop()
    rig.machine.disk.remove(path)
    rig.start()
    found, missing = readable(rig)
    assert missing == [(base, following)]
    assert len(found) == 40 - (following - base)


@pytest.mark.parametrize("at", range(0, 32, 3))
def test_a_damaged_index_is_rebuilt_and_nothing_is_lost(rig: Rig, at: int) -> None:
    content = bytes(rig.machine.disk.find(INDEX).cache.read(1000, 0))  # type: ignore[union-attr]  # it is a file
    if at >= len(content):
        pytest.skip("the index is shorter")
    rig.machine.disk.damage(INDEX, at, bytes([content[at] ^ 0x15]))
    for offset in range(0, 14, 2):
        rig.start()
        assert VALUES[offset] in rig.read(offset, 1)
        rig.stop()


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_an_index_that_lacks_entries_is_rebuilt(rig: Rig, kind: str) -> None:
    """Without them every lookup begins at the start of the segment, and retention by time never deletes it."""
    path = f"{DIRECTORY}/topic-0/{0:020}{kind}"
    size = rig.do(lambda: rig.machine.fs.open(path).size())
    rig.do(lambda: rig.machine.fs.open(path).truncate(0))
    rig.start()
    for segment in list(rig.log.segments):
        found = rig.machine.run(rig.log.examine(segment))
        assert found is not None
        assert not found.damages
    assert [fields["path"] for event, fields in rig.events if event == "index_rebuilt"] == [INDEX]
    rig.machine.run(rig.log.examine(rig.log.segments.first))
    assert len([event for event, _ in rig.events if event == "index_rebuilt"]) == 1
    assert rig.do(lambda: rig.machine.fs.open(path).size()) == size
    assert rig.log.segments.first.max_timestamp == (1000, 0)


def test_an_examination_keeps_no_more_than_the_indexes_hold(rig: Rig) -> None:
    """It kept the timestamp of each batch: gigabytes for a segment of small ones."""
    rig.start()
    examination = _Examination(rig.log, rig.log.segments.first, None)
    found = rig.machine.run(examination.run())
    assert not found.index_fault
    entries = sum(1 for _ in rig.log.segments.first.offset_index.entries())
    assert len(examination._places) == entries
    assert len(examination._times) <= entries


def test_what_this_process_has_written_is_not_read_again(rig: Rig) -> None:
    rig.start()
    rig.append(b"new", epoch=1)
    active = rig.log.segments.active
    assert active.verified.covers(active.size_bytes - 10, active.size_bytes)
    assert not rig.log.segments.first.verified.covers(0, 10)
    rig.read(0)
    assert rig.log.segments.first.verified.covers(0, rig.log.segments.first.size_bytes)


def test_a_first_segment_that_is_gone_is_not_taken_for_retention(rig: Rig) -> None:
    rig.machine.disk.remove(SEGMENT)
    rig.start()
    assert rig.log.damage is not None
    assert "offsets 0 to 11 are missing" in str(rig.log.damage)
    rig.machine.run(rig.log.discard_damage())
    assert rig.log.damage is None
    assert (rig.log.log_start_offset, rig.log.log_end_offset) == (0, 0)


def test_all_segments_that_are_gone(rig: Rig) -> None:
    for name in rig.do(lambda: rig.machine.fs.list(f"{DIRECTORY}/topic-0")):
        if name.endswith(".log"):
            rig.machine.disk.remove(f"{DIRECTORY}/topic-0/{name}")
    rig.start()
    assert "offsets 0 to 40 are missing" in str(rig.log.damage)


def test_a_log_that_retention_has_shortened_is_whole(rig: Rig) -> None:
    rig.start()
    rig.do(lambda: rig.log.advance_log_start(Offset(11)))
    assert rig.retain(None, 40) == 1
    rig.sync()
    rig.stop()
    rig.start()
    assert rig.log.damage is None
    assert rig.log.log_start_offset == 11
