"""Control batches: known bytes, round trips, and records that do not say what they should."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import InvalidRecordError
from streamlog.model import BrokerId, Offset, ProducerEpoch, ProducerId
from streamlog.records import (
    ControlType,
    EndTransactionMarker,
    LeaderChange,
    OtherControl,
    Record,
    decode_batch,
    decode_control,
    read_header,
)
from streamlog.records.control import encode_end_transaction, encode_leader_change
from tests.records.strategies import NOW_MS


def record(key: bytes | None, value: bytes | None) -> Record:
    return Record(Offset(0), NOW_MS, key, value)


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_of_a_transaction_is_kafkas_78_bytes(commit: bool) -> None:
    marker = EndTransactionMarker(commit=commit, coordinator_epoch=5)
    batch = encode_end_transaction(
        marker, producer_id=ProducerId(7), producer_epoch=ProducerEpoch(2), timestamp_ms=NOW_MS
    )
    header = read_header(batch, 0)
    assert len(batch) == 78
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, -1)
    assert batch[61:].hex() == "20000000080000" + ("0001" if commit else "0000") + "0c00000000000500"
    assert decode_control(decode_batch(batch)[0]) == marker


@given(st.integers(0, 2**31 - 1), st.lists(st.integers(0, 2**31 - 1), max_size=126), st.lists(st.integers(0, 9)))
def test_leader_changes(leader: int, voters: list[int], granting: list[int]) -> None:
    change = LeaderChange(
        leader_id=BrokerId(leader),
        voters=tuple(map(BrokerId, voters)),
        granting_voters=tuple(map(BrokerId, granting[:126])),
    )
    batch = encode_leader_change(change, timestamp_ms=NOW_MS)
    assert read_header(batch, 0).is_control
    assert not read_header(batch, 0).has_producer
    assert decode_control(decode_batch(batch)[0]) == change


def test_bytes_of_a_leader_change() -> None:
    change = LeaderChange(leader_id=BrokerId(2), voters=(BrokerId(1), BrokerId(2)), granting_voters=(BrokerId(2),))
    (got,) = decode_batch(encode_leader_change(change, timestamp_ms=NOW_MS))
    assert got.key == bytes.fromhex("00000002")
    assert got.value == bytes.fromhex("000000000002030000000100000000020002000000020000")


def test_what_is_not_understood_is_kept() -> None:
    assert decode_control(record(struct.pack(">hh", 0, 6), b"x")) == OtherControl(type_number=6, version=0, value=b"x")
    assert decode_control(record(struct.pack(">hh", 3, 99), None)) == OtherControl(
        type_number=99, version=3, value=None
    )
    later = struct.pack(">hi", 1, 4) + b"ids"
    assert isinstance(decode_control(record(struct.pack(">hh", 0, ControlType.LEADER_CHANGE), later)), OtherControl)


def test_later_versions_append() -> None:
    value = struct.pack(">hi", 1, 9) + b"more"
    marker = decode_control(record(struct.pack(">hhb", 1, ControlType.COMMIT, 0), value))
    assert marker == EndTransactionMarker(commit=True, coordinator_epoch=9)


@given(st.none() | st.binary(max_size=6), st.none() | st.binary(max_size=20))
def test_any_bytes_are_understood_kept_or_refused(key: bytes | None, value: bytes | None) -> None:
    for kind in ControlType:
        for some_key in (key, struct.pack(">hh", 0, kind)):
            try:
                decode_control(record(some_key, value))
            except InvalidRecordError:
                pass


def test_short_records_are_refused() -> None:
    commit = struct.pack(">hh", 0, ControlType.COMMIT)
    for key, value in ((None, b""), (b"\x00\x00\x00", b""), (commit, None), (commit, b"\x00" * 5)):
        with pytest.raises(InvalidRecordError):
            decode_control(record(key, value))
    with pytest.raises(InvalidRecordError, match="voters"):
        encode_leader_change(
            LeaderChange(leader_id=BrokerId(0), voters=(BrokerId(1),) * 127, granting_voters=()), timestamp_ms=0
        )
