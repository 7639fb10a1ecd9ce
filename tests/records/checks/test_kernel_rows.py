"""The kernel's `rows` (kernel/streamlog_kernel.c) reads what `record_loop` reads, to the type, and nothing else."""

from __future__ import annotations

import gc
import itertools
import operator
import random
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings

from streamlog.client.consumer.consumer_records import ConsumerRecord
from streamlog.errors import InvalidRecordError
from streamlog.records import Record, TimestampType, encode_batch, iter_fields, read_header
from streamlog.records.checks import kernel
from streamlog.records.decode import iter_batch, iter_rows
from streamlog.records.header import BatchHeader
from streamlog.records.payload import unpacked_records
from streamlog.records.record_loop import read_records
from tests.records.checks.checked_batches import BOUND, record, varied
from tests.records.checks.kernel_build import built_kernel
from tests.records.damage import mutated
from tests.records.strategies import NOW_MS, Columns, columns

BATCH = encode_batch([b"v"], timestamps=NOW_MS)
INT64_MAX = 2**63 - 1


def kernel_rows() -> Callable[..., Iterator[Any] | None]:
    found: Callable[..., Iterator[Any] | None] = built_kernel().rows
    return found


def header_of(count: int, **fields: Any) -> BatchHeader:
    return read_header(BATCH, 0)._replace(
        **{"record_count": count, "last_offset_delta": count - 1, "base_timestamp": NOW_MS} | fields
    )


def by_python(raw: bytes, header: BatchHeader) -> list[Record] | None:
    try:
        return read_records(raw, header)
    except InvalidRecordError:
        return None


def by_kernel(raw: bytes, header: BatchHeader, head: tuple[Any, ...] = (), kind: type = Record) -> list[Any] | None:
    appended = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    time = header.max_timestamp if appended else header.base_timestamp
    count, first, last_delta = header.record_count, header.base_offset, header.last_offset_delta
    rows = kernel_rows()(raw, count, first, last_delta, time, appended, head, kind)
    return None if rows is None else list(rows)


def same(found: list[Any] | None, expected: list[Record] | None) -> bool:
    """To the type of each object: repr shows that of the records, of all fields, and of headers."""
    return found == expected and repr(found) == repr(expected)


@given(drawn=columns())
@settings(max_examples=150)
def test_of_valid_batches(drawn: Columns) -> None:
    batch = drawn.encoded()
    header = read_header(batch, 0)
    raw = unpacked_records(batch, 0, header, 2**24)
    assert same(by_kernel(raw, header), read_records(raw, header))
    rows = by_kernel(raw, header, ("topic", 3), ConsumerRecord)
    assert rows is not None
    assert all(type(row) is ConsumerRecord for row in rows)
    assert rows == [("topic", 3, *fields) for fields in drawn.records()]


@pytest.mark.parametrize("seed", range(16))
def test_of_mutated_records_it_accepts_those_that_python_accepts(seed: int) -> None:
    rng = random.Random(seed)
    accepted = refused = 0
    for _ in range(400):
        batch = varied(rng)
        header = read_header(batch, 0)
        raw = mutated(rng, unpacked_records(batch, 0, header, BOUND))
        if rng.random() < 0.3:
            header = header._replace(
                base_timestamp=rng.choice([0, -1, INT64_MAX, -INT64_MAX, INT64_MAX - 5, NOW_MS]),
                last_offset_delta=header.last_offset_delta + rng.choice([0, 1, 300]),
                record_count=max(0, header.record_count + rng.choice([-1, 0, 1])),
            )
        if header.record_count > len(raw) // 7:
            continue  # refused before (`unpacked_records`)
        found = by_kernel(raw, header)
        assert same(found, by_python(raw, header)), (raw.hex(), header)
        accepted += found is not None
        refused += found is None
    assert accepted > 20
    assert refused > 100


@pytest.mark.parametrize("length", [6, 7, 8])
def test_of_all_short_records(length: int) -> None:
    """Of a few bytes at limits: nulls, empty strings, one header, varints that end too late."""
    header = header_of(1, last_offset_delta=2**31 - 1)
    found = 0
    for body in itertools.product(b"\0\x01\x02\x80\xff" if length < 8 else b"\0\x01\x02\x80", repeat=length):
        raw = bytes((length << 1, *body))
        rows = by_kernel(raw, header)
        assert same(rows, by_python(raw, header)), raw.hex()
        found += rows is not None
    assert found >= 5


@pytest.mark.parametrize("delta", [0, 1, -1, 63, 64, -64, -65, 2**31, -(2**40), 2**62, INT64_MAX, -INT64_MAX - 1])
@pytest.mark.parametrize("base", [0, -1, 1, NOW_MS, INT64_MAX, INT64_MAX - 1, -INT64_MAX, -INT64_MAX - 1])
def test_times_of_64_bits(base: int, delta: int) -> None:
    raw = record(0, timestamp=delta) + record(1)
    for attributes in (0, 8):  # CreateTime, LogAppendTime
        header = header_of(2, base_timestamp=base, max_timestamp=base, attributes=attributes)
        assert same(by_kernel(raw, header), by_python(raw, header))


@pytest.mark.parametrize("base", [0, 1, 2**31, INT64_MAX - 10])
@pytest.mark.parametrize("deltas", [(0, 1), (0, 9), (3, 4), (1, 0), (2, 2), (0, 10), (-1, 0), (0, 2**31 - 1)])
def test_offsets_rise_within_the_batch(base: int, deltas: tuple[int, int]) -> None:
    """As in a log that was compacted."""
    raw = b"".join(map(record, deltas))
    header = header_of(2, base_offset=base, last_offset_delta=9)
    assert same(by_kernel(raw, header), by_python(raw, header))


def test_offsets_beyond_64_bits_are_left_to_python() -> None:
    assert by_kernel(record(0), header_of(1, base_offset=INT64_MAX, last_offset_delta=1)) is None
    assert by_kernel(record(0), header_of(1, base_offset=-1)) is None
    assert by_kernel(record(0), header_of(1, last_offset_delta=-2)) is None


def test_names_of_headers_are_any_bytes() -> None:
    for name in (b"", b"h", "é€😀".encode(), b"\xff", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"a\xc3"):
        raw = record(0, headers=((name, b"v"), (name, b"")))
        rows = by_kernel(raw, header_of(1))
        assert same(rows, by_python(raw, header_of(1)))
        assert rows is not None
        assert rows[0].headers[0][0].encode("utf-8", "surrogateescape") == name


def test_it_reads_nothing_behind_the_records() -> None:
    """What follows in memory would make an incomplete record complete."""
    raw = record(0, value=b"v" * 70, headers=((b"h", b"v"),)) + record(1)
    for size in range(len(raw)):
        assert by_kernel(raw[:size], header_of(2)) is None
    assert by_kernel(raw, header_of(2)) is not None
    for count in (0, 1, 3, 2**31, INT64_MAX):
        assert by_kernel(raw, header_of(count, last_offset_delta=2**31 - 1)) is None
    assert by_kernel(b"", header_of(0)) == []


def test_many_records_without_the_interpreters_lock() -> None:
    raw = b"".join(record(index, timestamp=index % 7) for index in range(120_000))
    assert len(raw) > 1 << 20
    header = header_of(120_000)
    rows = by_kernel(raw, header)
    assert rows == read_records(raw, header)
    assert by_kernel(raw[:-1], header) is None


def test_records_are_made_as_they_are_taken_and_belong_to_the_one_who_takes_them() -> None:
    raw = b"".join(record(index, value=b"v%d" % index, headers=((b"h", b""),)) for index in range(100))
    rows = kernel_rows()(raw, 100, 0, 99, NOW_MS, False, ("t",), ConsumerRecord)
    assert rows is not None
    first = next(rows)
    assert operator.length_hint(rows) == 99
    assert first._fields[-1] == "headers"
    assert first[:2] == ("t", 0)
    del raw, rows
    gc.collect()
    assert first[4:] == (b"v0", (("h", b""),))


def test_the_collector_sees_the_iterator() -> None:
    """A cycle through what it holds is collected, though a loop never ended."""
    alive: list[object] = []

    class Held(list[object]):
        def __del__(self) -> None:
            alive.clear()

    alive.append(None)
    held = Held()
    held.append(kernel_rows()(record(0) + record(1), 2, 0, 1, 0, False, (held,), tuple))
    del held
    gc.collect()
    assert not alive


def test_arguments_that_are_none() -> None:
    rows, good = kernel_rows(), (record(0), 1, 0, 0, 0, False, (), tuple)
    assert rows(*good) is not None
    of_wrong_type: list[tuple[int, Any]] = [(0, bytearray(9)), (0, "text"), (1, "1"), (6, []), (7, 3)]
    for index, wrong in of_wrong_type:
        with pytest.raises(TypeError):
            rows(*good[:index], wrong, *good[index + 1 :])
    of_wrong_value: list[tuple[int, Any]] = [(1, -1), (6, tuple(range(9))), (7, list)]
    for index, wrong in of_wrong_value:
        with pytest.raises(ValueError, match="tuple"):
            rows(*good[:index], wrong, *good[index + 1 :])
    with pytest.raises(OverflowError):
        rows(*good[:1], 2**63, *good[2:])
    made: Any = type(rows(*good))
    with pytest.raises(TypeError):
        made()


def test_in_its_place_there_is_no_other_way() -> None:
    values = [b"v" * (index % 90) for index in range(500)]
    batch = encode_batch(values, None, [(("h", b"v"),)] * 500, timestamps=NOW_MS)
    with patch.object(kernel, "rows", None):
        expected = list(iter_fields(batch))
    with (
        patch.object(kernel, "rows", kernel_rows()),
        patch("streamlog.records.decode.columns_of", None),
        patch("streamlog.records.decode.read_records", None),
    ):
        assert list(iter_fields(batch)) == list(iter_batch(batch)) == expected
        assert list(iter_rows(ConsumerRecord, ("t", 1), batch)) == [("t", 1, *fields) for fields in expected]


def test_what_is_refused_is_refused_in_pythons_words() -> None:
    batch = bytearray(encode_batch([b"v"] * 9, timestamps=NOW_MS))
    batch[-1] = 2  # a header that is missing
    words = []
    for rows in (kernel_rows(), None):
        with patch.object(kernel, "rows", rows), pytest.raises(InvalidRecordError) as error:
            iter_fields(batch)
        words.append(str(error.value))
    assert words[0] == words[1]
