"""Real nodes with two log directories each: the leader's replica moves under load, and its node is killed meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamlog.client import Admin, Consumer, Producer
from streamlog.client.admin.values import ConfigChange, ConfigResource, LogDir, NewTopic, ReplicaOnNode
from streamlog.config.properties import escape_value, parse_properties
from streamlog.daemon.local_cluster import LocalCluster
from streamlog.errors import StreamlogError
from streamlog.model import TopicPartition

WAIT_S = 300.0
NODES = 3
VALUE = b"x" * 5_000
RATE_SETTING = "replica.alter.log.dirs.io.max.bytes.per.second"
RATE = 100_000
"""At first: so that the node is killed in the middle of the copy."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    cluster = LocalCluster(tmp_path_factory.mktemp("moves"))
    cluster.create(NODES, 0, {RATE_SETTING: str(RATE)})
    for node in cluster.nodes:
        known = {one.key: one.value for one in parse_properties(node.properties.read_text(), "server.properties")}
        known["log.dirs"] = ",".join(directories(cluster, node.node_id))
        node.properties.write_text("".join(f"{name}={escape_value(value)}\n" for name, value in known.items()))
        cluster.start(node)
    try:
        yield cluster
    finally:
        for node in cluster.nodes:
            cluster.kill(node)


def directories(cluster: LocalCluster, node_id: int) -> list[str]:
    folder: Path = cluster.node(node_id).folder
    return [str(folder / "disk-1"), str(folder / "disk-2")]


def eventually(condition: Callable[[], bool]) -> None:
    """A node that starts, or an election, refuses calls for a while."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except StreamlogError:
            continue
    pytest.fail("the state is not reached in time")


class Load:
    """Records that are sent all the time; `acknowledged` are those that must not be lost."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged: list[bytes] = []

    def _run(self) -> None:
        number = 0
        with Producer({"bootstrap.servers": self._servers, "delivery.timeout.ms": "300000"}) as producer:
            while not self._ended.is_set():
                values = [b"%08d" % (number + i) + VALUE for i in range(4)]
                number += len(values)
                for value, sent in [(value, producer.send("t", value, partition=0)) for value in values]:
                    sent.result(WAIT_S)
                    self.acknowledged.append(value[:8])

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def leader_of(admin: Admin) -> int:
    (topic,) = admin.describe_topics(["t"])
    found = topic.partitions[0].leader
    return -1 if found is None else found


def in_sync(admin: Admin) -> int:
    (topic,) = admin.describe_topics(["t"])
    return len(topic.partitions[0].isr)


def described(admin: Admin, node_id: int) -> list[LogDir]:
    (node,) = admin.describe_log_dirs([node_id], topics=["t"])
    if node.error is not None:
        raise node.error
    return list(node.log_dirs)


def holding(admin: Admin, node_id: int) -> str | None:
    return next((one.path for one in described(admin, node_id) if one.replicas), None)


def begin_move(admin: Admin, cluster: LocalCluster) -> tuple[int, str]:
    """Of the leader's replica, to its node's other directory."""
    eventually(lambda: leader_of(admin) >= 0)
    leader = leader_of(admin)
    eventually(lambda: holding(admin, leader) is not None)
    target = next(path for path in directories(cluster, leader) if path != holding(admin, leader))
    (result,) = admin.alter_replica_log_dirs({ReplicaOnNode("t", 0, leader): target})
    assert result.error is None
    return leader, target


def test_the_leaders_replica_moves_under_load_and_a_kill_loses_nothing(cluster: LocalCluster) -> None:
    servers = ",".join(node.address for node in cluster.nodes)
    with Admin({"bootstrap.servers": servers}) as admin:
        wanted = NewTopic(name="t", partitions=1, replication_factor=NODES)
        eventually(lambda: admin.create_topics([wanted])[0].error is None)
        with Load(servers) as load:
            eventually(lambda: len(load.acknowledged) >= 1_000)  # more than a swap copies at its end
            leader, _ = begin_move(admin, cluster)
            eventually(lambda: any(one.future_replicas for one in described(admin, leader)))
            assert cluster.kill(cluster.node(leader))
            cluster.start(cluster.node(leader))
            eventually(lambda: holding(admin, leader) is not None)  # the ISR may not have changed since the kill
            eventually(lambda: in_sync(admin) == NODES)
            faster = ConfigChange(name=RATE_SETTING, value=str(1 << 40))
            admin.alter_config(ConfigResource.all_brokers(), [faster])
            leader, target = begin_move(admin, cluster)
            eventually(lambda: holding(admin, leader) == target)
            eventually(lambda: in_sync(admin) == NODES)
            before = len(load.acknowledged)
            eventually(lambda: len(load.acknowledged) > before)
        assert [one.future_replicas for one in described(admin, leader)] == [(), ()]
        for node in cluster.nodes:
            cluster.kill(node)
        for node in cluster.nodes:
            cluster.start(node)
        eventually(lambda: in_sync(admin) == NODES)
        eventually(lambda: holding(admin, leader) == target)
        eventually(lambda: admin.digest_replicas("t", 0).identical)
        digests = admin.digest_replicas("t", 0)
        assert digests.identical
        read: list[bytes] = []
        with Consumer({"bootstrap.servers": servers, "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([TopicPartition("t", digests.at.partition)])
            deadline = time.monotonic() + WAIT_S
            while len(read) < len(load.acknowledged) and time.monotonic() < deadline:
                read += [(record.value or b"")[:8] for record in consumer.poll(timeout_s=5)]
        assert read == load.acknowledged
