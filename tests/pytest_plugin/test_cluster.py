"""The fixture that streamlog ships: a real cluster in the test's process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from streamlog.access.acl import Acl, AclOperation, AclResourceType
from streamlog.client import Admin, Producer
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.producer.async_producer import AsyncProducer
from streamlog.errors import (
    InvalidConfigError,
    InvalidRequestError,
    RequestTimedOutError,
    SslAuthenticationError,
    StorageError,
    TopicAuthorizationError,
)
from streamlog.pytest_plugin import cluster as plugin
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.support.otlp_receiver import receiving


def test_nodes_serve_when_the_test_begins(streamlog_cluster: InProcessCluster) -> None:
    made = streamlog_cluster.create_topic("orders", partitions=3)
    assert (made.partition_count, made.replication_factor) == (3, 3)
    cluster = streamlog_cluster.with_admin(lambda admin: admin.describe_cluster())
    assert [node.node_id for node in cluster.nodes] == list(streamlog_cluster.node_ids) == [1, 2, 3]
    assert streamlog_cluster.bootstrap_servers.split(",") == [node.address for node in cluster.nodes]


async def test_a_test_with_an_event_loop_of_its_own(streamlog_cluster: InProcessCluster) -> None:
    streamlog_cluster.create_topic("orders")
    async with AsyncProducer(bootstrap_servers=streamlog_cluster.bootstrap_servers) as producer:
        assert (await producer.send("orders", b"one")).offset == 0
    async with AsyncAdmin(bootstrap_servers=streamlog_cluster.bootstrap_servers) as admin:
        digests = await admin.digest_replicas("orders", 0)
    assert [replica.log_end for replica in digests.replicas] == [1, 1, 1]
    assert digests.identical


def test_a_node_goes_and_comes_back(streamlog_cluster: InProcessCluster) -> None:
    streamlog_cluster.create_topic("orders")
    streamlog_cluster.stop_node(2)
    streamlog_cluster.stop_node(2)
    asyncio.run(_write(streamlog_cluster, 100))
    streamlog_cluster.start_node(2)
    cluster = streamlog_cluster.with_admin(lambda admin: admin.describe_cluster())
    assert [node.state.value for node in cluster.nodes] == ["active"] * 3
    with pytest.raises(InvalidRequestError):
        streamlog_cluster.stop_node(9)


async def _write(cluster: InProcessCluster, count: int) -> None:
    async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await (await producer.send_many("orders", [b"x"] * count))


def test_other_sizes_and_settings(tmp_path: Path) -> None:
    with InProcessCluster(tmp_path, nodes=1, settings={"num.partitions": "5"}) as cluster:
        made = cluster.create_topic("orders", partitions=None)
        assert (made.partition_count, made.replication_factor) == (5, 1)
        assert cluster.client_settings("alice") == {"bootstrap.servers": cluster.bootstrap_servers}
        with pytest.raises(InvalidRequestError, match="it is not secure"):
            cluster.principal("alice")
    with pytest.raises(InvalidConfigError):
        InProcessCluster(tmp_path, settings={"num.partitions": "none"})


def test_a_failed_start_leaves_nothing_running(tmp_path: Path) -> None:
    (tmp_path / "node-1").write_text("a file in the place of the directory")
    before = set(threading.enumerate())
    cluster = InProcessCluster(tmp_path, nodes=3)
    with pytest.raises(StorageError, match="node-1 cannot be opened"):
        cluster.start()
    assert set(threading.enumerate()) <= before
    cluster.stop()  # in a `finally` of the caller


def test_without_a_start_and_after_a_stop_there_is_an_error_and_no_wait(tmp_path: Path) -> None:
    cluster = InProcessCluster(tmp_path, nodes=1)
    for said in (r"not running: call start\(\) before", "stopped: make another InProcessCluster"):
        with pytest.raises(InvalidRequestError, match=f"the cluster is {said}"):
            cluster.create_topic("orders")
        cluster.stop()


def test_a_defect_of_a_node_is_not_passed_over(tmp_path: Path) -> None:
    cluster = InProcessCluster(tmp_path, nodes=1).start()
    cluster.fail_node(1, StorageError("planted"))
    with pytest.raises(StorageError, match="planted"):
        cluster.stop()


def test_a_node_that_does_not_stop_ends_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with InProcessCluster(tmp_path, nodes=1) as running, monkeypatch.context() as patched:
        patched.setattr(plugin, "STOP_TIMEOUT_S", 0)
        with pytest.raises(RequestTimedOutError, match=f"{running.address(1)} did not stop within 0 s"):
            running.stop_node(1)


def test_the_plugin_loads_nothing_until_it_is_asked() -> None:
    script = "import sys, streamlog.pytest_plugin; print(sorted(n for n in sys.modules if n.startswith('streamlog')))"
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "['streamlog', 'streamlog.pytest_plugin', 'streamlog.release']"


def test_nodes_export_their_spans(tmp_path: Path) -> None:
    with receiving() as (receiver, endpoint):
        settings = {"tracing.exporter": "otlp", "tracing.otlp.endpoint": endpoint, "tracing.sample.ratio": "1"}
        with InProcessCluster(tmp_path, nodes=1, settings=settings) as cluster:
            cluster.create_topic("orders")
            wanted = "streamlog.v1.Admin/CreateTopics"
            receiver.wait_until(lambda spans: any(span.name == wanted for span in spans), 60)


def test_tracing_without_its_package_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamlog.daemon.tracing_choice.NEEDED", ("opentelemetry.of.another.world",))
    with pytest.raises(InvalidConfigError, match="OpenTelemetry"):
        InProcessCluster(tmp_path, nodes=1, settings={"tracing.exporter": "otlp"})


def test_a_secure_cluster(streamlog_cluster_secure: InProcessCluster) -> None:
    """The administrator may do everything, others what the lists allow, strangers nothing."""
    cluster = streamlog_cluster_secure
    cluster.create_topic("orders")
    orders = Acl(
        resource_type=AclResourceType.TOPIC,
        name="orders",
        principal=cluster.principal("alice"),
        operation=AclOperation.WRITE,
    )
    cluster.with_admin(lambda admin: admin.create_acls([orders]))
    with Producer(cluster.client_settings("alice")) as producer:
        while True:  # the list is in force on every node in a moment
            try:
                assert producer.send("orders", b"one").result(60).offset == 0
                break
            except TopicAuthorizationError:
                continue
    with Producer(cluster.client_settings("bob")) as producer, pytest.raises(TopicAuthorizationError):
        producer.send("orders", b"two").result(60)
    stranger = {"bootstrap.servers": cluster.bootstrap_servers, "default.api.timeout.ms": "3000"}
    with Admin(stranger) as admin, pytest.raises(SslAuthenticationError):
        admin.list_topics()
