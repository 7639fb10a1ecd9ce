"""The lines that REQUIREMENTS ("Storage", dump tool) gives, from files made with the record library."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path

import pytest

from streamlog.model import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from streamlog.records import BatchFields, Codec, TimestampType, encode_batch
from tests.cli.conftest import Dump
from tests.cli.dump.logs import START_MS, one, write_log

FIRST = (
    "offset: 0 position: 0 CreateTime: 1557393691677 isvalid: true keysize: 10 valuesize: 8 magic: 2 "
    "compresscodec: NONE producerId: -1 producerEpoch: -1 sequence: 0 isTransactional: false headerKeys: [] "
    'key: group_demo payload: {"id":0}'
)


def test_one_record_a_batch(tmp_path: Path, dump: Dump) -> None:
    log = write_log(tmp_path, [one(n) for n in range(6)])
    done = dump(log)
    lines = done.stdout.splitlines()
    assert (done.exit_code, done.stderr) == (0, "")
    assert lines[:3] == [f"Dumping {log}", "Starting offset: 0", FIRST]
    assert [line.split(" ")[3] for line in lines[2:]] == ["0", "86", "172", "258", "344", "430"]
    assert lines[7].endswith('key: group_demo payload: {"id":5}')


def test_kafkas_own_flags_ask_for_what_is_the_default(tmp_path: Path, dump: Dump) -> None:
    log = write_log(tmp_path, [one(0)])
    assert dump("--deep-iteration", "--print-data-log", log).stdout == dump(log).stdout


def test_without_the_data(tmp_path: Path, dump: Dump) -> None:
    log = write_log(tmp_path, [one(0)])
    assert dump("--no-print-data-log", log).stdout.splitlines()[2] == FIRST.partition(" key:")[0]


def test_every_field_of_a_record(tmp_path: Path, dump: Dump) -> None:
    fields = BatchFields(
        base_offset=Offset(7),
        leader_epoch=LeaderEpoch(3),
        codec=Codec.ZSTD,
        producer_id=ProducerId(9),
        producer_epoch=ProducerEpoch(4),
        base_sequence=2**31 - 1,
        is_transactional=True,
    )
    headers = [(), (("trace", b"1"), ("n", None))]
    batch = encode_batch([b"v", None], [None, b"k"], headers, timestamps=[START_MS, START_MS + 5], fields=fields)
    log = write_log(tmp_path, [batch], "00000000000000000007.log")
    tail = "magic: 2 compresscodec: ZSTD producerId: 9 producerEpoch: 4 sequence:"
    assert dump(log).stdout.splitlines()[1:] == [
        "Starting offset: 7",
        f"offset: 7 position: 0 CreateTime: {START_MS} isvalid: true keysize: -1 valuesize: 1 {tail} 2147483647 "
        "isTransactional: true headerKeys: [] payload: v",
        f"offset: 8 position: 0 CreateTime: {START_MS + 5} isvalid: true keysize: 1 valuesize: -1 {tail} 0 "
        "isTransactional: true headerKeys: [trace,n] key: k",
    ]


def test_a_line_a_batch(tmp_path: Path, dump: Dump) -> None:
    fields = BatchFields(base_offset=Offset(0), codec=Codec.GZIP, timestamp_type=TimestampType.LOG_APPEND_TIME)
    batch = encode_batch([b"a", b"b"], timestamps=START_MS, fields=fields)
    log = write_log(tmp_path, [batch])
    (crc,) = struct.unpack_from(">I", batch, 17)
    assert dump("--shallow-iteration", log).stdout.splitlines()[2] == (
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
        "partitionLeaderEpoch: -1 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        f"position: 0 LogAppendTime: {START_MS} size: {len(batch)} magic: 2 compresscodec: gzip crc: {crc} "
        "isvalid: true"
    )


def test_an_index(tmp_path: Path, dump: Dump) -> None:
    """`offset: 48 position: 4156`, without a log beside it to check it against."""
    index = tmp_path / "00000000000000000000.index"
    index.write_bytes(struct.pack(">iiii", 48, 4156, 97, 8400) + bytes(8 * 100))
    assert dump(index).stdout.splitlines()[1:] == ["offset: 48 position: 4156", "offset: 97 position: 8400"]


def test_offsets_of_an_index_are_relative_to_its_name(tmp_path: Path, dump: Dump) -> None:
    index = tmp_path / "00000000005000000000.timeindex"
    index.write_bytes(struct.pack(">qi", START_MS, 12))
    assert dump(index).stdout.splitlines()[1] == f"timestamp: {START_MS} offset: 5000000012"


@pytest.mark.parametrize(
    ("entries", "printed"),
    [
        (struct.pack(">qi", 0, 0), ["timestamp: 0 offset: 0"]),
        (struct.pack(">qiqi", 0, 0, 5, 1), ["timestamp: 0 offset: 0", "timestamp: 5 offset: 1"]),
        (bytes(24), []),
    ],
    ids=["only", "first", "preallocated"],
)
def test_a_timeindex_may_begin_at_time_0(tmp_path: Path, dump: Dump, entries: bytes, printed: list[str]) -> None:
    index = tmp_path / "00000000000000000000.timeindex"
    index.write_bytes(entries)
    done = dump(index)
    assert (done.exit_code, done.stdout.splitlines()[1:]) == (0, printed)


def test_json(tmp_path: Path, dump: Dump) -> None:
    batch = encode_batch([b"\xff"], [b"k"], [(("h", None),)], timestamps=START_MS)
    log = write_log(tmp_path, [batch])
    (line,) = dump("--output", "json", log).stdout.splitlines()
    record = json.loads(line)
    assert record["file"] == str(log)
    assert record["type"] == "log_record"
    assert record["timestamp_ms"] == START_MS
    assert record["key"] == {"base64": "aw==", "text": "k"}
    assert base64.b64decode(record["value"]["base64"]) == b"\xff"
    assert "text" not in record["value"]
    assert record["headers"] == [[{"base64": "aA==", "text": "h"}, None]]


def test_json_keeps_null_and_empty_apart(tmp_path: Path, dump: Dump) -> None:
    log = write_log(tmp_path, [encode_batch([None, b""], timestamps=START_MS)])
    records = [json.loads(line) for line in dump("-o", "json", log).stdout.splitlines()]
    assert [record["value"] for record in records] == [None, {"base64": "", "text": ""}]
    assert [record["value_size_bytes"] for record in records] == [None, 0]


def test_a_log_of_another_name(tmp_path: Path, dump: Dump) -> None:
    """No `Starting offset`, since nothing says what it should be."""
    log = write_log(tmp_path, [one(3)], "copy.log")
    done = dump(log)
    assert (done.exit_code, len(done.stdout.splitlines())) == (0, 2)


@pytest.mark.parametrize("state", [".deleted", ".cleaned", ".swap"])
def test_files_on_their_way_in_or_out(tmp_path: Path, dump: Dump, state: str) -> None:
    log = write_log(tmp_path, [one(0)], f"00000000000000000000.log{state}")
    assert dump(log).stdout.splitlines()[2] == FIRST
