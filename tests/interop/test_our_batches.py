"""Batches that storage seldom writes, and Kafka's tools read: control records, delete horizons, nothing left."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlog.model import BrokerId, Offset, ProducerEpoch, ProducerId
from streamlog.records import (
    BatchFields,
    Codec,
    EndTransactionMarker,
    LeaderChange,
    TimestampType,
    decode_batch,
    encode_batch,
    encode_end_transaction,
    encode_leader_change,
    read_header,
    rebuilt_batch,
    stamp,
)
from streamlog.records.header import PREFIX_SIZE

from .real_kafka import Kafka

pytestmark = pytest.mark.interop

NOW_MS = 1_700_000_000_000


def batches() -> list[bytes]:
    made = []
    for codec in Codec:
        fields = BatchFields(codec=codec, timestamp_type=TimestampType.LOG_APPEND_TIME)
        made.append(encode_batch([b"value" * 99] * 70, [b"k"] * 70, timestamps=NOW_MS, fields=fields))
        # Compacted: with gaps, with a delete horizon, with nothing left but the producer's sequence.
        fields = BatchFields(codec=codec, producer_id=ProducerId(5), producer_epoch=ProducerEpoch(0), base_sequence=7)
        whole = encode_batch(
            [b"v", None] * 40, [b"key"] * 80, timestamps=list(range(NOW_MS, NOW_MS + 80)), fields=fields
        )
        records, header = decode_batch(whole), read_header(whole, 0)
        made += [
            rebuilt_batch(header, records[::3]),
            rebuilt_batch(header, records[::3], delete_horizon_ms=NOW_MS + 10**8),
            rebuilt_batch(header, []),
        ]
    voters = (BrokerId(1), BrokerId(2))
    made.append(
        encode_leader_change(
            LeaderChange(leader_id=BrokerId(1), voters=voters, granting_voters=voters), timestamp_ms=NOW_MS
        )
    )
    for commit in (True, False):
        marker = EndTransactionMarker(commit=commit, coordinator_epoch=3)
        made.append(
            encode_end_transaction(
                marker, producer_id=ProducerId(5), producer_epoch=ProducerEpoch(0), timestamp_ms=NOW_MS
            )
        )
    return made


def test_kafka_reads_every_kind_of_batch(kafka: Kafka, tmp_path: Path) -> None:
    log, offset, expected = bytearray(), 0, 0
    for batch in batches():
        header = read_header(batch, 0)
        log += stamp(Offset(offset), header.length, 1) + batch[PREFIX_SIZE:]
        offset += header.last_offset_delta + 1
        expected += header.record_count
    path = tmp_path / "kinds-0" / f"{0:020}.log"
    path.parent.mkdir()
    path.write_bytes(log)
    dump = kafka.dump([path], "--print-data-log", "--deep-iteration", compacted=True)
    lines = [line for line in dump.splitlines() if line.lstrip().startswith("|")]
    assert len(lines) == expected
    assert dump.count("baseOffset: ") == len(batches())
    assert dump.count("isvalid: true") == len(batches())
    assert "isvalid: false" not in dump
    assert dump.count("deleteHorizonMs: OptionalLong[1700100000000]") == len(Codec)
    assert dump.count("endTxnMarker: COMMIT coordinatorEpoch: 3") == 1
    assert dump.count("endTxnMarker: ABORT coordinatorEpoch: 3") == 1
    assert 'LeaderChange: {"version":0,"leaderId":1' in dump
