"""The real broker left the files that the other tests are about; if it did not, they would prove nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from .real_kafka import Kafka
from .workload import CODECS, KEYS, ROUNDS

pytestmark = pytest.mark.interop


def files(data: Path, topic: str, suffix: str) -> list[Path]:
    return sorted(file for file in (data / f"{topic}-0").iterdir() if file.suffix == suffix)


@pytest.mark.parametrize("codec", CODECS)
def test_each_codec_was_written(kafka: Kafka, clean_data: Path, codec: str) -> None:
    printed = kafka.dump(files(clean_data, f"codec-{codec}", ".log"))
    assert printed.count(f"compresscodec: {codec} ") == 3


def test_several_segments_with_entries_in_their_indexes(clean_data: Path) -> None:
    assert len(files(clean_data, "segments", ".log")) >= 3
    assert all(file.stat().st_size > 8 for file in files(clean_data, "segments", ".index")[:-1])
    assert all(file.stat().st_size > 12 for file in files(clean_data, "segments", ".timeindex")[:-1])


def test_the_compacted_topic_was_compacted(kafka: Kafka, clean_data: Path) -> None:
    printed = kafka.dump(files(clean_data, "compacted", ".log"), "--print-data-log", compacted=True)
    records = [line for line in printed.splitlines() if line.startswith("| offset:")]
    assert KEYS <= len(records) < KEYS * ROUNDS / 2
    assert "deleteHorizonMs: OptionalLong[" in printed, "the tombstone was not cleaned"


def test_transactions_were_committed_and_aborted(kafka: Kafka, clean_data: Path) -> None:
    printed = kafka.dump(files(clean_data, "transactions", ".log"), "--print-data-log")
    assert printed.count("endTxnMarker: COMMIT") == printed.count("endTxnMarker: ABORT") == 4
    assert any(file.stat().st_size > 0 for file in files(clean_data, "transactions", ".txnindex"))
    assert files(clean_data, "transactions", ".snapshot")


def test_the_clean_stop_trimmed_and_the_kill_did_not(clean_data: Path, unclean_data: Path) -> None:
    assert max(file.stat().st_size for file in files(clean_data, "segments", ".index")) < 10485760
    assert max(file.stat().st_size for file in files(unclean_data, "segments", ".index")) == 10485760
    assert (clean_data / ".kafka_cleanshutdown").exists()
    assert not (unclean_data / ".kafka_cleanshutdown").exists()
