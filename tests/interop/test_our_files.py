"""What our storage writes, Kafka's tools read: segments, indexes, snapshots; trimmed or left by a kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlog.records import Codec

from .dumps import files, our_dump
from .kafka_lines import as_classic, lines
from .our_storage import append, config_of, opened, partition
from .real_kafka import Kafka
from .workload import mixed_records

pytestmark = pytest.mark.interop

TOPIC = "segments"


async def fill(path: Path, *, clean_stop: bool) -> None:
    async with opened(path, clean_stop=clean_stop) as directory:
        log = await directory.create_log(partition(TOPIC), config_of(partition(TOPIC)))
        for number, codec in enumerate(Codec):
            append(log, mixed_records(500, start=500 * number), batch=5, codec=codec)
        await directory.group_commit.sync_now()
        await directory.checkpoint()


async def test_segments_and_indexes(kafka: Kafka, tmp_path: Path) -> None:
    await fill(tmp_path, clean_stop=True)
    logs, rest = files(tmp_path, TOPIC, ".log"), files(tmp_path, TOPIC, ".index", ".timeindex", ".snapshot")
    assert len(logs) >= 3
    assert our_dump(logs) == list(as_classic(lines(kafka.dump(logs, "--print-data-log", "--deep-iteration"))))
    assert our_dump(rest) == lines(kafka.dump(rest))
    indexes = files(tmp_path, TOPIC, ".index", ".timeindex")
    for option in ("--verify-index-only", "--index-sanity-check"):
        assert our_dump(indexes, option) == lines(kafka.dump(indexes, option))


async def test_indexes_of_a_killed_process(kafka: Kafka, tmp_path: Path) -> None:
    await fill(tmp_path, clean_stop=False)
    logs, indexes = files(tmp_path, TOPIC, ".log"), files(tmp_path, TOPIC, ".index", ".timeindex")
    assert indexes[-1].stat().st_size > 1 << 20, "the active segment's indexes are preallocated"
    assert our_dump(logs) == list(as_classic(lines(kafka.dump(logs, "--print-data-log"))))
    assert our_dump(indexes) == lines(kafka.dump(indexes))
