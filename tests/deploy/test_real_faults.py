"""Each rule of deploy/prometheus fires when its fault is made on real nodes, and resolves when that ends."""

from __future__ import annotations

import re
import resource
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import pytest

from streamlog.api.pb import batches_pb2 as pb
from streamlog.client import Admin, Producer
from streamlog.client.admin.values import ConfigChange, ConfigResource, ElectionType
from streamlog.daemon.local_cluster import LocalCluster
from streamlog.model import PartitionId, TopicPartition
from streamlog.tls.authority import Authority
from tests.deploy.prometheus import LAG_LIMIT, RULES, Prometheus
from tests.deploy.real_cluster import DISK_BYTES, SHIMMED, SMALL_DISK, VOTERS, RealCluster, running
from tests.storage.batches import poison

pytestmark = [
    pytest.mark.long,
    pytest.mark.process,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed (Debian: prometheus)"),
]

BATCHES: Final = "/streamlog.v1.Batches/"
CONNECTIONS: Final = 60
SETTINGS: Final = {
    "max.connections.per.ip": str(CONNECTIONS),
    "queued.max.response.bytes": str(4 << 20),
    "clock.skew.max.ms": "2000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "log.scrub.interval.ms": "1000",
    "initial.broker.registration.timeout.ms": "600000",  # a node without a quorum waits longer than a test
}
TESTED: set[str] = set()
Test = TypeVar("Test", bound=Callable[..., None])


def fires(*alerts: str) -> Callable[[Test], Test]:
    """The alerts whose faults a test makes."""
    TESTED.update(alerts)
    return lambda test: test


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with running(tmp_path_factory.mktemp("faults"), SETTINGS) as cluster:
        cluster.create("work", *[[SHIMMED]] * 6)
        yield cluster


@pytest.fixture
def real(started: RealCluster) -> Iterator[RealCluster]:
    """No alert fires before the test, nor after it, once its fault has ended."""
    yield started
    started.restore("work")


def write(real: RealCluster, topic: str, count: int = 1, *, partitions: int = 1, value: bytes = b"x") -> None:
    with Producer(bootstrap_servers=real.servers, acks="all") as producer:
        for partition in range(partitions):
            producer.send_many(topic, [value] * count, partition=partition).result(60)


def need_shim(real: RealCluster) -> None:
    if real.shim is None:
        pytest.skip("needs gcc")


def test_each_rule_has_its_fault() -> None:
    alerts = re.findall(r"- alert: (\w+)", (RULES / "alerts.rules.yml").read_text())
    assert sorted(TESTED) == sorted(alerts)


@fires(
    "StreamlogNodeDown",
    "StreamlogUnderReplicated",
    "StreamlogUnderMinIsr",
    "StreamlogVoterLags",
    "StreamlogOfflinePartitions",
)
def test_a_killed_node(real: RealCluster) -> None:
    """A voter, so that it lags behind the metadata, with the only replica of one topic and one of two of another."""
    with real.admin() as admin:
        controller = admin.describe_cluster().controller
    voter = next(one for one in VOTERS if one != controller)
    real.create("single", [voter])
    real.create("paired", [SHIMMED, voter], min_insync_replicas="2")
    real.kill(voter)

    def change() -> None:
        with real.admin() as admin:
            for number in range(1, 4):
                change = ConfigChange(name="retention.ms", value=str(number * 1_000_000))
                admin.alter_config(ConfigResource.topic("work"), [change])

    real.prometheus.wait_for_alerts(
        "StreamlogNodeDown",
        "StreamlogUnderReplicated",
        "StreamlogUnderMinIsr",
        "StreamlogVoterLags",
        "StreamlogOfflinePartitions",
        meanwhile=change,
    )
    assert "StreamlogNoController" not in real.prometheus.firing()


@fires("StreamlogNoController", "StreamlogNodeNotReady")
def test_a_quorum_without_majority(real: RealCluster) -> None:
    """A node that is started then cannot become ready."""
    real.kill(2, 3, SMALL_DISK)
    real.start(SMALL_DISK)
    real.prometheus.wait_for_alerts("StreamlogNoController", "StreamlogNodeNotReady")


@fires("StreamlogRecoveryWaiting", "StreamlogUncleanElection")
def test_the_last_replica_is_lost_and_another_one_elected(real: RealCluster) -> None:
    """Node 5 leads, is alone in sync and has a record that node 4 lacks; then only node 4 is started."""
    at = TopicPartition("torn", PartitionId(0))
    real.create("torn", [SHIMMED, SMALL_DISK], unclean_recovery_strategy="none")
    write(real, "torn")
    real.kill(SMALL_DISK)
    real.wait_for_isr(at, {SHIMMED})
    write(real, "torn")
    real.kill(SHIMMED)
    real.start(SMALL_DISK)
    real.prometheus.wait_for_alerts("StreamlogRecoveryWaiting", "StreamlogOfflinePartitions")
    with real.admin() as admin:
        [election] = admin.elect_leaders([at], kind=ElectionType.UNCLEAN)
        assert election.error is None
    real.prometheus.wait_for_alerts("StreamlogUncleanElection")


@fires("StreamlogClockSkew")
def test_a_wrong_clock(real: RealCluster) -> None:
    need_shim(real)
    assert real.shim is not None
    real.shim.clock(3600)
    real.prometheus.wait_for_alerts("StreamlogClockSkew")
    assert real.prometheus.firing() == {"StreamlogClockSkew"}


@fires("StreamlogDamagedLog")
def test_a_disk_that_changes_bytes(real: RealCluster) -> None:
    """Of a topic without another replica, found by the scrubber."""
    real.create("rotten", [SMALL_DISK], segment_bytes=str(1 << 20))
    write(real, "rotten", 40, value=bytes(100_000))
    first = min((real.node(SMALL_DISK).folder / "data" / "rotten-0").glob("*.log"))
    with first.open("r+b") as file:
        file.seek(first.stat().st_size // 2)
        file.write(b"rot")
    real.prometheus.wait_for_alerts("StreamlogDamagedLog")


@fires("StreamlogDiskFailed")
def test_a_failed_disk(real: RealCluster) -> None:
    need_shim(real)
    assert real.shim is not None
    real.shim.fail_next_sync()
    with Producer(bootstrap_servers=real.servers, acks="all") as producer:
        for partition in range(6):
            producer.send("work", b"x", partition=partition)
        real.prometheus.wait_for_alerts("StreamlogDiskFailed")
        real.shim.clear()
        real.kill(SHIMMED)
        real.start(SHIMMED)  # the producer sends what is left


@fires("StreamlogDiskFull")
def test_a_full_disk(real: RealCluster) -> None:
    if real.no_disk:
        pytest.skip(real.no_disk)
    ballast = real.node(SMALL_DISK).folder / "data" / "ballast"
    disk = shutil.disk_usage(ballast.parent)
    ballast.write_bytes(bytes(disk.free - DISK_BYTES // 20))
    try:
        real.prometheus.wait_for_alerts("StreamlogDiskFull")
    finally:
        ballast.unlink()


@fires("StreamlogSlowSyncs")
def test_a_slow_disk(real: RealCluster) -> None:
    need_shim(real)
    assert real.shim is not None
    real.shim.slow_syncs(1500)
    with Producer(bootstrap_servers=real.servers, acks="all") as producer:

        def send() -> None:
            for partition in range(6):
                producer.send("work", b"x", partition=partition)

        real.prometheus.wait_for_alerts("StreamlogSlowSyncs", meanwhile=send)
        real.shim.clear()  # the producer sends what is left


@fires("StreamlogReadersThrottled")
def test_clients_that_do_not_read(real: RealCluster) -> None:
    real.create("unread", [SHIMMED])
    write(real, "unread", 60, value=bytes(100_000))
    request = pb.FetchStreamRequest(add=[pb.FetchPartition(topic="unread")]).SerializeToString()
    with real.unread(SHIMMED, BATCHES + "FetchStream", request, 80) as go_on:
        real.prometheus.wait_for_alerts("StreamlogReadersThrottled", meanwhile=go_on)


@fires("StreamlogConnectionsRefused")
def test_a_flood_of_connections(real: RealCluster) -> None:
    """From an address of its own: the other nodes and clients share 127.0.0.1. Each sends a byte:
    the kernel keeps those that are silent.
    """
    host, port = real.node(SHIMMED).address.split(":")
    sockets: list[socket.socket] = []
    try:

        def connect() -> None:
            for _ in range(CONNECTIONS):
                sockets.append(socket.create_connection((host, int(port)), 10, ("127.0.0.9", 0)))
                sockets[-1].sendall(b"P")

        connect()
        real.prometheus.wait_for_alerts("StreamlogConnectionsRefused", meanwhile=connect)
    finally:
        for one in sockets:
            one.close()


@fires("StreamlogOutOfDescriptors")
def test_a_low_limit_of_open_files(real: RealCluster) -> None:
    pid = real.process(SHIMMED).pid
    usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    open_now = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (open_now + 2, usual[1]))
    try:
        real.create("files", *[[SHIMMED]] * 8)
        real.prometheus.wait_for_alerts("StreamlogOutOfDescriptors")
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)


@fires("StreamlogCertificateExpires")
def test_a_certificate_that_expires(tmp_path: Path) -> None:
    """Renewed while the node runs."""
    cluster = LocalCluster(tmp_path / "secure")
    cluster.create(1, 0, {}, secure=True)
    [node] = cluster.nodes
    authority = Authority.load(tmp_path / "secure" / "certs")
    authority.add_node(1, ["127.0.0.1"], days=20, renew=True)
    cluster.start(node)
    try:
        with Prometheus(tmp_path, [node.http.removeprefix("http://")]) as prometheus:
            prometheus.wait_for_alerts("StreamlogCertificateExpires")
            assert "expires in 19 days" in node.log.read_text()
            authority.add_node(1, ["127.0.0.1"], renew=True)
            prometheus.wait_until("renewed", lambda: "StreamlogCertificateExpires" not in prometheus.firing())
    finally:
        cluster.kill(node)


@fires("StreamlogAuditDropped")
def test_an_audit_topic_that_takes_no_events(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "audited")
    cluster.create(1, 0, {"audit.log.topic": "audit"})
    [node] = cluster.nodes
    cluster.start(node)
    try:
        with Prometheus(tmp_path, [node.http.removeprefix("http://")]) as prometheus:
            prometheus.wait_until("ready", lambda: bool(prometheus.query("streamlog_ready == 1")))
            with Admin(bootstrap_servers=node.address) as admin:
                admin.create_topic("audit", partitions=1)
                resource = ConfigResource.topic("audit")

                def change() -> None:
                    admin.alter_config(resource, [ConfigChange(name="max.message.bytes", value="1")])

                prometheus.wait_for_alerts("StreamlogAuditDropped", meanwhile=change)
                assert "events are missing in topic audit" in node.log.read_text()
                admin.alter_config(resource, [ConfigChange(name="max.message.bytes", value="1000000")])
            prometheus.wait_until("taken", lambda: "StreamlogAuditDropped" not in prometheus.firing())
    finally:
        cluster.kill(node)


@fires("StreamlogCorruptBatches")
def test_a_client_that_sends_nonsense(real: RealCluster) -> None:
    data = pb.PartitionBatches(topic="work", partition=0, batches=poison())
    request = pb.ProduceRequest(partitions=[data]).SerializeToString()

    def send() -> None:
        response = pb.ProduceResponse.FromString(real.call(SHIMMED, BATCHES + "Produce", request))
        assert response.results[0].error.code in ("INVALID_RECORD", "CORRUPT_MESSAGE")

    real.prometheus.wait_for_alerts("StreamlogCorruptBatches", meanwhile=send)


@fires("StreamlogGroupLag")
def test_a_lagging_group(real: RealCluster) -> None:
    write(real, "work", LAG_LIMIT + 10)
    at = TopicPartition("work", PartitionId(0))
    with real.admin() as admin:
        admin.alter_group_offsets("late", {at: 0})
        real.prometheus.wait_for_alerts("StreamlogGroupLag")
        [row] = admin.group_lag("late")
        assert row.log_end is not None
        admin.alter_group_offsets("late", {at: row.log_end})


@fires("StreamlogLongTransaction")
def test_a_transaction_that_stays_open(real: RealCluster) -> None:
    with Producer(bootstrap_servers=real.servers, transactional_id="slow") as producer:
        producer.begin_transaction()
        producer.send("work", b"x", partition=0).result(60)
        real.prometheus.wait_for_alerts("StreamlogLongTransaction")
        producer.abort_transaction()


@fires("StreamlogEventLoopBlocked")
def test_a_node_that_is_paused(real: RealCluster) -> None:
    """By a signal; a machine that swaps, or code that blocks, looks the same from within."""
    instance = real.node(SHIMMED).http.removeprefix("http://")
    with real.paused(SHIMMED):
        real.prometheus.wait_until(
            "unanswered", lambda: bool(real.prometheus.query(f'up{{instance="{instance}"}} == 0'))
        )
    real.prometheus.wait_for_alerts("StreamlogEventLoopBlocked")
