"""Real processes and kill -9: pipelines whose driver dies again and again, and a broker once, count right."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'streamlog[spark]'")

from demo.lines import log_lines
from streamlog.client import AsyncProducer
from tests.e2e.processes import Processes
from tests.spark.drivers import Driver, has_batch, parquet_rows
from tests.spark.records import committed

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.rounds, pytest.mark.timeout(2400)]

LINE = re.compile(rb"(\S+) +([A-Z]+) +\[([^\]]*)\]")
# Beyond the last window by more than the watermark, so that all windows are written.
LAST = b"2027-01-31T00:00:00.000 INFO  [Test] the end"


def minute(time: bytes) -> str:
    return time.decode()[:16]


def counted(lines: list[bytes]) -> Counter[tuple[str, str, str]]:
    """What the pipeline is to find: by minute, level and component."""
    found: Counter[tuple[str, str, str]] = Counter()
    for line in lines:
        match = LINE.match(line)
        assert match is not None
        found[minute(match[1]), match[2].decode(), match[3].decode()] += 1
    return found


async def send(servers: str, topic: str, lines: list[bytes]) -> None:
    async with AsyncProducer(bootstrap_servers=servers) as producer:
        await producer.send_many(topic, lines)
        await producer.flush()


async def test_log_counts_while_the_driver_is_killed_five_times_and_a_broker_once(tmp_path: Path) -> None:
    lines = log_lines()
    async with Processes(tmp_path / "cluster", transaction_two_phase_commit_enable="true") as cluster:
        servers = cluster.bootstrap_servers
        for name in ("lines", "counts"):
            await cluster.create_topic(name, 3)
        await send(servers, "lines", lines)
        checkpoint, out = tmp_path / "state", tmp_path / "counts"
        topic_state = checkpoint / "counts-to-topic"
        driver = Driver(
            tmp_path / "driver",
            "log-counts",
            servers,
            topics="lines",
            window="1 minute",
            watermark="2 days",
            checkpoint=str(checkpoint),
            out__topic="counts",
            out__path=str(out),
            max__offsets__per__trigger="1000",
        )
        with driver:
            # Killed when so many micro-batches have begun, the first included, or are done.
            for kind, number in (("offsets", 0), ("commits", 0), ("offsets", 3), ("commits", 4), ("offsets", 7)):
                driver.start()
                driver.until(partial(has_batch, topic_state, kind, number), f"{kind}/{number}")
                driver.kill()
                if number == 3:
                    victim = await cluster.leader("lines", 0)
                    cluster.kill(victim)
            cluster.start(victim)
            driver.start()
            await send(servers, "lines", [LAST])
            expected = counted(lines)
            driver.until(lambda: len(counts_written(servers)) >= len(expected), "all counts in the topic")
            driver.until(lambda: len(rows(out)) >= len(expected), "all counts in Parquet")
            assert driver.stop() == 0, driver.said()[-3000:]
        assert Counter(dict(counts_written(servers))) == expected
        assert len(counts_written(servers)) == len(expected), "none twice"
        assert Counter(dict(rows(out))) == expected
        assert len(rows(out)) == len(expected), "none twice"


def counts_written(servers: str) -> list[tuple[tuple[str, str, str], int]]:
    """The topic's counts, record by record."""
    found = []
    for record in committed(servers, "counts"):
        assert record.value is not None
        row = json.loads(record.value)
        found.append(((row["start"][:16], row["level"], row["component"]), row["lines"]))
    return found


def rows(folder: Path) -> list[tuple[tuple[str, str, str], int]]:
    """The Parquet files' counts, row by row."""
    found = []
    for row in parquet_rows(folder, ["start", "level", "component", "lines"]):
        start = row["start"]
        assert isinstance(start, datetime)
        at = start.astimezone(UTC) if start.tzinfo else start
        found.append(((at.isoformat()[:16], str(row["level"]), str(row["component"])), row["lines"]))
    return found  # type: ignore[return-value]
