"""What compaction writes back, and the builder's bound."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.errors import InvalidRecordError
from streamlog.model import Offset
from streamlog.records import (
    BatchBuilder,
    BatchFields,
    Codec,
    Headers,
    TimestampType,
    check_crc,
    decode_batch,
    decode_columns,
    encode_batch,
    read_header,
    rebuilt_batch,
)
from streamlog.records.header import HEADER_SIZE
from tests.records.strategies import NOW_MS, Columns, columns

KEPT = (
    "base_offset",
    "leader_epoch",
    "last_offset_delta",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "timestamp_type",
    "is_transactional",
    "is_control",
    "last_sequence",
)


@given(columns(), st.integers(0, 2**32), st.sampled_from([0.0, 0.1, 0.9, 1.0]), st.none() | st.just(NOW_MS + 60_000))
@settings(max_examples=100)
def test_compaction_takes_records_away_and_changes_nothing_else(
    batch: Columns, seed: int, share: float, horizon_ms: int | None
) -> None:
    encoded = batch.encoded()
    before = read_header(encoded, 0)
    rng = random.Random(seed)
    kept = [record for record in decode_batch(encoded) if rng.random() < share]
    rebuilt = rebuilt_batch(before, kept, delete_horizon_ms=horizon_ms)
    header = read_header(rebuilt, 0)
    check_crc(rebuilt, 0, header)
    assert {name: getattr(header, name) for name in KEPT} == {name: getattr(before, name) for name in KEPT}
    assert header.codec == (before.codec if kept else Codec.NONE)
    assert header.record_count == len(kept)
    assert decode_batch(rebuilt) == kept
    assert decode_columns(rebuilt).offsets.tolist() == [record.offset for record in kept]
    if horizon_ms is not None:
        assert header.has_delete_horizon
        assert header.base_timestamp == horizon_ms
    if not kept:
        assert rebuilt[HEADER_SIZE:] == b""
        assert header.max_timestamp == before.max_timestamp
    elif before.timestamp_type is TimestampType.CREATE_TIME:
        assert header.max_timestamp == max(record.timestamp for record in kept)

    again = rebuilt_batch(header, kept[1:], delete_horizon_ms=NOW_MS + 10**6)
    assert decode_batch(again) == kept[1:]
    if horizon_ms is not None:
        assert read_header(again, 0).base_timestamp == horizon_ms  # once set it stays


def test_records_of_another_batch_are_refused() -> None:
    header = read_header(encode_batch([b"a", b"b"], timestamps=0), 0)
    (record, _) = decode_batch(encode_batch([b"a", b"b"], timestamps=0))
    for wrong in ([record._replace(offset=Offset(2))], [record._replace(offset=Offset(-1))], [record, record]):
        with pytest.raises(InvalidRecordError, match="offsets"):
            rebuilt_batch(header, wrong)


@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(0, 9_000).map(bytes),
            st.none() | st.integers(0, 70).map(bytes),
            st.sampled_from([(), (("k", b"v"),), (("key", None), ("", b"12345"))]),
            st.sampled_from([0, 1, 2**25, -(2**25), 2**40]),
        ),
        min_size=1,
        max_size=40,
    ),
    st.integers(61, 30_000),
)
def test_a_builder_never_grows_over_its_bound(
    rows: list[tuple[bytes | None, bytes | None, Headers, int]], bound: int
) -> None:
    builder = BatchBuilder(bound)
    taken = []
    for value, key, headers, later in rows:
        if builder.try_append(value, key, headers, timestamp=NOW_MS + later):
            taken.append((key, value, headers, NOW_MS + later))
    batch = builder.build(BatchFields())
    assert [(r.key, r.value, r.headers, r.timestamp) for r in decode_batch(batch)] == taken
    assert len(builder) == len(taken)
    assert len(batch) <= builder.size_bytes
    assert len(taken) == 1 or builder.size_bytes <= bound


def test_a_builder_uses_the_room_that_it_has() -> None:
    """100 B records in 64 KiB: the bound is not bought with half-empty batches."""
    builder = BatchBuilder(65_536)
    while builder.try_append(bytes(100), timestamp=NOW_MS):
        pass
    assert len(builder.build(BatchFields())) > 0.9 * 65_536


def test_a_batch_may_be_built_again_for_another_producer_epoch() -> None:
    builder = BatchBuilder(1_000)
    assert builder.try_append(b"v", b"k", timestamp=NOW_MS)
    first = builder.build(BatchFields(codec=Codec.GZIP))
    assert decode_batch(builder.build(BatchFields())) == decode_batch(first)
