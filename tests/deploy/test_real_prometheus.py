"""Real nodes, scraped by a real Prometheus: alerts fire when nodes fail and groups lag, and resolve; numbers agree."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from streamlog.cli.main import main
from streamlog.client import Admin, Producer
from streamlog.daemon.local_cluster import LocalCluster
from streamlog.model import PartitionId, TopicPartition
from tests.deploy.prometheus import LAG_LIMIT, Prometheus

pytestmark = [
    pytest.mark.long,
    pytest.mark.process,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed (Debian: prometheus)"),
]

RECORDS = 5 * LAG_LIMIT


class Rig:
    def __init__(self, cluster: LocalCluster, prometheus: Prometheus) -> None:
        self.cluster = cluster
        self.prometheus = prometheus
        self.servers = ",".join(node.address for node in cluster.nodes)

    def run(self, *arguments: str) -> str:
        done = CliRunner().invoke(main, arguments, env={"STREAMLOG_BOOTSTRAP_SERVERS": self.servers})
        assert done.exit_code == 0, done.output
        return done.stdout


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    directory = tmp_path_factory.mktemp("prometheus")
    cluster = LocalCluster(directory / "cluster")
    cluster.create(3, 0, {})
    for node in cluster.nodes:
        cluster.start(node)
    try:
        targets = [node.http.removeprefix("http://") for node in cluster.nodes]
        with Prometheus(directory, targets) as prometheus:
            found = Rig(cluster, prometheus)
            prometheus.wait_until("ready", lambda: prometheus.query("sum(streamlog_ready)")[0:1] == [({}, 3.0)])
            with Admin(bootstrap_servers=found.servers) as admin:
                admin.create_topic("orders", partitions=3, replication_factor=3)
            yield found
    finally:
        for node in cluster.nodes:
            cluster.kill(node)


def write(rig: Rig, count: int) -> None:
    with Producer(bootstrap_servers=rig.servers) as producer:
        for partition in range(3):
            producer.send_many("orders", [b"x" * 50] * count, partition=partition).result(60)


def commit(rig: Rig, offset: int) -> None:
    with Admin(bootstrap_servers=rig.servers) as admin:
        admin.alter_group_offsets("g", {TopicPartition("orders", PartitionId(n)): offset for n in range(3)})


def test_numbers_agree(rig: Rig) -> None:
    """What was written, /metrics, Prometheus with the shipped rules, `top` and `group describe`."""
    write(rig, RECORDS)
    commit(rig, RECORDS - 7)
    appended = 'sum(streamlog_topic_records_in_total{topic="orders"})'
    lag = 'sum by (group, topic) (streamlog:group_lag_records{group="g"})'
    rig.prometheus.wait_until("scraped", lambda: [value for _, value in rig.prometheus.query(lag)] == [21.0])
    rig.prometheus.wait_until("scraped", lambda: rig.prometheus.query(appended) == [({}, 3.0 * RECORDS)])
    frame = json.loads(rig.run("top", "--once", "--interval", "1", "--output", "json"))
    assert [(one["group"], one["lag"]) for one in frame["groups"]] == [("g", 21)]
    described = json.loads(rig.run("group", "describe", "g", "--output", "json"))
    assert sum(_lags(described)) == 21
    pages = []
    for node in rig.cluster.nodes:
        with urllib.request.urlopen(f"{node.http}/metrics", timeout=30) as response:
            page = response.read()
        done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        pages.append(page.decode())
    counted = [
        float(line.split()[1])
        for page in pages
        for line in page.splitlines()
        if line.startswith('streamlog_topic_records_in_total{topic="orders"}')
    ]
    assert sum(counted) == 3 * RECORDS


def _lags(document: object) -> list[int]:
    """All values named `lag` in a JSON document."""
    if isinstance(document, dict):
        own = [document["lag"]] if isinstance(document.get("lag"), int) else []
        return own + [lag for value in document.values() for lag in _lags(value)]
    return [lag for value in document for lag in _lags(value)] if isinstance(document, list) else []


def test_a_lagging_group_fires_and_resolves(rig: Rig) -> None:
    write(rig, RECORDS)
    commit(rig, 0)
    rig.prometheus.wait_for_alerts("StreamlogGroupLag")
    with Admin(bootstrap_servers=rig.servers) as admin:
        ends = {row.at.partition: row.log_end for row in admin.group_lag("g")}
    assert all(end is not None for end in ends.values())
    commit(rig, min(end for end in ends.values() if end is not None))
    rig.prometheus.wait_until_resolved()


def test_failed_nodes_fire_and_resolve(rig: Rig) -> None:
    """One node of three: replicas are missing. Two of three: the voters have no majority."""
    with Admin(bootstrap_servers=rig.servers) as admin:
        controller = admin.describe_cluster().controller
    others = [node for node in rig.cluster.nodes if node.node_id != controller]
    rig.cluster.kill(others[0])
    rig.prometheus.wait_for_alerts("StreamlogNodeDown", "StreamlogUnderReplicated")
    down = {labels["instance"] for labels, _ in rig.prometheus.query('ALERTS{alertname="StreamlogNodeDown"}')}
    assert down == {others[0].http.removeprefix("http://")}
    assert "StreamlogNoController" not in rig.prometheus.firing()
    rig.cluster.kill(others[1])
    rig.prometheus.wait_for_alerts("StreamlogNodeDown", "StreamlogNoController")
    for node in others:
        rig.cluster.start(node)
    rig.prometheus.wait_until_resolved()
