"""Messages of magic 0 and 1: kafka-python's bytes, wrappers, what is damaged, and conversion."""

from __future__ import annotations

import random
import struct
import zlib

import pytest
from kafka.codec import lz4_encode_old_kafka
from kafka.record import MemoryRecords
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from streamlog.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    UnsupportedCompressionError,
)
from streamlog.model import Offset
from streamlog.records import (
    Codec,
    ProduceLimits,
    Record,
    TimestampType,
    decode_batch,
    entry_records,
    is_legacy,
    read_entry,
    read_header,
    scan_entries,
    scan_headers,
    validate,
)
from streamlog.records.legacy import messages
from streamlog.records.legacy.conversion import convert
from streamlog.records.legacy.lz4_header import with_right_checksum
from tests.records.legacy.old_messages import message, wrapper
from tests.records.strategies import NOW_MS, strings

CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)


def rows(count: int, magic: int) -> list[Record]:
    rng = random.Random(count)
    keys, values = strings(rng, count, "holes"), strings(rng, count, "holes")
    return [
        Record(Offset(index), NOW_MS + index if magic else -1, keys[index], values[index]) for index in range(count)
    ]


def all_records(log: bytes) -> list[Record]:
    return [record for _, entry in scan_entries(log, 0, len(log)) for record in entry_records(entry)]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 50])
def test_we_read_kafka_pythons(magic: int, codec: Codec, count: int) -> None:
    builder = LegacyRecordBatchBuilder(magic, int(codec), 2**20)
    records = rows(count, magic)
    for record in records:
        assert builder.append(record.offset, record.timestamp if magic else None, record.key, record.value)
    log = bytes(builder.build())
    assert is_legacy(log, 0)
    entries = list(scan_entries(log, 0, len(log)))
    assert {entry.magic for _, entry in entries} == {magic}
    assert {entry.codec for _, entry in entries} == {codec}
    assert len(entries) == (count if codec is Codec.NONE else 1)
    # kafka-python writes wrappers with offset 0, as producers do: inner offsets are then taken as they are.
    assert all_records(log) == records


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_reads_what_the_tests_write(magic: int, codec: Codec) -> None:
    """So that the bytes below are not merely our own idea of the format."""
    inner = b"".join(message(index, b"k", b"v%d" % index, magic=magic) for index in range(3))
    log = inner if codec is Codec.NONE else wrapper(2, inner, codec, magic=magic)
    got = [record for batch in MemoryRecords(log) for record in batch]
    assert [(record.offset, record.key, record.value) for record in got] == [
        (index, b"k", b"v%d" % index) for index in range(3)
    ]
    assert all(record.validate_crc() for record in got)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_inner_offsets_are_relative_in_magic_1_and_absolute_in_magic_0(codec: Codec) -> None:
    relative = b"".join(message(index, None, b"v") for index in (0, 1, 3))  # compaction leaves gaps
    (record, *_, last) = all_records(wrapper(1_003, relative, codec))
    assert (record.offset, last.offset) == (1_000, 1_003)
    absolute = b"".join(message(index, None, b"v", magic=0) for index in (1_000, 1_001, 1_003))
    (record, *_, last) = all_records(wrapper(1_003, absolute, codec, magic=0))
    assert (record.offset, last.offset) == (1_000, 1_003)
    assert record.timestamp == -1


def test_log_append_time_of_a_wrapper_is_that_of_all_inside() -> None:
    inner = b"".join(message(index, None, b"v") for index in range(3))
    log = wrapper(2, inner, Codec.GZIP, log_append=True)
    (entry,) = (entry for _, entry in scan_entries(log, 0, len(log)))
    assert entry.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {record.timestamp for record in all_records(log)} == {NOW_MS + 99}
    assert {record.timestamp for record in all_records(wrapper(2, inner, Codec.GZIP))} == {NOW_MS}


def test_bytes_of_a_message() -> None:
    """The layout that the first requirements asked for, written down."""
    log = bytes.fromhex("0000000000000007 0000001e 03651798 01 08 0000016a9be5d41d ffffffff 00000008 7b226964223a307d")
    entry = read_entry(log, 0, len(log))
    assert (entry.offset, entry.magic, entry.timestamp) == (7, 1, 1557393691677)
    assert (entry.key, entry.value) == (None, b'{"id":0}')
    assert entry.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert entry.size_bytes == len(log)


def test_the_old_lz4_header_checksum_is_put_right() -> None:
    inner = message(0, b"k", b"v" * 1_000, magic=0)
    broken = lz4_encode_old_kafka(inner)
    right = with_right_checksum(broken)
    assert broken != right
    assert with_right_checksum(right) == right
    assert [byte for byte in range(len(right)) if right[byte] != broken[byte]] == [6]
    # Only magic 0 has it: a broken checksum in magic 1 is damage.
    with pytest.raises(CorruptMessageError, match="lz4"):
        all_records(message(0, None, broken, magic=1, attributes=3))
    for size in range(8):
        with pytest.raises(CorruptMessageError, match="lz4"):
            all_records(message(0, None, broken[:size], magic=0, attributes=3))


def test_a_scan_stops_before_an_incomplete_last_entry() -> None:
    log = message(0, b"k", b"v") * 2
    for size in range(len(log) // 2, len(log)):
        assert [position for position, _ in scan_entries(log, 0, size)] == [0]
        with pytest.raises(CorruptMessageError, match="incomplete"):
            read_entry(log, len(log) // 2, size)


@pytest.mark.parametrize("magic", [0, 1])
def test_every_flipped_bit_is_found(magic: int) -> None:
    log = message(3, b"key", b"value", magic=magic)
    for bit in range(8 * 8, 8 * len(log)):  # nothing covers the offset
        damaged = bytearray(log)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises((CorruptMessageError, InvalidRecordError)):
            read_entry(damaged, 0, len(damaged))


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 13, 21, 2**31 - 1])
def test_impossible_sizes(size: int) -> None:
    log = message(0, b"k", b"v")
    log = log[:8] + struct.pack(">i", size) + log[12:]
    with pytest.raises(CorruptMessageError, match="impossible message size") as caught:
        list(scan_entries(b"ab" + log, 2, len(log) + 2))
    assert caught.value.position == 2


@pytest.mark.parametrize("magic", [2, 3, 255])
def test_other_magics_are_named(magic: int) -> None:
    log = message(0, b"k", b"v")
    log = log[:16] + bytes([magic]) + log[17:]
    assert not is_legacy(log, 0)
    with pytest.raises(CorruptMessageError, match=f"unknown magic {magic}"):
        list(scan_entries(log, 0, len(log)))


def sealed(body: bytes) -> bytes:
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize(
    "fields",
    [
        struct.pack(">ii", -2, 0),
        struct.pack(">ii", 1, -1),
        struct.pack(">ii", 2**31 - 1, -1),
        struct.pack(">ii", -1, 2**31 - 1),
        struct.pack(">ii", -1, 1),
        struct.pack(">iib", -1, -1, 0),
        struct.pack(">ii", 4, 0),
    ],
)
def test_lengths_inside_that_do_not_fit(fields: bytes) -> None:
    log = sealed(struct.pack(">bbq", 1, 0, NOW_MS) + fields)
    with pytest.raises(InvalidRecordError):
        read_entry(log, 0, len(log))


def test_wrappers_that_hold_what_they_must_not() -> None:
    plain = message(0, None, b"v")
    bad = {
        "without messages": wrapper(0, b"", Codec.GZIP),
        "in a compressed one": wrapper(0, wrapper(0, plain, Codec.GZIP), Codec.GZIP),
        "of magic 0": wrapper(0, message(0, None, b"v", magic=0), Codec.GZIP),
        "without a value": message(0, None, None, attributes=1),
    }
    for reason, log in bad.items():
        with pytest.raises(InvalidRecordError, match=reason):
            all_records(log)
    for number in (4, 5, 7):
        with pytest.raises(UnsupportedCompressionError):
            all_records(message(0, None, b"", attributes=number))


def test_damage_inside_a_wrapper_names_the_wrapper() -> None:
    inner = bytearray(message(0, None, b"v") * 2)
    inner[-1] ^= 1
    with pytest.raises(CorruptMessageError, match=r"offset 41, byte 35: CRC mismatch"):
        all_records(wrapper(41, bytes(inner), Codec.SNAPPY))
    with pytest.raises(CorruptMessageError, match="incomplete"):
        all_records(wrapper(41, bytes(inner[:40]), Codec.SNAPPY))


@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("magic", [0, 1])
def test_wrapped_bombs_are_stopped(codec: Codec, magic: int) -> None:
    log = wrapper(0, message(0, None, bytes(2**22), magic=magic), codec, magic=magic)
    entry = read_entry(log, 0, len(log))
    with pytest.raises(MessageTooLargeError):
        entry_records(entry, unpacked_bytes_max=2**20)
    with pytest.raises(MessageTooLargeError):
        convert(log, 0, len(log), unpacked_bytes_max=2**20)
    if codec is not Codec.LZ4:  # its wrapper alone exceeds half the limit
        with pytest.raises(MessageTooLargeError):
            convert(log * 3, 0, 3 * len(log), unpacked_bytes_max=2**23)


@pytest.mark.parametrize("magic", [0, 1])
def test_the_limit_holds_for_all_wrappers_together_also_of_empty_messages(magic: int) -> None:
    inner = message(0, None, None, magic=magic) * 10_000
    log = wrapper(0, inner, Codec.GZIP, magic=magic)
    assert convert(log * 2, 0, 2 * len(log), unpacked_bytes_max=2 * len(inner))
    with pytest.raises(MessageTooLargeError):
        convert(log * 3, 0, 3 * len(log), unpacked_bytes_max=2 * len(inner) + len(inner) // 2)


def test_messages_of_a_wrapper_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "WRAPPED_MAX", 10)
    convert(log := wrapper(9, message(0, None, None) * 10, Codec.GZIP), 0, len(log))
    with pytest.raises(MessageTooLargeError, match="holds more than 10 others"):
        convert(log := wrapper(9, message(0, None, None) * 11, Codec.GZIP), 0, len(log))


def test_conversion_keeps_records_codecs_and_order() -> None:
    sent = b"".join(
        (
            message(5, b"a", b"1"),
            message(5, None, b"2", magic=0),
            wrapper(1, message(0, b"b", b"3") + message(1, b"b", None), Codec.LZ4),
            wrapper(0, message(0, b"c", b"4", magic=0), Codec.SNAPPY, magic=0),
            message(0, b"d", b"5"),
        )
    )
    converted = convert(b"xyz" + sent, 3, 3 + len(sent))
    batches = list(scan_headers(converted, 0, len(converted)))
    assert [header.codec for _, header in batches] == [Codec.NONE, Codec.LZ4, Codec.SNAPPY, Codec.NONE]
    assert [header.record_count for _, header in batches] == [2, 2, 1, 1]
    records = [record for position, _ in batches for record in decode_batch(converted, position)]
    assert [(record.offset, record.key, record.value) for record in records] == [
        (0, b"a", b"1"),
        (1, None, b"2"),
        (0, b"b", b"3"),
        (1, b"b", None),
        (0, b"c", b"4"),
        (0, b"d", b"5"),
    ]
    assert [record.timestamp for record in records] == [NOW_MS, -1, NOW_MS, NOW_MS, -1, NOW_MS]
    assert validate(converted, 0, len(converted), ProduceLimits(message_bytes_max=1_000), NOW_MS) == batches


def test_converted_log_append_time_is_kept_and_refused_from_producers() -> None:
    inner = b"".join(message(index, None, b"v") for index in range(2))
    sent = wrapper(1, inner, Codec.GZIP, log_append=True)
    sent += message(0, None, b"v", attributes=8, timestamp=5) + message(1, None, b"v", attributes=8, timestamp=6)
    converted = convert(sent, 0, len(sent))
    headers = [header for _, header in scan_headers(converted, 0, len(converted))]
    assert {header.timestamp_type for header in headers} == {TimestampType.LOG_APPEND_TIME}
    assert [header.max_timestamp for header in headers] == [NOW_MS + 99, 5, 6]
    with pytest.raises(InvalidTimestampError):
        validate(converted, 0, len(converted), ProduceLimits(message_bytes_max=1_000), NOW_MS)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_what_kafka_python_sends_is_converted(magic: int, codec: Codec) -> None:
    builder = LegacyRecordBatchBuilder(magic, int(codec), 2**20)
    records = rows(80, magic)
    for record in records:
        builder.append(record.offset, record.timestamp if magic else None, record.key, record.value)
    sent = bytes(builder.build())
    converted = convert(sent, 0, len(sent))
    assert read_header(converted, 0).size_bytes == len(converted)
    assert decode_batch(converted) == records


def test_what_cannot_be_converted() -> None:
    good = message(0, None, b"v")
    with pytest.raises(InvalidRecordError, match="no message"):
        convert(b"", 0, 0)
    for sent in (good[:-1], good + b"\x00", good + bytes(17), good[:-1] + b"w"):
        with pytest.raises(CorruptMessageError):
            convert(sent, 0, len(sent))
