"""Real processes and kill -9: what archive and backfill carry over is exact, whenever their driver dies."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'streamlog[spark]'")

from streamlog.client import Producer
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.spark.drivers import Driver, batches, has_batch, parquet_rows
from tests.spark.records import committed

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.rounds, pytest.mark.timeout(2400)]

Row = tuple[object, ...]
COLUMNS = ["key", "value", "partition", "offset", "timestamp", "headers"]
# Of records: noon, days apart, so that there is more than one folder.
NOON_MS, DAY_MS = 1_763_726_400_000, 86_400_000


def fill(servers: str, topic: str, count: int, start: int = 0) -> None:
    """Records of all kinds, numbered in their values but for some that have none."""
    some = random.Random(start)
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(start, start + count):
            producer.send(
                topic,
                None if number % 50 == 0 else b"" if number % 50 == 1 else b"%06d" % number + some.randbytes(50),
                key=None if number % 3 == 0 else b"k%d" % (number % 7),
                partition=number % 3,
                timestamp_ms=NOON_MS + number % 3 * DAY_MS + number,
                headers=(("n", b"%d" % number), ("none", None)) if number % 5 == 0 else (),
            )


def topic_rows(servers: str, topic: str, *, where: bool = True) -> list[Row]:
    """`where`: with partition and offset."""
    return [
        (one.key, one.value, one.timestamp_ms, tuple(one.headers)) + ((one.partition, one.offset) if where else ())
        for one in committed(servers, topic)
    ]


def archived(folder: Path) -> list[Row]:
    found: list[Row] = []
    for row in parquet_rows(folder, COLUMNS):
        key, value, partition, offset, at, headers = (row[name] for name in COLUMNS)
        shown = tuple((one["key"], one["value"]) for one in headers or ())  # type: ignore[attr-defined]
        found.append((key, value, round(at.timestamp() * 1000), shown, partition, offset))  # type: ignore[attr-defined]
    return found


def test_archive_and_backfill_whose_drivers_are_killed(cluster: InProcessCluster, tmp_path: Path) -> None:
    """Killed in the first micro-batch and in a later one; in between and at the end stopped in good order."""
    servers, topic, again = cluster.bootstrap_servers, "to-archive", "from-archive"
    for name in (topic, again):
        cluster.create_topic(name, partitions=3)
    fill(servers, topic, 600)
    state, path = tmp_path / "state", tmp_path / "archive"
    archive = Driver(
        tmp_path / "archive-driver",
        "archive",
        servers,
        topics=topic,
        path=str(path),
        checkpoint=str(state),
        max__offsets__per__trigger="150",
    )
    with archive:
        archive.start()
        archive.until(lambda: 0 in batches(state / "archive", "offsets"), "batch 0 has started")
        archive.kill()
        assert 0 not in batches(state / "archive", "commits"), "it was killed in the middle"
        archive.start()
        archive.until(lambda: 1 in batches(state / "archive", "commits"), "batch 1 is done")
        assert archive.stop() == 0, archive.said()[-3000:]
        fill(servers, topic, 300, 600)
        begun = max(batches(state / "archive", "offsets"))
        archive.start()
        archive.until(lambda: begun + 1 in batches(state / "archive", "offsets"), "another has started")
        archive.kill()
        archive.start()
        archive.until(lambda: len(archived(path)) >= 900, "all is archived")
        assert archive.stop() == 0, archive.said()[-3000:]
    assert Counter(archived(path)) == Counter(topic_rows(servers, topic))
    assert len({one.parent for one in path.glob("topic=*/date=*/*.parquet")}) == 3

    state = tmp_path / "backfill-state"
    backfill = Driver(
        tmp_path / "backfill-driver",
        "backfill",
        servers,
        topic=again,
        path=str(path),
        checkpoint=str(state),
        max__files__per__trigger="5",
    )
    with backfill:
        for kind, number in (("offsets", 0), ("commits", 0)):
            backfill.start()
            backfill.until(partial(has_batch, state / "backfill", kind, number), f"{kind}/{number}")
            backfill.kill()
        backfill.start()
        assert backfill.wait() == 0, backfill.said()[-3000:]
    assert len(batches(state / "backfill", "commits")) > 1
    assert Counter(topic_rows(servers, again, where=False)) == Counter(topic_rows(servers, topic, where=False))
