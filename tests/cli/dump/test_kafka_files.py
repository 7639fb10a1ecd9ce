"""Files that a Kafka 4.2.0 broker wrote, and what Kafka's own DumpLogSegments says of them.

`kafka-4.2.0/` is made by `python -m tests.interop.golden` (needs Java and Maven); `dump.txt` there is Kafka's output
in the classic form.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Dump
from tests.cli.dump.kafka_files import TARGET, dumped_files, offsets_files


@pytest.fixture
def _at_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths as `dump.txt` has them."""
    monkeypatch.chdir(TARGET)


def relative(files: list[Path]) -> list[Path]:
    return [file.relative_to(TARGET) for file in files]


@pytest.mark.usefixtures("_at_target")
def test_says_what_kafka_says(dump: Dump) -> None:
    plain = dump(*relative(dumped_files(TARGET)))
    offsets = dump("--offsets-decoder", *relative(offsets_files(TARGET)))
    assert (plain.stderr, offsets.stderr) == ("", "")
    printed = [line.rstrip() for line in (plain.stdout + offsets.stdout).split("\n")]
    assert printed == (TARGET / "dump.txt").read_text().split("\n")


def test_every_codec_holds_the_same_records(dump: Dump) -> None:
    def records(codec: str) -> list[tuple[object, ...]]:
        printed = dump("-o", "json", *(TARGET / f"codec-{codec}-0").glob("*.log")).stdout
        found = [json.loads(line) for line in printed.splitlines()]
        assert {record["codec"] for record in found} == {codec}
        return [(r["offset"], r["timestamp_ms"], r["key"], r["value"], r["headers"]) for r in found]

    plain = records("none")
    assert len(plain) == 24
    assert all(records(codec) == plain for codec in ("gzip", "snappy", "lz4", "zstd"))


def test_checkpoints(dump: Dump) -> None:
    printed = dump(TARGET / "recovery-point-offset-checkpoint").stdout.splitlines()
    assert "topic: codec-zstd partition: 0 offset: 24" in printed
    printed = dump(TARGET / "classic-0" / "leader-epoch-checkpoint").stdout.splitlines()
    assert printed[1:] == ["epoch: 0 startOffset: 0"]


def test_sanity_check_and_verification_pass(dump: Dump) -> None:
    indexes = sorted(TARGET.rglob("*index"))
    sane = dump("--index-sanity-check", *indexes)
    assert (sane.exit_code, sane.stderr) == (0, "")
    assert sane.stdout.count("passed sanity check.") == sum(not file.name.endswith("txnindex") for file in indexes)
    verified = dump("--verify-index-only", *indexes)
    assert (verified.exit_code, verified.stderr) == (0, "")
    assert all(line.startswith("Dumping ") for line in verified.stdout.splitlines())


def test_group_offsets_as_json(dump: Dump) -> None:
    printed = dump("-o", "json", "--offsets-decoder", *offsets_files(TARGET)).stdout
    decoded = [json.loads(line)["decoded"] for line in printed.splitlines()]
    commits = [d for d in decoded if d["key"]["data"] == {"group": "by-hand", "topic": "classic", "partition": 0}]
    assert [d["value"]["data"]["offset"] for d in commits] == [4]
    assert sum(d["value"] is None for d in decoded) == 3


def test_transactions(dump: Dump) -> None:
    logs = sorted((TARGET / "transactions-0").glob("*.log"))
    records = [json.loads(line) for line in dump("-o", "json", *logs).stdout.splitlines()]
    markers = [record["control"]["name"] for record in records if record["control"]]
    assert markers[:2] == ["COMMIT", "ABORT"]
    aborted = [json.loads(line) for line in dump("-o", "json", *TARGET.rglob("*.txnindex")).stdout.splitlines()]
    aborts = [record["offset"] for record in records if record["control"] and record["control"]["name"] == "ABORT"]
    assert [entry["last_offset"] for entry in aborted] == aborts


def test_nothing_is_changed(dump: Dump) -> None:
    files = sorted(file for file in TARGET.rglob("*") if file.is_file())
    before = [(file.read_bytes(), file.stat().st_mtime_ns) for file in files]
    dump(*files)
    after = sorted(file for file in TARGET.rglob("*") if file.is_file())
    assert after == files
    assert [(file.read_bytes(), file.stat().st_mtime_ns) for file in after] == before


def test_values_are_exact_in_json(dump: Dump) -> None:
    printed = dump("-o", "json", *(TARGET / "codec-lz4-0").glob("*.log")).stdout
    value = json.loads(printed.splitlines()[1])["value"]
    assert base64.b64decode(value["base64"]) == b"value \xff\x01 1 " * 2


def test_files_as_kafkas_tool_takes_them(dump: Dump) -> None:
    paths = sorted(str(path) for path in TARGET.glob("codec-*-0/*.log"))
    assert dump("--files", ",".join(paths)).stdout == dump(*paths).stdout
    assert dump().exit_code == 2
    assert dump("--files", "missing.log").exit_code == 2
