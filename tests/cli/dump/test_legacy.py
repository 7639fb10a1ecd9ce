"""Messages of magic 0 and 1, as kafka-python encodes them."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from tests.cli.conftest import Dump
from tests.cli.dump.legacy_logs import CODECS, RECORDS, every_kind, messages
from tests.cli.dump.logs import START_MS, one, write_log


def test_plain_messages_of_magic_1(tmp_path: Path, dump: Dump) -> None:
    data = messages(1, "none", 0)
    (first_size,) = struct.unpack_from(">i", data, 8)
    (first_crc,) = struct.unpack_from(">I", data, 12)
    (second_crc,) = struct.unpack_from(">I", data, 12 + first_size + 12)
    lines = dump(write_log(tmp_path, [data])).stdout.splitlines()
    assert lines[2:4] == [
        f"offset: 0 position: 0 CreateTime: {START_MS} isvalid: true keysize: 5 valuesize: 7 magic: 1 "
        f"compresscodec: NONE crc: {first_crc} key: key-0 payload: value-0",
        f"offset: 1 position: {12 + first_size} CreateTime: {START_MS + 1} isvalid: true keysize: -1 valuesize: 7 "
        f"magic: 1 compresscodec: NONE crc: {second_crc} payload: value-1",
    ]


def test_magic_0_has_no_time(tmp_path: Path, dump: Dump) -> None:
    lines = dump(write_log(tmp_path, [messages(0, "none", 0)])).stdout.splitlines()
    assert lines[2].startswith(
        "offset: 0 position: 0 NoTimestampType: -1 isvalid: true keysize: 5 valuesize: 7 magic: 0"
    )


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"])
def test_wrapped_messages_have_absolute_offsets(tmp_path: Path, dump: Dump, magic: int, codec: str) -> None:
    log = write_log(tmp_path, [messages(magic, codec, 70)], "00000000000000000070.log")
    done = dump("-o", "json", log)
    assert (done.exit_code, done.stderr) == (0, "")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [record["offset"] for record in records] == [70, 71, 72]
    assert {(record["magic"], record["codec"], record["position"]) for record in records} == {(magic, codec, 0)}
    texts = [tuple(part and part["text"].encode() for part in (r["key"], r["value"])) for r in records]
    assert texts == list(RECORDS)


def test_a_line_an_entry(tmp_path: Path, dump: Dump) -> None:
    data = messages(1, "gzip", 0)
    (crc,) = struct.unpack_from(">I", data, 12)
    (line,) = dump("--shallow-iteration", write_log(tmp_path, [data])).stdout.splitlines()[2:]
    assert line.startswith("offset: 2 position: 0 CreateTime: ")
    assert line.endswith(f"size: {len(data)} magic: 1 compresscodec: gzip crc: {crc} isvalid: true")


def test_old_and_new_messages_in_one_log(tmp_path: Path, dump: Dump) -> None:
    """As after an upgrade of the brokers."""
    old = every_kind()
    count = len(RECORDS) * 2 * len(CODECS)
    done = dump(write_log(tmp_path, [old, one(count)]))
    lines = done.stdout.splitlines()[2:]
    assert (done.exit_code, done.stderr) == (0, "")
    assert [line.split(" ")[1] for line in lines] == [str(offset) for offset in range(count + 1)]
    assert lines[-1].endswith(f'payload: {{"id":{count}}}')


def test_a_flipped_bit(tmp_path: Path, dump: Dump) -> None:
    data = bytearray(messages(1, "none", 0))
    data[40] ^= 1
    log = write_log(tmp_path, [bytes(data), one(3)])
    done = dump(log)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"{log}: position 0: the batch of offset 0 does not match its CRC")
    assert [line.split(" ")[1] for line in done.stdout.splitlines()[2:]] == ["1", "2", "3"]


def test_a_wrong_size_is_passed_by_searching_for_a_newer_batch(tmp_path: Path, dump: Dump) -> None:
    data = messages(1, "none", 0)
    log = write_log(tmp_path, [data[:8] + struct.pack(">i", 3) + data[12:], one(3)])
    done = dump(log)
    assert done.stderr == (
        f"{log}: position 0: impossible length 3; the next intact batch begins at position {len(data)}\n"
    )
    assert [line.split(" ")[1] for line in done.stdout.splitlines()[2:]] == ["3"]
