"""`streamlogctl dump` and Kafka's DumpLogSegments say the same of the same files, which a real broker wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.dump.legacy_logs import every_kind
from tests.cli.dump.logs import write_log
from tests.interop.dumps import files, our_dump

from .kafka_lines import as_classic, lines
from .real_kafka import Kafka
from .workload import CODECS

pytestmark = pytest.mark.interop

TOPICS = [
    *(f"codec-{codec}" for codec in CODECS),
    "classic",
    "log-append-time",
    "segments",
    "compacted",
    "transactions",
]


def all_files(data: Path, *suffixes: str) -> list[Path]:
    return [file for topic in TOPICS for file in files(data, topic, *suffixes)]


def test_batches(kafka: Kafka, clean_data: Path) -> None:
    logs = all_files(clean_data, ".log")
    assert our_dump(logs, "--shallow-iteration") == lines(kafka.dump(logs))


def test_records(kafka: Kafka, clean_data: Path) -> None:
    logs = all_files(clean_data, ".log")
    assert our_dump(logs) == list(as_classic(lines(kafka.dump(logs, "--print-data-log", compacted=True))))


def test_records_after_a_kill(kafka: Kafka, unclean_data: Path) -> None:
    logs = [log for topic in ("segments", "codec-zstd", "transactions") for log in files(unclean_data, topic, ".log")]
    assert our_dump(logs) == list(as_classic(lines(kafka.dump(logs, "--print-data-log"))))


def test_group_offsets(kafka: Kafka, clean_data: Path) -> None:
    logs = files(clean_data, "__consumer_offsets", ".log")
    ours = our_dump(logs, "--offsets-decoder")
    assert ours == list(as_classic(lines(kafka.dump(logs, "--offsets-decoder"))))
    assert sum("payload: <DELETE>" in line for line in ours) == 3


def test_indexes_and_snapshots(kafka: Kafka, clean_data: Path) -> None:
    rest = all_files(clean_data, ".index", ".timeindex", ".txnindex", ".snapshot")
    assert our_dump(rest) == lines(kafka.dump(rest))


def test_indexes_that_were_not_trimmed(kafka: Kafka, unclean_data: Path) -> None:
    indexes = files(unclean_data, "segments", ".index", ".timeindex")
    assert our_dump(indexes) == lines(kafka.dump(indexes))


@pytest.mark.parametrize("option", ["--verify-index-only", "--index-sanity-check"])
def test_checks_of_indexes(kafka: Kafka, clean_data: Path, option: str) -> None:
    indexes = files(clean_data, "segments", ".index", ".timeindex")
    assert our_dump(indexes, option) == lines(kafka.dump(indexes, option))


def test_the_metadata_quorums_log_and_its_bootstrap_snapshot(kafka: Kafka, clean_data: Path) -> None:
    log = files(clean_data, "__cluster_metadata", ".log")
    assert our_dump(log, "--shallow-iteration") == lines(kafka.dump(log))
    snapshot = [clean_data / "bootstrap.checkpoint"]
    printed = [line for line in lines(kafka.dump(snapshot)) if line != "KRaft bootstrap snapshot"]
    assert our_dump(snapshot, "--shallow-iteration") == printed


def test_checkpoints(clean_data: Path) -> None:
    printed = our_dump([clean_data / "recovery-point-offset-checkpoint"])
    assert "topic: segments partition: 0 offset: 3000" in printed
    printed = our_dump(sorted((clean_data / "segments-0").glob("leader-epoch-checkpoint")))
    assert "epoch: 0 startOffset: 0" in printed


def test_messages_of_magic_0_and_1(kafka: Kafka, tmp_path: Path) -> None:
    """A broker of today writes none any more, but its tool reads them."""
    log = write_log(tmp_path, [every_kind()])
    assert our_dump([log], "--shallow-iteration") == lines(kafka.dump([log]))
    assert our_dump([log]) == list(as_classic(lines(kafka.dump([log], "--print-data-log"))))
