"""REQUIREMENTS, "Cluster"."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

from streamlog.api.pb import admin_pb2, batches_pb2, cluster_pb2, records_pb2
from streamlog.cli.main import main
from streamlog.client import EARLIEST, Admin, Consumer, Producer
from streamlog.daemon.free_ports import free_ports
from streamlog.daemon.local_process import ProcessId
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.requirements.conftest import Ctl, Piped, ctl_of, until
from tests.services.raw import unary


def test_brokers_topics_partitions_replicas(
    streamlog_cluster: InProcessCluster, admin: Admin, servers: str, ctl: Ctl, topic: Callable[..., str]
) -> None:
    """Brokers (nodes) in any number; producers write, consumers read; topics -> partitions -> replicas (leader and
    followers), each on its broker's own disks.
    """
    name = topic(partitions=3, replication_factor=3)
    with Producer(bootstrap_servers=servers) as producer:
        for partition in range(3):
            producer.send(name, b"to %d" % partition, partition=partition).result(30)
    with Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign_topics([name], start=EARLIEST)
        read: list[bytes | None] = []
        while len(read) < 3:
            read += [record.value for record in consumer.poll(timeout_s=30)]
    assert sorted(str(value) for value in read) == [f"b'to {partition}'" for partition in range(3)]
    for one in admin.describe_topic(name).partitions:
        assert one.leader in one.replicas
        assert sorted(one.replicas) == [1, 2, 3]
    rows = json.loads(ctl("cluster", "log-dirs", "--topic", name, "--replicas", "-o", "json"))
    assert sorted((row["node"], row["partition"]) for row in rows) == [
        (node, partition) for node in (1, 2, 3) for partition in range(3)
    ]
    paths = {row["node"]: Path(row["path"]) for row in rows}
    assert len(set(paths.values())) == 3
    assert all((path / f"{name}-0" / "00000000000000000000.log").stat().st_size > 0 for path in paths.values())


def test_one_broker_is_a_cluster_too(tmp_path: Path) -> None:
    """Brokers (nodes) in any number."""
    with InProcessCluster(tmp_path, nodes=1) as cluster:
        assert ctl_of(cluster.bootstrap_servers)("topic", "create", "alone") == "Created topic alone.\n"
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            assert producer.send("alone", b"value").result(30).offset == 0


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_one_port_and_any_node(
    streamlog_cluster: InProcessCluster, piped: Piped, ctl: Ctl, topic: Callable[..., str], asked: int
) -> None:
    """One gRPC port a node for everything. Any node answers for the cluster's metadata and passes a request on to the
    right leader, so one address is enough to start.
    """
    name = topic(partitions=3)
    address = streamlog_cluster.address(asked)
    with grpc.insecure_channel(address) as channel:
        answer = unary(
            channel, "Batches/Metadata", batches_pb2.MetadataRequest(topics=[name]), batches_pb2.MetadataResponse
        )
        assert [node.node_id for node in answer.nodes] == [1, 2, 3]
        assert len({partition.leader for partition in answer.topics[0].partitions}) == 3
        records = [records_pb2.PublishRecord(value=b"%d" % number, partition=number) for number in range(3)]
        request = records_pb2.PublishRequest(topic=name, records=records)
        written = unary(channel, "Records/Publish", request, records_pb2.PublishResponse)
        assert [(one.partition, one.offset) for one in written.results] == [(0, 0), (1, 0), (2, 0)]
        one = unary(
            channel, "Cluster/Describe", cluster_pb2.ClusterDescribeRequest(), cluster_pb2.ClusterDescribeResponse
        )
        assert one.node_id == asked
        # Health and reflection are served there as well.
        check: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"", timeout=20) == b"\x08\x01"
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topic(f"{name}-by-{asked}")
    assert f"{name}-by-{asked}\n" in ctl("topic", "list", "--bootstrap-server", address)
    read, _ = piped("consume", name, "--from-beginning", "--max-messages", "3", "--bootstrap-server", address)
    assert sorted(read.splitlines()) == ["0", "1", "2"]


def test_the_default_port_is_9092() -> None:
    """One gRPC port a node for everything, 9092 by default."""
    done = CliRunner().invoke(main, ["topic", "list", "--help"])
    assert "127.0.0.1:9092" in done.output
    command = [sys.executable, "-m", "streamlog.daemon.main", "--override", "node.id=1", "--print-config"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "listeners=PLAINTEXT://127.0.0.1:9092" in printed.replace("\\", "")


@pytest.mark.process
@pytest.mark.parametrize("flag", ["-daemon", "--daemon"])
def test_streamlogd(tmp_path: Path, flag: str) -> None:
    """Start in the foreground or with `-daemon`/`--daemon`, with a properties-like config file and `--override
    key=value`. Config names are Kafka's.
    """
    [port] = free_ports(1)
    file = tmp_path / "server.properties"
    file.write_text("node.id=7\nnum.partitions=2\nlog.dirs=data\n")
    settings = [str(file), "--override", f"listeners=PLAINTEXT://127.0.0.1:{port}", "--override", "num.partitions=4"]
    command = [sys.executable, "-m", "streamlog.daemon.main", flag, *settings]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60, stdout=subprocess.DEVNULL)
    [pid_file] = tmp_path.rglob("*.pid")
    process = ProcessId.of(int(pid_file.read_text()))
    assert process is not None
    try:
        ctl = ctl_of(f"127.0.0.1:{port}")
        ctl("topic", "create", "t")
        assert ctl("topic", "describe", "t").startswith("Topic: t\tPartitionCount: 4\t")
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait_until_exited(30)
    finally:
        process.signal(signal.SIGKILL)


def test_a_raft_quorum_does_what_zookeeper_did(
    streamlog_cluster: InProcessCluster, admin: Admin, ctl: Ctl, topic: Callable[..., str]
) -> None:
    """No ZooKeeper: what it did (online status, metadata, leader election, failure detection, spreading requests) a
    Raft metadata quorum does.
    """
    name = topic(partitions=3, replication_factor=3)
    assert len(json.loads(ctl("cluster", "quorum", "-o", "json"))["voters"]) == 3
    gone = admin.describe_cluster().controller
    assert gone is not None
    streamlog_cluster.stop_node(gone)
    try:
        # The others elect a controller, which says who is gone and who leads instead, and decides on.
        admin.create_topic(f"{name}-later", replication_factor=2)
        assert admin.describe_cluster().controller not in (None, gone)
        active = {1, 2, 3} - {gone}
        until(lambda: {one.node_id for one in admin.describe_cluster().nodes if one.state.value == "active"} == active)
        with Producer(bootstrap_servers=streamlog_cluster.bootstrap_servers) as producer:
            for partition in range(3):
                producer.send(name, b"value", partition=partition).result(60)
        leaders = {partition.leader for partition in admin.describe_topic(name).partitions}
        assert gone not in leaders
    finally:
        streamlog_cluster.start_node(gone)
    with grpc.insecure_channel(streamlog_cluster.address(gone)) as channel:
        request = admin_pb2.DescribeClusterRequest()
        answer = unary(channel, "Admin/DescribeCluster", request, admin_pb2.DescribeClusterResponse)
    assert all(node.state == admin_pb2.NODE_STATE_ACTIVE for node in answer.nodes)
