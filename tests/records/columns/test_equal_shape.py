"""Records of one shape: when the fast way takes them, and that it takes them as the plain loop does."""

from __future__ import annotations

import random

import pytest

from streamlog.errors import StreamlogError
from streamlog.model import Offset
from streamlog.records import BatchFields, BatchHeader, encode_batch, read_header
from streamlog.records.columns.columnar import columns_of
from streamlog.records.columns.equal_shape import equal_records
from streamlog.records.payload import unpacked_records
from streamlog.records.record_loop import read_records

NOW_MS = 1_700_000_000_000
# Deltas of each width that may differ: 1, 2, 3 and 4 bytes, the smallest and the largest among them.
WIDTHS = ((0, 63), (64, 8_191), (8_192, 1_048_575), (1_048_576, 134_217_727))


def parts(values: list[bytes], timestamps: int | list[int], key: bytes | None = None) -> tuple[bytes, BatchHeader]:
    batch = encode_batch(values, [key] * len(values), timestamps=timestamps, fields=BatchFields(base_offset=Offset(7)))
    header = read_header(batch, 0)
    return unpacked_records(batch, 0, header, 1 << 30), header


def drawn(count: int, low: int, high: int) -> list[int]:
    """Times whose deltas to the first are within, but for the first one's own."""
    rng = random.Random(count)
    return [NOW_MS + rng.choice([low, high, rng.randint(low, high)]) for _ in range(count)]


def check(raw: bytes, header: BatchHeader) -> None:
    found, plain = columns_of(raw, header), read_records(raw, header)
    assert found.offsets.tolist() == [each[0] for each in plain]
    assert found.timestamps.tolist() == [each[1] for each in plain]
    assert [raw[at : at + size] for at, size in zip(found.value_starts, found.value_sizes, strict=True)] == [
        each[3] for each in plain
    ]


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 66, 8_192, 8_193, 9_000])
@pytest.mark.parametrize("key", [None, b"", b"key"])
def test_one_time_for_all(count: int, key: bytes | None) -> None:
    raw, header = parts([b"%06d" % number for number in range(count)], NOW_MS, key)
    found = equal_records(raw, count)
    assert found is not None
    assert found.timestamp_deltas == 0
    check(raw, header)


@pytest.mark.parametrize("count", [2, 65, 300])
def test_times_that_differ_by_less_than_64(count: int) -> None:
    raw, header = parts([b"%06d" % number for number in range(count)], [NOW_MS, *drawn(count - 1, -64, 63)])
    found = equal_records(raw, count)
    assert found is not None
    assert not isinstance(found.timestamp_deltas, int)
    check(raw, header)


@pytest.mark.parametrize(("low", "high"), WIDTHS[1:])
def test_times_of_more_bytes_where_they_begin_with_a_run(low: int, high: int) -> None:
    """The first record's delta is 0, so only a run without it, from the 64th on, can have long ones throughout."""
    count = 200
    raw, header = parts([b"x"] * count, [NOW_MS] * 64 + drawn(count - 64, low, high))
    assert equal_records(raw, count) is not None
    check(raw, header)


@pytest.mark.parametrize("at", [1, 63, 64, 65, 199])
def test_one_time_of_another_width_is_the_general_ways(at: int) -> None:
    times = [NOW_MS] * 200
    times[at] += 64
    raw, header = parts([b"x"] * 200, times)
    assert equal_records(raw, 200) is None
    check(raw, header)


@pytest.mark.parametrize("count", [3, 70])
def test_whatever_byte_is_damaged_the_plain_loop_says_what_it_is(count: int) -> None:
    raw, header = parts([b"ab"] * count, [NOW_MS, *drawn(count - 1, 0, 63)], b"k")
    for at in range(len(raw)):
        for bit in (0x01, 0x02, 0x80):
            bad = raw[:at] + bytes((raw[at] ^ bit,)) + raw[at + 1 :]
            try:
                read_records(bad, header)
            except StreamlogError as error:
                with pytest.raises(type(error)):
                    columns_of(bad, header)
            else:
                check(bad, header)


def test_values_that_are_longer_from_the_64th_on() -> None:
    """Each run has one shape, and they are not the same."""
    raw, header = parts([b"five5"] * 64 + [b"sixsix"] * 64, NOW_MS)
    assert equal_records(raw, 128) is None
    check(raw, header)
