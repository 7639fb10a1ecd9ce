"""Arrow batches hold what is in the record batches, whatever their codec and their cut."""

from __future__ import annotations

from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'streamlog[spark]'")

from hypothesis import given  # noqa: E402  after what may skip the module
from hypothesis import strategies as st  # noqa: E402

from streamlog.client import ConsumerBatch  # noqa: E402
from streamlog.client.consumer.corrupt_batches import CorruptBatches  # noqa: E402
from streamlog.errors import CorruptBatchError  # noqa: E402
from streamlog.model import Offset, PartitionId, TopicPartition  # noqa: E402
from streamlog.records import BatchFields, Codec, TimestampType, encode_batch, read_header  # noqa: E402
from streamlog.spark.failures import sentence  # noqa: E402
from streamlog.spark.source.rows import BATCH_BYTES, BATCH_ROWS, Rows  # noqa: E402
from streamlog.spark.source.schema import COLUMNS, arrow_schema  # noqa: E402
from tests.storage.batches import poison  # noqa: E402

WHERE = TopicPartition("orders", PartitionId(3))

strings = st.none() | st.binary(max_size=30)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2).map(tuple)
records = st.lists(st.tuples(strings, strings, headers, st.integers(0, 2**40)), min_size=1, max_size=60)


def batch_of(
    rows: list[Any], base: int, codec: Codec = Codec.NONE, kind: TimestampType = TimestampType.CREATE_TIME
) -> ConsumerBatch:
    keys, values, heads, times = zip(*rows, strict=True)
    fields = BatchFields(base_offset=Offset(base), codec=codec, timestamp_type=kind)
    data = encode_batch(values, keys, heads if any(heads) else None, timestamps=list(times), fields=fields)
    return ConsumerBatch(WHERE, data, 0, read_header(data, 0), first=Offset(base), check=True)


def test_a_name_of_a_header_that_is_not_utf_8() -> None:
    rows = Rows(WHERE, ("headers",))
    made = [*rows.add(batch_of([(None, b"v", (("\udcff", b"x"),), 1)], 0), 1), *rows.rest()]
    assert [one for batch in made for one in batch.to_pylist()] == [{"headers": [{"key": "?", "value": b"x"}]}]


@given(st.lists(records, min_size=1, max_size=4), st.sampled_from(list(Codec)), st.integers(0, 20), st.integers(0, 20))
def test_rows_are_the_records(batches: list[Any], codec: Codec, skip: int, drop: int) -> None:
    base, expected, made = 10, [], []
    for number, rows in enumerate(batches):
        kind = TimestampType.LOG_APPEND_TIME if number % 2 else TimestampType.CREATE_TIME
        made.append(batch_of(rows, base, codec, kind))
        latest = max(row[3] for row in rows)
        for index, (key, value, heads, at) in enumerate(rows):
            shown = [{"key": name, "value": one} for name, one in heads] or None
            time = latest if number % 2 else at
            expected.append((key, value, "orders", 3, base + index, time, number % 2, shown))
        base += len(rows)
    start, end = 10 + skip, base - drop
    made[0] = made[0].from_offset(Offset(start))
    assembled = Rows(WHERE, tuple(COLUMNS))
    out = [one for batch in made for one in assembled.add(batch, end)] + list(assembled.rest())
    assert all(one.schema.equals(arrow_schema(tuple(COLUMNS))) for one in out)
    found = [
        tuple(row.values()) for one in out for row in one.set_column(5, "t", one["timestamp"].cast("int64")).to_pylist()
    ]
    skipped = [row for row in expected if start <= row[4] < end or (row[4] >= 10 + len(batches[0]) and row[4] < end)]
    assert found == [(*row[:5], row[5] * 1_000, *row[6:]) for row in skipped]


def test_a_batch_that_cannot_be_decoded_is_an_error_or_no_rows() -> None:
    data = poison(codec=1)
    header = read_header(data, 0)
    for skip in (False, True):
        corrupt = CorruptBatches(skip=skip)
        bad = ConsumerBatch(WHERE, data, 0, header, first=Offset(0), check=True, corrupt=corrupt)
        assembled = Rows(WHERE, tuple(COLUMNS))
        if skip:
            assert list(assembled.add(bad, 9)) == []
            assert list(assembled.rest()) == []
            assert (corrupt.skipped_count, assembled.next_offset) == (1, 1)
            continue
        with pytest.raises(CorruptBatchError) as caught:
            list(assembled.add(bad, 9))
        said = sentence(caught.value)
        assert said.startswith("orders-3: the batch at offset 0 cannot be decoded: gzip: ")
        assert said.endswith("to skip such batches, set option streamlog.on.corrupt.batch=skip")


def test_a_batch_is_bounded_and_small_ones_are_put_together() -> None:
    small = [batch_of([(None, b"x" * 100, (), 5)] * 100, base) for base in range(0, 10_000, 100)]
    assembled = Rows(WHERE, ("value", "offset"))
    out = [one for batch in small for one in assembled.add(batch, 1 << 40)] + list(assembled.rest())
    assert [one.num_rows for one in out] == [10_000]

    large = batch_of([(None, b"", (), 5)] * (2 * BATCH_ROWS + 1), 0)
    assembled = Rows(WHERE, ("value", "offset", "topic", "partition", "timestampType"))
    out = [*assembled.add(large, 1 << 40), *assembled.rest()]
    assert [one.num_rows for one in out] == [BATCH_ROWS, BATCH_ROWS, 1]
    for one in out:
        assert [one[name].unique().to_pylist() for name in ("topic", "partition", "timestampType")] == [
            ["orders"],
            [3],
            [0],
        ]

    heavy = [batch_of([(None, b"x" * BATCH_BYTES, (), 5)], base) for base in range(3)]
    out = [one for batch in heavy for one in assembled.add(batch, 1 << 40)] + list(assembled.rest())
    assert [one.num_rows for one in out] == [1, 1, 1]
