"""The header of a batch: its layout, scanning, the CRC, and what a broker rewrites."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import CorruptMessageError, UnsupportedCompressionError
from streamlog.model import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from streamlog.records import (
    BatchFields,
    BatchHeader,
    Codec,
    TimestampType,
    check_crc,
    decode_batch,
    encode_batch,
    read_header,
    restamp_log_append_time,
    scan_headers,
    stamp,
)
from streamlog.records.header import HEADER_SIZE, LOG_OVERHEAD, PREFIX_SIZE
from tests.records.strategies import NOW_MS

FIELDS = BatchFields(
    base_offset=Offset(2**40 + 7),
    leader_epoch=LeaderEpoch(5),
    codec=Codec.NONE,
    producer_id=ProducerId(2**33),
    producer_epoch=ProducerEpoch(77),
    base_sequence=2**31 - 2,
    is_transactional=True,
)
BATCH = encode_batch([b"a", b"b", b"c"], timestamps=[NOW_MS, NOW_MS + 9, NOW_MS + 2], fields=FIELDS)


def test_every_field_stands_where_kafka_has_it() -> None:
    fields = struct.unpack_from(">qiibIhiqqqhii", BATCH)
    header = read_header(BATCH, 0)
    assert tuple(header) == fields
    assert header.base_offset == 2**40 + 7
    assert header.length == len(BATCH) - LOG_OVERHEAD
    assert header.leader_epoch == 5
    assert header.magic == 2
    assert header.last_offset_delta == 2
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS, NOW_MS + 9)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**33, 77, 2**31 - 2)
    assert header.record_count == 3
    assert header.is_transactional
    assert not header.is_control
    assert not header.has_delete_horizon
    assert header.has_producer
    assert (header.last_offset, header.next_offset) == (2**40 + 9, 2**40 + 10)
    assert header.size_bytes == len(BATCH)


@pytest.mark.parametrize(
    ("base", "delta", "last"), [(-1, 4, -1), (0, 0, 0), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 2, 4, 2)]
)
def test_sequence_numbers_wrap_to_zero(base: int, delta: int, last: int) -> None:
    assert read_header(BATCH, 0)._replace(base_sequence=base, last_offset_delta=delta).last_sequence == last


@pytest.mark.parametrize("number", [5, 6, 7])
def test_unknown_codecs_are_named(number: int) -> None:
    with pytest.raises(UnsupportedCompressionError, match=f"codec {number}"):
        _ = read_header(BATCH, 0)._replace(attributes=number).codec


def test_a_header_that_is_cut_off() -> None:
    for size in (0, 1, HEADER_SIZE - 1):
        with pytest.raises(CorruptMessageError) as caught:
            read_header(BATCH[:size], 0)
        assert caught.value.position == 0


@given(st.integers(1, 4), st.integers(0, len(BATCH) - 1))
def test_a_scan_stops_before_an_incomplete_last_batch(whole: int, left: int) -> None:
    log = b"xx" + BATCH * whole + BATCH[:left]
    scanned = list(scan_headers(log, 2, len(log)))
    assert [position for position, _ in scanned] == [2 + index * len(BATCH) for index in range(whole)]
    assert {header for _, header in scanned} == {read_header(BATCH, 0)}


def test_a_scan_does_not_look_beyond_its_end() -> None:
    log = BATCH * 3
    assert len(list(scan_headers(log, 0, 2 * len(BATCH) - 1))) == 1
    assert len(list(scan_headers(log, len(BATCH), 3 * len(BATCH)))) == 2


@pytest.mark.parametrize("length", [-(2**31), -1, 0, HEADER_SIZE - LOG_OVERHEAD - 1, 2**31 - 1])
def test_lengths_that_no_batch_can_have_are_not_followed(length: int) -> None:
    log = BATCH + struct.pack(">qi", 0, length) + BATCH[12:]
    scan = scan_headers(log, 0, len(log))
    next(scan)
    with pytest.raises(CorruptMessageError, match="impossible batch length") as caught:
        next(scan)
    assert caught.value.position == len(BATCH)


def test_lengths_over_the_callers_bound_are_not_followed() -> None:
    with pytest.raises(CorruptMessageError, match="impossible batch length"):
        list(scan_headers(BATCH, 0, len(BATCH), size_bytes_max=len(BATCH) - 1))
    assert len(list(scan_headers(BATCH, 0, len(BATCH), size_bytes_max=len(BATCH)))) == 1


def test_a_zero_tail_is_no_batch() -> None:
    log = BATCH + bytes(4096)
    with pytest.raises(CorruptMessageError) as caught:
        list(scan_headers(log, 0, len(log)))
    assert caught.value.position == len(BATCH)


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_other_magics_are_named(magic: int) -> None:
    log = BATCH[:16] + bytes([magic]) + BATCH[17:]
    for end in (17, len(log)):  # even before the batch is complete
        with pytest.raises(CorruptMessageError, match=f"unknown magic {magic}"):
            list(scan_headers(log, 0, end))


def test_the_crc_covers_every_bit_behind_it_and_none_before() -> None:
    header = read_header(BATCH, 0)
    check_crc(BATCH, 0, header)
    for bit in range(8 * 17, 8 * len(BATCH)):
        damaged = bytearray(BATCH)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptMessageError, match="CRC mismatch") as caught:
            check_crc(b"12" + damaged, 2, read_header(damaged, 0))
        assert caught.value.position == 2
    restamped = stamp(99, header.length, 6) + BATCH[PREFIX_SIZE:]
    check_crc(restamped, 0, read_header(restamped, 0))


def test_the_crc_of_a_batch_that_is_cut_off() -> None:
    header = read_header(BATCH, 0)
    for size in (0, 20, len(BATCH) - 1):
        with pytest.raises(CorruptMessageError, match="incomplete"):
            check_crc(BATCH[:size], 0, header)
    with pytest.raises(CorruptMessageError, match="incomplete"):
        check_crc(BATCH, 0, header._replace(length=-5))


def test_stamping_changes_offset_and_epoch_alone() -> None:
    header = read_header(BATCH, 0)
    prefix = stamp(2**50, header.length, 12)
    assert len(prefix) == PREFIX_SIZE
    stamped = read_header(prefix + BATCH[PREFIX_SIZE:], 0)
    assert stamped == header._replace(base_offset=Offset(2**50), leader_epoch=LeaderEpoch(12))


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [3, 60])
def test_log_append_time_is_set_in_place(codec: Codec, count: int) -> None:
    batch = encode_batch([b"x"] * count, timestamps=list(range(count)), fields=BatchFields(codec=codec))
    log = bytearray(batch + b"behind")
    restamp_log_append_time(memoryview(log), NOW_MS)
    header = read_header(log, 0)
    check_crc(log, 0, header)
    assert log[header.size_bytes :] == b"behind"
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.codec is codec
    assert header.max_timestamp == NOW_MS
    assert log[HEADER_SIZE : len(batch)] == batch[HEADER_SIZE:]
    assert {record.timestamp for record in decode_batch(log)} == {NOW_MS}


def test_log_append_time_on_what_is_no_whole_batch_changes_nothing() -> None:
    for size in (HEADER_SIZE - 1, len(BATCH) - 1):
        part = bytearray(BATCH[:size])
        with pytest.raises(CorruptMessageError):
            restamp_log_append_time(part, NOW_MS)
        assert part == BATCH[:size]


def test_a_header_read_is_a_value() -> None:
    header = read_header(BATCH, 0)
    assert header == read_header(memoryview(BATCH), 0) == BatchHeader(*header)
