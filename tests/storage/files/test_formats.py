"""Golden bytes of the small files, and fuzzing of everything that reads them: no error but ours, nothing unbounded."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import DamagedFileError
from streamlog.model import BrokerId, LeaderEpoch, Offset, PartitionId, ProducerEpoch, ProducerId, TopicPartition
from streamlog.sim.machine import Machine
from streamlog.storage.files import names
from streamlog.storage.files.checkpoints import (
    EpochEntry,
    format_epochs,
    format_offsets,
    parse_epochs,
    parse_offsets,
)
from streamlog.storage.files.meta_properties import MetaProperties, format_meta, parse_meta
from streamlog.storage.producers.producer_states import BatchSeen
from streamlog.storage.producers.producer_states import ProducerStateEntry as Entry
from streamlog.storage.producers.snapshot_format import format_snapshot, parse_snapshot
from streamlog.storage.segments.offset_index import OffsetIndex
from streamlog.storage.segments.time_index import TimeIndex

PATH = "/data/file"


def test_offset_checkpoint_is_kafkas_text() -> None:
    offsets = {TopicPartition("b", PartitionId(10)): Offset(7), TopicPartition("a-b", PartitionId(2)): Offset(0)}
    content = format_offsets(offsets)
    assert content == b"0\n2\na-b 2 0\nb 10 7\n"
    assert parse_offsets(PATH, content) == offsets


def test_epoch_checkpoint_is_kafkas_text() -> None:
    entries = [EpochEntry(LeaderEpoch(0), Offset(0)), EpochEntry(LeaderEpoch(5), Offset(120))]
    assert format_epochs(entries) == b"0\n2\n0 0\n5 120\n"
    assert parse_epochs(PATH, format_epochs(entries)) == entries


def test_producer_snapshot_is_kafkas_bytes() -> None:
    """ProducerStateManager's schema: int16 version, uint32 crc, then an array of 50-byte entries."""
    seen = BatchSeen(first_sequence=3, last_sequence=5, last_offset=Offset(12), offset_delta=2, timestamp_ms=99)
    content = format_snapshot([Entry(ProducerId(9), ProducerEpoch(1), [seen], 99)])
    body = struct.pack(">iqhiqiqiq", 1, 9, 1, 5, 12, 2, 99, -1, -1)
    assert content == struct.pack(">hI", 1, crc32c(body)) + body
    (read,) = parse_snapshot(PATH, content)
    assert (read.producer_id, read.epoch, read.batches, read.timestamp_ms) == (9, 1, [seen], 99)


def test_index_entries_are_kafkas_bytes() -> None:
    machine = Machine(1)

    async def fill() -> tuple[bytes, bytes]:
        machine.fs.mkdir("/data")
        index = OffsetIndex(machine.fs, "/data/i", Offset(1000), 100)
        index.append(Offset(1048), 4156)
        index.append(Offset(1048), 9999)  # does not rise: left out
        times = TimeIndex(machine.fs, "/data/t", Offset(1000), 100)
        times.maybe_append(1557393691677, Offset(1048))
        times.maybe_append(1557393691677, Offset(1050))
        return (
            machine.fs.open("/data/i").pread(100, 0),
            machine.fs.open("/data/t").pread(100, 0),
        )

    index, times = machine.run(fill())
    assert index == struct.pack(">ii", 48, 4156)
    assert times == struct.pack(">qi", 1557393691677, 48)
    machine.close()


@pytest.mark.parametrize(
    ("base", "kind", "name"),
    [(0, names.LOG, "00000000000000000000.log"), (2**63 - 1, names.TIME_INDEX, "09223372036854775807.timeindex")],
)
def test_segment_names(base: int, kind: str, name: str) -> None:
    assert names.file_name(base, kind) == name
    assert names.parse_file_name(name) == (base, kind, "")
    assert names.parse_file_name(name + names.DELETED) == (base, kind, names.DELETED)
    assert names.parse_file_name("x" + name) is None


@given(st.binary(max_size=200) | st.text("0123456789 -\nab", max_size=80).map(str.encode))
def test_checkpoints_never_raise_anything_but_damage(content: bytes) -> None:
    for parse in (parse_offsets, parse_epochs, parse_meta):
        with suppress(DamagedFileError):
            parse(PATH, content)


@pytest.mark.parametrize("content", [b"0\n1\nt 0 " + b"9" * 5000, b"9" * 5000 + b"\n0\n", b"0\n" + b"1" * 5000 + b"\n"])
def test_numbers_too_long_to_read_are_damage(content: bytes) -> None:
    for parse in (parse_offsets, parse_epochs):
        with pytest.raises(DamagedFileError):
            parse(PATH, content)


@pytest.mark.parametrize("line", [b"2147483648 0", b"0 9223372036854775808"])
def test_numbers_that_an_epoch_or_an_offset_cannot_be_are_damage(line: bytes) -> None:
    with pytest.raises(DamagedFileError, match="not `epoch offset`"):
        parse_epochs(PATH, b"0\n1\n" + line + b"\n")
    with pytest.raises(DamagedFileError, match="not `topic partition offset`"):
        parse_offsets(PATH, b"0\n1\nt " + line + b"\n")


@given(
    st.dictionaries(
        st.tuples(st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 10**9)),
        st.integers(0, 2**63 - 1),
    )
)
def test_offset_checkpoints_round_trip(entries: dict[tuple[str, int], int]) -> None:
    offsets = {TopicPartition(t, PartitionId(p)): Offset(o) for (t, p), o in entries.items()}
    assert parse_offsets(PATH, format_offsets(offsets)) == offsets


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1), st.integers(0, 2**40)
        ),
        unique_by=lambda entry: entry[0],
    )
)
def test_snapshots_round_trip(entries: list[tuple[int, int, int, int]]) -> None:
    producers = [
        Entry(ProducerId(i), ProducerEpoch(e), [BatchSeen(s, s, Offset(o), 0, 5)], 5) for i, e, s, o in entries
    ]
    read = parse_snapshot(PATH, format_snapshot(producers))
    assert read == sorted(producers, key=lambda p: p.producer_id)


def test_a_snapshot_keeps_all_batches_that_a_retry_may_repeat() -> None:
    def seen(sequence: int) -> BatchSeen:
        return BatchSeen(sequence, sequence, Offset(100 + sequence), 0, 9)

    producers = [Entry(ProducerId(n), ProducerEpoch(0), [seen(s) for s in range(n)], 9) for n in range(1, 6)]
    content = format_snapshot(producers)
    assert [p.batches for p in parse_snapshot(PATH, content)] == [p.batches for p in producers]
    for end in range(len(content)):
        with pytest.raises(DamagedFileError):
            parse_snapshot(PATH, content[:end])


@given(st.binary(max_size=200))
def test_random_bytes_are_no_snapshot(content: bytes) -> None:
    with pytest.raises(DamagedFileError):
        parse_snapshot(PATH, content)


@given(st.integers(0, 500), st.integers(1, 255))
def test_any_damage_to_a_snapshot_is_found(at: int, flip: int) -> None:
    seen = BatchSeen(0, 0, Offset(1), 0, 1)
    content = bytearray(format_snapshot([Entry(ProducerId(i), ProducerEpoch(0), [seen], 1) for i in range(5)]))
    content[at % len(content)] ^= flip
    with pytest.raises(DamagedFileError):
        parse_snapshot(PATH, bytes(content))


def test_a_snapshot_that_announces_two_thousand_million_producers_allocates_nothing() -> None:
    body = struct.pack(">i", 2**31 - 1)
    with pytest.raises(DamagedFileError, match="announced"):
        parse_snapshot(PATH, struct.pack(">hI", 1, crc32c(body)) + body)


@given(st.binary(max_size=300), st.integers(0, 2**40), st.integers(0, 10**6))
def test_an_index_of_random_bytes_gives_answers_or_damage(content: bytes, base: int, offset: int) -> None:
    machine = Machine(1)

    async def look() -> None:
        machine.fs.mkdir("/data")
        for name in ("i", "t"):
            machine.fs.open(f"/data/{name}", create=True).pwritev([content], 0)
        index = OffsetIndex(machine.fs, "/data/i", Offset(base), 1024)
        times = TimeIndex(machine.fs, "/data/t", Offset(base), 1024)
        for call in (
            lambda: index.lookup(Offset(base + offset)),
            lambda: index.lookup_position(offset),
            lambda: list(index.entries()),
            lambda: index.check(10_000),
            lambda: times.lookup(offset),
            lambda: list(times.entries()),
            times.check,
        ):
            with suppress(DamagedFileError):
                call()

    machine.run(look())
    machine.close()


def test_meta_properties_are_kafkas_text() -> None:
    meta = MetaProperties(node_id=BrokerId(3), directory_id="q" * 22, cluster_id="c")
    assert format_meta(meta) == b"version=1\ncluster.id=c\ndirectory.id=" + b"q" * 22 + b"\nnode.id=3\n"
    assert parse_meta(PATH, b"#\n#Mon\nnode.id=3\ndirectory.id=" + b"q" * 22 + b"\nversion=1\ncluster.id=c\n") == meta
