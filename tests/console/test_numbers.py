"""Numbers agree: rates and lags counted here, on the console's pages, in /metrics and from streamlogctl.

Each of them looks at another moment and over another span. So what was acknowledged is noted with its time, and a rate
is right if it is between the least and the greatest of all spans of its length that ended within a sample.
"""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.request
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("nicegui", reason="streamlog[console] is not installed")

from click.testing import CliRunner

from streamlog.cli.main import main
from streamlog.client import Admin, Producer
from streamlog.console.collection.sampler import INTERVAL_S, RATE_OVER
from streamlog.daemon.local_cluster import LocalCluster
from streamlog.model import PartitionId, TopicPartition
from tests.console.access.running import RunningConsole

pytestmark = [pytest.mark.process]

WAIT_S: Final = 100.0
PARTITIONS: Final = 3
BATCH: Final = 30
PAUSE_S: Final = 0.05
LAG: Final = 21
TOP_S: Final = 5.0
SAMPLE_S: Final = 1.0
"""How long the console reads a sample, at most."""
IN_FLIGHT: Final = 2 * BATCH
"""Appended and not acknowledged yet, at either end of a span."""


class Load:
    """Writes at a steady pace, in a thread, until it is stopped."""

    def __init__(self, servers: str) -> None:
        self._producer = Producer(bootstrap_servers=servers)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.counted: list[tuple[float, int]] = [(time.monotonic(), 0)]  # (time, acknowledged until then)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._producer.close()

    def _write(self) -> None:
        partition = 0
        while not self._ended.wait(PAUSE_S):
            partition = (partition + 1) % PARTITIONS
            self._producer.send_many("load", [b"x"] * BATCH, partition=partition).result(WAIT_S)
            self.counted.append((time.monotonic(), self.total + BATCH))

    @property
    def total(self) -> int:
        return self.counted[-1][1]

    def until(self, at_s: float) -> int:
        return self.counted[max(0, bisect_right(self.counted, at_s, key=lambda one: one[0]) - 1)][1]

    def has_seen(self, rate: float, span_s: float, slack_s: float) -> bool:
        """Whether a second of a span that has ended within the last sample had this rate. `slack_s`: how long the
        reading at its ends took.
        """
        ended_s = time.monotonic()
        ends_s = [ended_s - step / 10 for step in range(round((INTERVAL_S + slack_s) * 10))]
        least = min(self.until(end_s) - self.until(end_s - span_s + slack_s) for end_s in ends_s)
        most = max(self.until(end_s) - self.until(end_s - span_s - slack_s) for end_s in ends_s)
        print(f"{rate:.1f} a second in {span_s:.1f} +- {slack_s:.1f} s; {least} to {most} records")
        return least - IN_FLIGHT <= rate * span_s <= most + IN_FLIGHT


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    found = LocalCluster(tmp_path_factory.mktemp("numbers") / "cluster")
    found.create(3, 0, {})
    for node in found.nodes:
        found.start(node)
    with Admin(bootstrap_servers=servers(found)) as admin:
        wait_until(lambda: len(admin.describe_cluster().nodes) == 3)
        admin.create_topic("load", partitions=PARTITIONS, replication_factor=3)
    yield found
    for node in found.nodes:
        found.kill(node)


def servers(cluster: LocalCluster) -> str:
    return ",".join(node.address for node in cluster.nodes)


def wait_until(condition: Callable[[], bool]) -> None:
    """Looked at once a second: a session may have a limited number of pages open."""
    deadline_s, pause = time.monotonic() + WAIT_S, threading.Event()
    while not condition():
        assert time.monotonic() < deadline_s
        pause.wait(1.0)


def load_page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=WAIT_S) as response:
        return str(response.read().decode())


def row(url: str, key: str, name: str) -> dict[str, Any]:
    """A row of the page's table; empty: it is not there yet."""
    found = re.search(rf'{{"{key}":"{name}"[^{{}}]*}}', load_page(url))
    return {} if found is None else dict(json.loads(found[0]))


def appended(cluster: LocalCluster) -> float:
    """In /metrics of all nodes."""
    pages = [load_page(f"{node.http}/metrics") for node in cluster.nodes]
    found = re.findall(r'^streamlog_topic_records_in_total\{topic="load"\} (\S+)$', "\n".join(pages), re.MULTILINE)
    return sum(map(float, found))


def run(cluster: LocalCluster, *arguments: str) -> Any:
    done = CliRunner().invoke(
        main, [*arguments, "--output", "json"], env={"STREAMLOG_BOOTSTRAP_SERVERS": servers(cluster)}
    )
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.long
def test_rates_agree(cluster: LocalCluster, tmp_path: Path) -> None:
    span_s = INTERVAL_S * (RATE_OVER - 1)
    with RunningConsole(tmp_path, servers=servers(cluster)) as console, Load(servers(cluster)) as load:
        topics = f"{console.url.rstrip('/')}/topics"
        wait_until(lambda: row(topics, "topic", "load").get("rate", 0) > 0)
        first_s, first = time.monotonic(), appended(cluster)
        slack_s = time.monotonic() - first_s
        wait_until(lambda: load.counted[-1][0] - load.counted[0][0] > 2 * span_s + 2 * INTERVAL_S)
        assert load.has_seen(row(topics, "topic", "load")["rate"], span_s, SAMPLE_S)

        begun_s = time.monotonic()
        frame = run(cluster, "top", "--once", "--interval", str(TOP_S))
        [topic] = [one for one in frame["topics"] if one["topic"] == "load"]
        assert load.has_seen(topic["records_per_s"], TOP_S, time.monotonic() - begun_s - TOP_S)

        begun_s, counted = time.monotonic(), appended(cluster)
        slack_s += time.monotonic() - begun_s
        assert load.has_seen((counted - first) / (begun_s - first_s), begun_s - first_s, slack_s)
    wait_until(lambda: appended(cluster) == load.total)  # a collection is reused for a second


def test_lags_agree(cluster: LocalCluster, tmp_path: Path) -> None:
    with Producer(bootstrap_servers=servers(cluster)) as producer:
        for partition in range(PARTITIONS):
            producer.send_many("load", [b"x"] * LAG, partition=partition).result(WAIT_S)
    with Admin(bootstrap_servers=servers(cluster)) as admin:
        admin.alter_group_offsets("g", {TopicPartition("load", PartitionId(n)): 0 for n in range(PARTITIONS)})
        ends = {one.at: one.log_end for one in admin.group_lag("g")}
        behind = LAG // PARTITIONS
        admin.alter_group_offsets("g", {at: end - behind for at, end in ends.items() if end is not None})
        assert sum(one.lag or 0 for one in admin.group_lag("g")) == LAG
    with RunningConsole(tmp_path, servers=servers(cluster)) as console:
        groups = f"{console.url.rstrip('/')}/groups"
        wait_until(lambda: row(groups, "group", "g") != {})
        assert row(groups, "group", "g")["lag"] == f"{LAG:,}"
    frame = run(cluster, "top", "--once", "--interval", "1")
    assert [one["lag"] for one in frame["groups"] if one["group"] == "g"] == [LAG]
    text = "\n".join(load_page(f"{node.http}/metrics") for node in cluster.nodes)
    committed = _samples(text, r"streamlog_group_committed_offset\{group=\"g\",partition=\"(\d)\",topic=\"load\"\}")
    watermarks = _samples(text, r"streamlog_high_watermark\{partition=\"(\d)\",topic=\"load\"\}")
    assert sum(max(watermarks[partition]) - max(offsets) for partition, offsets in committed.items()) == LAG


def _samples(text: str, pattern: str) -> dict[str, list[float]]:
    """By partition: of each node that has it."""
    found: dict[str, list[float]] = {}
    for partition, value in re.findall(rf"^{pattern} (\S+)$", text, re.MULTILINE):
        found.setdefault(partition, []).append(float(value))
    return found
