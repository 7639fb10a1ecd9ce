"""What is encoded is decoded, by every way, and all ways agree to the byte."""

from __future__ import annotations

import random
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings

from streamlog.errors import InvalidRecordError, InvariantError
from streamlog.model import Offset
from streamlog.records import (
    BatchFields,
    Codec,
    Record,
    Strings,
    TimestampType,
    check_crc,
    decode_batch,
    decode_columns,
    encode_batch,
    iter_batches,
    iter_fields,
    join_strings,
    read_header,
)
from streamlog.records.checks import kernel
from streamlog.records.columns.columnar import columns_of
from streamlog.records.decode import iter_rows
from streamlog.records.encode import encode_record
from streamlog.records.payload import unpacked_records
from streamlog.records.record_loop import read_records
from tests.records.strategies import NOW_MS, SHAPES, Columns, columns, strings


def strings_of(strings: Strings) -> list[bytes | None]:
    column = join_strings([strings])
    data, offsets = column.data.tobytes(), column.offsets.tolist()
    valid = [True] * len(column) if column.valid is None else column.valid.tolist()
    return [data[offsets[i] : offsets[i + 1]] if valid[i] else None for i in range(len(column))]


@given(columns())
@settings(max_examples=150)
def test_every_way_reads_what_was_written(batch: Columns) -> None:
    encoded = batch.encoded()
    header = read_header(encoded, 0)
    check_crc(encoded, 0, header)
    assert header.size_bytes == len(encoded)
    assert header.record_count == len(batch.values) == header.last_offset_delta + 1
    assert (header.codec, header.timestamp_type) == (batch.fields.codec, batch.fields.timestamp_type)
    assert (header.producer_id, header.producer_epoch) == (batch.fields.producer_id, batch.fields.producer_epoch)
    assert header.base_sequence == batch.fields.base_sequence
    assert header.is_transactional == batch.fields.is_transactional

    expected = batch.records()
    raw = unpacked_records(encoded, 0, header, 2**24)
    assert header.max_timestamp == max(record.timestamp for record in expected)
    assert read_records(raw, header) == expected
    for rows in (kernel.rows, None):  # where it is installed
        with patch.object(kernel, "rows", rows):
            assert decode_batch(encoded) == expected
            assert list(iter_fields(encoded)) == expected
            assert list(iter_rows(tuple, ("t", 3), encoded)) == [("t", 3, *record) for record in expected]
            assert list(iter_batches(encoded * 2, 0, 2 * len(encoded))) == expected * 2

    by_column = decode_columns(encoded)
    assert by_column.offsets.tolist() == [record.offset for record in expected]
    assert by_column.timestamps.tolist() == [record.timestamp for record in expected]
    assert strings_of(by_column.keys) == [record.key for record in expected]
    assert strings_of(by_column.values) == [record.value for record in expected]
    assert (by_column.headers or [()] * len(expected)) == [record.headers for record in expected]


@given(columns(codecs=(Codec.NONE,)))
@settings(max_examples=100)
def test_the_encoder_by_column_gives_the_bytes_of_the_plain_one(batch: Columns) -> None:
    encoded = batch.encoded()
    header = read_header(encoded, 0)
    times = [batch.timestamps] * len(batch.values) if isinstance(batch.timestamps, int) else batch.timestamps
    plain = b"".join(
        encode_record(index, times[index] - times[0], record.key, record.value, record.headers)
        for index, record in enumerate(batch.records())
    )
    assert unpacked_records(encoded, 0, header, 2**24) == plain


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [8_191, 8_192, 8_193, 20_000])
def test_batches_long_enough_for_offset_deltas_of_three_bytes(shape: str, count: int) -> None:
    if shape == "large":
        count //= 20
    rng = random.Random(count)
    values, keys = strings(rng, count, shape), strings(rng, count, "edges")
    for some_keys in (None, keys):
        encoded = encode_batch(values, some_keys, timestamps=NOW_MS)
        raw = unpacked_records(encoded, 0, read_header(encoded, 0), 2**28)
        key_of = some_keys or [None] * count
        assert raw == b"".join(
            encode_record(index, 0, key, value) for index, (key, value) in enumerate(zip(key_of, values, strict=True))
        )
        got = list(iter_fields(encoded))
        with patch.object(kernel, "rows", None):
            assert list(iter_rows(tuple, ("t",), encoded)) == [("t", *fields) for fields in got]
        assert [fields[3] for fields in got] == values
        assert [fields[2] for fields in got] == key_of
        assert [fields[0] for fields in got] == list(range(count))


def test_records_behind_one_that_looks_like_the_start_of_another() -> None:
    """Values made of what the search by pattern looks for, in the places where it looks."""
    decoys = [b"", b"\x00", b"\x00\x0c\x00", b"\x00\x0c\x00\x00\x00\x01\x01\x00", b"\x00\x80\x01\x00" * 9]
    rng = random.Random(5)
    for _ in range(60):
        values: list[bytes | None] = [b"".join(rng.choices(decoys, k=rng.randrange(4))) for _ in range(60)]
        keys: list[bytes | None] = [rng.choice(decoys) for _ in values]
        encoded = encode_batch(values, keys, timestamps=[NOW_MS + index % 3 for index in range(60)])
        assert [(record.key, record.value) for record in decode_batch(encoded)] == list(zip(keys, values, strict=True))


def test_views_and_bytearrays_are_read_like_bytes() -> None:
    encoded = encode_batch([b"v%d" % index for index in range(60)], timestamps=NOW_MS)
    for codec in Codec:
        encoded = encode_batch(
            [b"v%d" % index for index in range(60)], timestamps=NOW_MS, fields=BatchFields(codec=codec)
        )
        around = b"front" + encoded + b"behind"
        for buffer in (bytearray(around), memoryview(around)):
            assert decode_batch(buffer, 5) == decode_batch(encoded)
            assert strings_of(decode_columns(buffer, 5).values) == strings_of(decode_columns(encoded).values)


def test_log_append_time_gives_every_record_the_batchs_time() -> None:
    fields = BatchFields(timestamp_type=TimestampType.LOG_APPEND_TIME)
    for count in (3, 60):
        encoded = encode_batch([b""] * count, timestamps=list(range(count)), fields=fields)
        assert {record.timestamp for record in decode_batch(encoded)} == {count - 1}
        assert set(decode_columns(encoded).timestamps.tolist()) == {count - 1}


def test_nulls_of_a_column_are_a_bitmap_for_arrow() -> None:
    encoded = encode_batch([b"a", None, b"", b"bc"], timestamps=0)
    values = join_strings([decode_columns(encoded).values])
    assert values.offsets.tolist() == [0, 1, 1, 1, 3]
    assert values.data.tobytes() == b"abc"
    assert values.validity_bitmap() == bytes([0b1101])
    assert join_strings([decode_columns(encode_batch([b"a"], timestamps=0)).values]).validity_bitmap() is None


@pytest.mark.parametrize(
    "batches",
    [
        [[b"%04d" % i for i in range(200)], [None] * 3, [b"x" * (i % 7) for i in range(40)], [b"", b""], [b"a", None]],
        [[b"%04d" % i for i in range(200)], [b"%06d" % i for i in range(100)]],  # each of one size
        [[b"%04d" % i for i in range(200)], [b"abcd"], [b"%04d" % i for i in range(70)]],  # all of one size
        [[None] * 200, [None]],
        [[b""] * 200, [b""]],
    ],
)
@pytest.mark.parametrize("keys", ["none", "of many sizes"])
def test_strings_of_many_batches_come_one_behind_the_other(batches: list[list[bytes | None]], keys: str) -> None:
    """Between keys of many sizes values do not stand at equal distances, though they have one size."""
    parts = [
        decode_columns(
            encode_batch(
                values, None if keys == "none" else [b"k" * (i % 11) for i in range(len(values))], timestamps=0
            )
        ).values
        for values in batches
    ]
    column = join_strings(parts)
    whole = [value for values in batches for value in values]
    assert column.data.tobytes() == b"".join(value or b"" for value in whole)
    assert np.diff(column.offsets).tolist() == [len(value or b"") for value in whole]
    valid = [True] * len(whole) if column.valid is None else column.valid.tolist()
    assert valid == [value is not None for value in whole]


def test_more_bytes_than_a_column_can_have_are_refused() -> None:
    raw = bytes(1 << 20)
    strings = Strings(raw, np.zeros(2_048, np.int64), np.full(2_048, len(raw)))
    with pytest.raises(InvariantError, match="2147483648 bytes"):
        join_strings([strings])


def test_columns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidRecordError, match="0 records"):
        encode_batch([], timestamps=0)
    with pytest.raises(InvalidRecordError, match="1 keys for 2 values"):
        encode_batch([b"", b""], [b""], timestamps=0)
    with pytest.raises(InvalidRecordError, match="3 timestamps for 2 values"):
        encode_batch([b"", b""], timestamps=[1, 2, 3])
    with pytest.raises(InvalidRecordError, match="64 bits"):
        encode_batch([b"", b""], timestamps=[0, 2**63])
    with pytest.raises(InvalidRecordError, match="64 bits"):
        encode_batch([b"", b""], timestamps=[-(2**63), 1])
    with pytest.raises(InvalidRecordError, match="header key"):
        encode_batch([b""], None, [(("\ud800", b""),)], timestamps=0)


def test_a_batch_without_records_has_empty_columns() -> None:
    encoded = encode_batch([b"v"], timestamps=7)
    header = read_header(encoded, 0)._replace(record_count=0)
    assert read_records(b"", header) == []
    assert len(columns_of(b"", header)) == 0
    for refused in (read_records, columns_of):
        with pytest.raises(InvalidRecordError):
            refused(b"\x00", header)


def test_offsets_and_times_at_the_end_of_64_bits() -> None:
    top = 2**63 - 1
    for count in (2, 60):
        fields = BatchFields(base_offset=Offset(top - count + 1))
        encoded = encode_batch(
            [b""] * count, timestamps=[top - count + 1 + index for index in range(count)], fields=fields
        )
        assert decode_batch(encoded)[-1] == Record(Offset(top), top, None, b"")
        beyond = bytearray(encoded)
        beyond[:8] = (top - count + 2).to_bytes(8, "big")
        with pytest.raises(InvalidRecordError, match="64 bits"):
            decode_batch(beyond)
        late = bytearray(encoded)
        late[27:35] = top.to_bytes(8, "big")
        with pytest.raises(InvalidRecordError, match="64 bits"):
            decode_batch(late)
        with pytest.raises(InvalidRecordError, match="64 bits"):
            columns_of(unpacked_records(late, 0, read_header(late, 0), 2**20), read_header(late, 0))


def test_columns_of_a_billion_are_not_made_for_a_few_bytes() -> None:
    encoded = bytearray(encode_batch([b"v"] * 3, timestamps=0))
    encoded[57:61] = np.array([2**31 - 1], ">i4").tobytes()
    for decode in (decode_batch, decode_columns):
        with pytest.raises(InvalidRecordError, match="records"):
            decode(encoded)
