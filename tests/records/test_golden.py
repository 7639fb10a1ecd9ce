"""Against other implementations: kafka-python both ways, and segments that a real broker wrote."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from kafka.record import MemoryRecords, MemoryRecordsBuilder
from kafka.record.default_records import DefaultRecordBatchBuilder

from streamlog.model import Offset, ProducerEpoch, ProducerId
from streamlog.records import (
    BatchFields,
    Codec,
    ControlType,
    EndTransactionMarker,
    OtherControl,
    ProduceLimits,
    Record,
    TimestampType,
    check_crc,
    decode_batch,
    decode_columns,
    decode_control,
    encode_batch,
    read_header,
    scan_headers,
    stamp,
    validate,
)
from streamlog.records.checks.record_check import check_records
from streamlog.records.header import PREFIX_SIZE
from tests.records.strategies import NOW_MS, strings

REAL_KAFKA = Path(__file__).parent.parent / "cli" / "dump" / "kafka-4.2.0"

# Of the first requirements: one record a batch, key group_demo, values {"id":0}, {"id":1} ...
POSITIONS = [0, 86, 172, 258, 344, 430]


def rows(seed: int, count: int) -> list[Record]:
    """Records of all kinds, with offsets from 0."""
    rng = random.Random(seed)
    shapes = ("mixed", "holes", "edges")
    values, keys = strings(rng, count, rng.choice(shapes)), strings(rng, count, rng.choice(shapes))
    values[0] = b"so that it is worth compressing, " * 99
    kinds = [(), (), (("trace", b"\x01\x02"), ("é", None), ("", b""))]
    return [
        Record(Offset(index), NOW_MS + rng.randrange(5_000), keys[index], values[index], rng.choice(kinds))
        for index in range(count)
    ]


def ours(records: list[Record], fields: BatchFields) -> bytes:
    return encode_batch(
        [record.value for record in records],
        [record.key for record in records],
        [record.headers for record in records],
        timestamps=[record.timestamp for record in records],
        fields=fields,
    )


def theirs(records: list[Record], codec: Codec, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    builder = DefaultRecordBatchBuilder(2, int(codec), producer[0] >= 0, *producer, 2**30)
    for record in records:
        assert builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(builder.build())


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [1, 7, 80, 700])
def test_kafka_python_reads_ours(codec: Codec, count: int) -> None:
    records = rows(count, count)
    fields = BatchFields(
        codec=codec,
        producer_id=ProducerId(9),
        producer_epoch=ProducerEpoch(3),
        base_sequence=17,
        is_transactional=True,
    )
    encoded = ours(records, fields)
    batch = MemoryRecords(encoded).next_batch()
    assert batch.validate_crc()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 3, 17)
    assert batch.is_transactional
    assert (batch.first_timestamp, batch.max_timestamp) == (
        records[0].timestamp,
        max(record.timestamp for record in records),
    )
    got = [Record(Offset(each.offset), each.timestamp, each.key, each.value, tuple(each.headers)) for each in batch]
    assert got == records


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [1, 7, 80, 700])
def test_we_read_kafka_pythons(codec: Codec, count: int) -> None:
    records = rows(count + 1, count)
    encoded = theirs(records, codec, (9, 3, 17))
    header = read_header(encoded, 0)
    check_crc(encoded, 0, header)
    assert (header.codec, header.producer_id, header.producer_epoch, header.base_sequence) == (codec, 9, 3, 17)
    assert header.is_transactional
    assert decode_batch(encoded) == records
    assert decode_columns(encoded).timestamps.tolist() == [record.timestamp for record in records]


@pytest.mark.parametrize("path", sorted(REAL_KAFKA.rglob("*.log")), ids=lambda path: path.parent.name)
def test_what_a_real_broker_accepted_passes_the_check(path: Path) -> None:
    data = path.read_bytes()
    for position, header in scan_headers(data, 0, len(data)):
        if header.last_offset_delta == header.record_count - 1:  # else compaction has taken records away
            found = check_records(data, position, header, keys_required=False, unpacked_bytes_max=1 << 20)
            exact = header.timestamp_type is TimestampType.CREATE_TIME and not header.has_delete_horizon
            assert found.largest == header.max_timestamp or not exact


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [1, 7, 80, 700])
def test_what_kafka_python_sends_passes_the_check(codec: Codec, count: int) -> None:
    encoded = theirs(rows(count + 3, count), codec)
    limits = ProduceLimits(message_bytes_max=1 << 20)
    assert len(validate(encoded, 0, len(encoded), limits, NOW_MS)) == 1


@pytest.mark.parametrize("count", [1, 7, 80, 700])
def test_uncompressed_batches_are_the_same_to_the_byte(count: int) -> None:
    records = rows(count + 2, count)
    encoded = theirs(records, Codec.NONE)
    header = read_header(encoded, 0)
    assert ours(records, BatchFields(leader_epoch=header.leader_epoch)) == encoded


def test_positions_of_the_known_answer() -> None:
    positions = []
    log = bytearray()
    for index in range(6):
        positions.append(len(log))
        batch = encode_batch([b'{"id":%d}' % index], [b"group_demo"], timestamps=1557393691677)
        log += stamp(index, read_header(batch, 0).length, 0) + batch[PREFIX_SIZE:]
    assert positions == POSITIONS
    assert [position for position, _ in scan_headers(log, 0, len(log))] == POSITIONS
    kafka_python = MemoryRecordsBuilder(2, 0, 10_000)
    kafka_python.append(1557393691677, b"group_demo", b'{"id":0}')
    kafka_python.close()
    assert len(kafka_python.buffer()) == 86


def test_bytes_of_a_batch() -> None:
    """Written down once, so that encoder and decoder cannot drift together."""
    batch = encode_batch(
        [b'{"id":0}', None],
        [b"group_demo", None],
        [(), (("h", b"v"),)],
        timestamps=[1557393691677, 1557393691680],
        fields=BatchFields(base_offset=Offset(5)),
    )
    assert batch == bytes.fromhex(
        "0000000000000005 00000055 ffffffff 02 4f99748c 0000 00000001 0000016a9be5d41d 0000016a9be5d420"
        "ffffffffffffffff ffff ffffffff 00000002"
        "30 00 00 00 14 67726f75705f64656d6f 10 7b226964223a307d 00"
        "14 00 06 02 01 01 02 02 68 02 76"
    )
    check_crc(batch, 0, read_header(batch, 0))


def real_segments() -> list[Path]:
    return sorted(REAL_KAFKA.glob("*/*.log"))


def test_the_real_brokers_segments_are_there() -> None:
    codecs = {path.parent.name for path in real_segments()}
    assert {f"codec-{codec.name.lower()}-0" for codec in Codec} <= codecs


@pytest.mark.parametrize("path", real_segments(), ids=lambda path: f"{path.parent.name}/{path.stem.lstrip('0') or 0}")
def test_segments_of_a_real_broker(path: Path) -> None:
    log = path.read_bytes()
    end = 0
    for position, header in scan_headers(log, 0, len(log)):
        check_crc(log, position, header)
        records = decode_batch(log, position)
        columns = decode_columns(log, position)
        assert len(records) == header.record_count == len(columns)
        assert columns.offsets.tolist() == [record.offset for record in records]
        if records and not header.has_delete_horizon and len(records) == header.last_offset_delta + 1:
            again = encode_batch(
                [record.value for record in records],
                [record.key for record in records],
                [record.headers for record in records],
                timestamps=[record.timestamp for record in records],
            )
            assert decode_batch(again) == [
                record._replace(offset=Offset(index)) for index, record in enumerate(records)
            ]
        if header.is_control:
            control = decode_control(records[0])
            assert isinstance(control, EndTransactionMarker | OtherControl)
            assert ControlType(int.from_bytes((records[0].key or b"")[2:4], "big")) in (
                ControlType.ABORT,
                ControlType.COMMIT,
            )
        end = position + header.size_bytes
    assert end == len(log)
