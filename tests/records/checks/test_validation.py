"""What a producer may send (FAULTS "Bad input"): a batch is taken, or named and refused."""

from __future__ import annotations

from typing import Any

import pytest

from streamlog.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    StreamlogError,
    UnsupportedCompressionError,
    UnsupportedVersionError,
)
from streamlog.records import BatchFields, Codec, ProduceLimits, TimestampType, encode_batch, read_header, validate
from tests.records.fields import BATCH, with_fields
from tests.records.strategies import NOW_MS

LIMITS = ProduceLimits(message_bytes_max=10_000)


def refusal(batch: bytes, limits: ProduceLimits = LIMITS) -> StreamlogError:
    with pytest.raises(StreamlogError) as caught:
        validate(batch, 0, len(batch), limits, NOW_MS)
    return caught.value


def test_good_batches_are_found_with_their_positions() -> None:
    sent = b"head" + BATCH * 3 + b"tail"
    batches = validate(sent, 4, 4 + 3 * len(BATCH), LIMITS, NOW_MS)
    assert batches == [(4 + index * len(BATCH), read_header(BATCH, 0)) for index in range(3)]
    assert validate(with_fields(), 0, len(BATCH), LIMITS, NOW_MS)


@pytest.mark.parametrize("codec", list(Codec))
def test_records_are_looked_at_unless_producers_are_trusted(codec: Codec) -> None:
    batch = encode_batch([b"a"] * 9, timestamps=NOW_MS, fields=BatchFields(codec=codec))
    garbled = with_fields(batch[:61] + bytes(len(batch) - 61))
    assert isinstance(refusal(garbled), InvalidRecordError)
    trusting = ProduceLimits(message_bytes_max=10_000, check_records=False)
    assert validate(garbled, 0, len(garbled), trusting, NOW_MS)


def test_nothing_at_all() -> None:
    assert isinstance(refusal(b""), InvalidRecordError)


@pytest.mark.parametrize("count", [0, -1, -(2**31)])
def test_empty_batches_and_negative_counts(count: int) -> None:
    error = refusal(with_fields(record_count=count))
    assert isinstance(error, InvalidRecordError)
    assert error.details["field"] == "record_count"
    assert not error.retriable


@pytest.mark.parametrize("delta", [0, 2, -1, 2**31 - 1])
def test_a_count_that_does_not_fit_the_offsets(delta: int) -> None:
    error = refusal(with_fields(last_offset_delta=delta))
    assert isinstance(error, InvalidRecordError)
    assert error.details["field"] == "last_offset_delta"


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_lengths_too_short_for_a_batch(length: int) -> None:
    error = refusal(with_fields(length=length))
    assert isinstance(error, InvalidRecordError)
    assert error.details["field"] == "length"


@pytest.mark.parametrize("length", [len(BATCH) - 11, 2**31 - 1])
def test_lengths_beyond_what_was_sent(length: int) -> None:
    error = refusal(with_fields(length=length))
    assert isinstance(error, CorruptMessageError)
    assert error.retriable


@pytest.mark.parametrize("size", [1, 16, 17, 60, 61, len(BATCH) - 1])
def test_batches_cut_off(size: int) -> None:
    assert isinstance(refusal(BATCH[:size]), CorruptMessageError)


@pytest.mark.parametrize("trailing", [b"\x00", bytes(16), b"garbage"])
def test_trailing_bytes(trailing: bytes) -> None:
    error = refusal(BATCH + trailing)
    assert isinstance(error, CorruptMessageError)
    assert error.position == len(BATCH)


def test_a_flipped_bit() -> None:
    assert isinstance(refusal(BATCH[:-1] + bytes([BATCH[-1] ^ 1])), CorruptMessageError)


def test_the_second_batch_counts_as_well() -> None:
    error = refusal(BATCH + with_fields(record_count=-1))
    assert error.details["position"] == len(BATCH)


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_other_formats(magic: int) -> None:
    error = refusal(with_fields(magic=magic))
    assert isinstance(error, UnsupportedVersionError)
    assert error.details["field"] == "magic"


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs(codec: int) -> None:
    assert isinstance(refusal(with_fields(attributes=codec)), UnsupportedCompressionError)


@pytest.mark.parametrize("bit", [0x20, 0x30, 0x40])
def test_what_only_a_broker_may_write(bit: int) -> None:
    error = refusal(with_fields(attributes=bit))
    assert isinstance(error, InvalidRecordError)
    assert error.details["field"] == "attributes"


def test_log_append_time_is_the_brokers() -> None:
    assert isinstance(refusal(with_fields(attributes=0x08)), InvalidTimestampError)


def test_size_of_a_batch() -> None:
    assert validate(BATCH, 0, len(BATCH), ProduceLimits(message_bytes_max=len(BATCH)), NOW_MS)
    error = refusal(BATCH, ProduceLimits(message_bytes_max=len(BATCH) - 1))
    assert isinstance(error, MessageTooLargeError)
    assert error.details["limit"] == len(BATCH) - 1
    assert error.details["size_bytes"] == len(BATCH)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"producer_id": -2}, "producer_id"),
        ({"producer_id": -1, "attributes": 0x10}, "producer_id"),
        ({"producer_epoch": -1}, "producer_epoch"),
        ({"base_sequence": -1}, "base_sequence"),
    ],
)
def test_producer_fields_that_contradict_each_other(fields: dict[str, Any], field: str) -> None:
    error = refusal(with_fields(**fields))
    assert isinstance(error, InvalidRecordError)
    assert error.details["field"] == field


def test_without_a_producer_id_nobody_reads_the_sequence() -> None:
    for sequence in (-1, 0):
        batch = with_fields(producer_id=-1, producer_epoch=-1, base_sequence=sequence)
        assert validate(batch, 0, len(batch), LIMITS, NOW_MS)


def test_timestamps_are_held_against_the_topics_bounds() -> None:
    limits = ProduceLimits(message_bytes_max=10_000, timestamp_before_max_ms=1_000, timestamp_after_max_ms=500)
    for times in ([NOW_MS - 1_000, NOW_MS], [NOW_MS, NOW_MS + 500], [-1, NOW_MS], [-1, -1]):
        batch = encode_batch([b"a", b"b"], timestamps=times)
        assert validate(batch, 0, len(batch), limits, NOW_MS)
    for times, field in (
        ([NOW_MS - 1_001, NOW_MS], "message.timestamp.before.max.ms"),
        ([NOW_MS, NOW_MS - 1_001, -1], "message.timestamp.before.max.ms"),  # the header does not show it
        ([NOW_MS, NOW_MS + 501], "message.timestamp.after.max.ms"),
        ([NOW_MS, -2], "timestamp"),
    ):
        error = refusal(encode_batch([b"a"] * len(times), timestamps=times), limits)
        assert isinstance(error, InvalidTimestampError)
        assert error.details["field"] == field
    changed: tuple[dict[str, Any], ...] = ({"base_timestamp": -2}, {"max_timestamp": -(2**63)})
    for fields in changed:
        assert isinstance(refusal(with_fields(**fields), limits), InvalidTimestampError)
    error = refusal(with_fields(max_timestamp=NOW_MS + 2), limits)
    assert isinstance(error, InvalidRecordError)
    assert error.details["field"] == "max_timestamp"
    by_append = ProduceLimits(
        message_bytes_max=10_000, timestamp_type=TimestampType.LOG_APPEND_TIME, timestamp_after_max_ms=500
    )
    assert validate(with_fields(max_timestamp=2**60), 0, len(BATCH), by_append, NOW_MS)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [2, 60])
def test_compacted_topics_want_keys(codec: Codec, count: int) -> None:
    limits = ProduceLimits(message_bytes_max=10_000, keys_required=True)
    fields = BatchFields(codec=codec)
    keys: list[bytes | None] = [b""] * count
    keyed = encode_batch([None] * count, keys, timestamps=NOW_MS, fields=fields)
    assert validate(keyed, 0, len(keyed), limits, NOW_MS)
    keys[-1] = None
    keyless = encode_batch([None] * count, keys, timestamps=NOW_MS, fields=fields)
    error = refusal(keyless, limits)
    assert isinstance(error, InvalidRecordError)
    assert error.details["field"] == "key"
    assert validate(keyless, 0, len(keyless), LIMITS, NOW_MS)


def test_a_batch_that_must_be_unpacked_is_bounded() -> None:
    bomb = encode_batch([bytes(10**6)], [b"k"], timestamps=NOW_MS, fields=BatchFields(codec=Codec.ZSTD))
    limits = ProduceLimits(message_bytes_max=10_000, keys_required=True, unpacked_bytes_max=10**5)
    assert isinstance(refusal(bomb, limits), MessageTooLargeError)
