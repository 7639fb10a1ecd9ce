"""REQUIREMENTS, "Topics"."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from streamlog.api.pb import admin_pb2
from streamlog.client import Admin, Producer
from streamlog.client.admin.values import ConfigChange, ConfigResource, NewTopic, NodeState
from streamlog.errors import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    MessageTooLargeError,
    StreamlogError,
    TopicDeletionDisabledError,
)
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.requirements.conftest import Ctl, Piped, ctl_of, until
from tests.services.raw import unary


def test_create_describe_list_alter_delete_by_streamlogctl(ctl: Ctl) -> None:
    """create (`--partitions 3 --replication-factor 3`, `--config k=v`), describe, list, alter, delete. Several topics
    at once.
    """
    made = ctl(
        *("topic", "create", "one", "two", "--partitions", "3", "--replication-factor", "3"),
        *("--config", "retention.ms=1000", "--config", "cleanup.policy=compact"),
    )
    assert made == "Created topic one.\nCreated topic two.\n"
    described = ctl("topic", "describe", "one", "two").splitlines()
    configs = "cleanup.policy=compact,retention.ms=1000"
    assert described[0] == f"Topic: one\tPartitionCount: 3\tReplicationFactor: 3\tConfigs: {configs}"
    assert described[4] == f"Topic: two\tPartitionCount: 3\tReplicationFactor: 3\tConfigs: {configs}"
    assert {"one", "two"} <= set(ctl("topic", "list").splitlines())
    ctl("topic", "alter", "one", "two", "--partitions", "4", "--delete-config", "retention.ms")
    assert "PartitionCount: 4\tReplicationFactor: 3\tConfigs: cleanup.policy=compact\n" in ctl(
        "topic", "describe", "two"
    )
    assert ctl("topic", "delete", "one", "two") == "Deleted topic one.\nDeleted topic two.\n"
    assert not {"one", "two"} & set(ctl("topic", "list").splitlines())


def test_create_describe_list_alter_delete_by_the_client(admin: Admin) -> None:
    """create, describe, list, alter, delete. Several topics at once."""
    wanted = [NewTopic(name=f"client-{n}", partitions=3, replication_factor=3, configs={"a": "b"}) for n in range(2)]
    refused = admin.create_topics(wanted)
    assert all(isinstance(result.error, StreamlogError) for result in refused)
    wanted = [NewTopic(name=f"client-{n}", partitions=3, replication_factor=3) for n in range(2)]
    assert [result.error for result in admin.create_topics(wanted)] == [None, None]
    names = [topic.name for topic in wanted]
    assert [len(one.partitions) for one in admin.describe_topics(names)] == [3, 3]
    assert set(names) <= {one.name for one in admin.list_topics()}
    admin.grow_topic("client-0", 5)
    admin.alter_config(ConfigResource.topic("client-0"), [ConfigChange(name="retention.ms", value="5")])
    grown = admin.describe_topic("client-0")
    assert (grown.partition_count, dict(grown.configs)) == (5, {"retention.ms": "5"})
    assert [result.error for result in admin.delete_topics(names)] == [None, None]
    assert not set(names) & {one.name for one in admin.list_topics()}


def test_create_describe_list_alter_delete_by_grpc(channel: grpc.Channel) -> None:
    """create, describe, list, alter, delete. Several topics at once."""
    topics = [admin_pb2.NewTopic(name=f"raw-{n}", partitions=3, replication_factor=3) for n in range(2)]
    names = [one.name for one in topics]
    made = unary(
        channel, "Admin/CreateTopics", admin_pb2.CreateTopicsRequest(topics=topics), admin_pb2.CreateTopicsResponse
    )
    assert [(one.partition_count, one.HasField("error")) for one in made.results] == [(3, False)] * 2
    growth = admin_pb2.CreatePartitionsRequest(
        topics=[admin_pb2.TopicGrowth(topic=name, partition_count=4) for name in names]
    )
    unary(channel, "Admin/CreatePartitions", growth, admin_pb2.CreatePartitionsResponse)
    described = unary(
        channel, "Admin/DescribeTopics", admin_pb2.DescribeTopicsRequest(topics=names), admin_pb2.DescribeTopicsResponse
    )
    assert [len(one.partitions) for one in described.topics] == [4, 4]
    deleted = unary(
        channel, "Admin/DeleteTopics", admin_pb2.DeleteTopicsRequest(topics=names), admin_pb2.DeleteTopicsResponse
    )
    assert not any(one.HasField("error") for one in deleted.results)
    listed = unary(channel, "Admin/ListTopics", admin_pb2.ListTopicsRequest(), admin_pb2.ListTopicsResponse)
    assert not set(names) & {one.name for one in listed.topics}


def test_the_texts_of_create_and_describe(ctl: Ctl) -> None:
    """describe prints, tab-separated: `Topic: test1  PartitionCount: 2  ReplicationFactor: 1  Configs:` and per
    partition `Topic: test1  Partition: 0  Leader: 0  Replicas: 0  Isr: 0`; create prints `Created topic test1.`
    """
    created = ctl("topic", "create", "--topic", "test1", "--replica-assignment", "3,1")
    assert created == "Created topic test1.\n"
    assert ctl("topic", "describe", "--topic", "test1") == (
        "Topic: test1\tPartitionCount: 2\tReplicationFactor: 1\tConfigs:\n"
        "\tTopic: test1\tPartition: 0\tLeader: 3\tReplicas: 3\tIsr: 3\n"
        "\tTopic: test1\tPartition: 1\tLeader: 1\tReplicas: 1\tIsr: 1\n"
    )


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    settings = {"delete.topic.enable": "false", "topic.names.strict": "true", "num.partitions": "6"}
    with InProcessCluster(tmp_path_factory.mktemp("strict"), nodes=1, settings=settings) as cluster:
        yield cluster


def test_deletion_may_be_forbidden(strict: InProcessCluster) -> None:
    """`delete.topic.enable` (default true) gates deletion."""
    strict.create_topic("kept")
    ctl = ctl_of(strict.bootstrap_servers)
    assert "delete.topic.enable" in ctl("topic", "delete", "kept", status=1)
    with Admin(bootstrap_servers=strict.bootstrap_servers) as admin, pytest.raises(TopicDeletionDisabledError):
        admin.delete_topic("kept")
    assert "kept\n" in ctl("topic", "list")


def test_deleted_directories(tmp_path: Path) -> None:
    """Deleted directories are renamed `-delete`, then removed."""
    with InProcessCluster(tmp_path, nodes=1, settings={"log.segment.delete.delay.ms": "600000"}) as cluster:
        cluster.create_topic("deleted")
        cluster.create_topic("soon-gone", configs={"file.delete.delay.ms": "0"})
        data = tmp_path / "node-1"
        assert (data / "deleted-0").is_dir()
        cluster.with_admin(lambda admin: admin.delete_topics(["deleted", "soon-gone"]))
        until(lambda: not (data / "deleted-0").exists())
        until(lambda: not list(data.glob("soon-gone-0*")))
        [renamed] = data.glob("deleted-0.*-delete")
        assert (renamed / "00000000000000000000.log").exists()


def test_partition_counts_grow_only(ctl: Ctl, admin: Admin) -> None:
    """Partition counts can be increased only; equal or lower is a clear error that says so."""
    ctl("topic", "create", "growing", "--partitions", "3")
    for count in ("3", "2"):
        said = ctl("topic", "alter", "growing", "--partitions", count, status=1)
        assert said == (
            f"Error: topic 'growing' has 3 partitions: {count} would not be an increase, and partitions can only be "
            "added.\n"
        )
        with pytest.raises(InvalidPartitionsError, match="not be an increase"):
            admin.grow_topic("growing", int(count))
    ctl("topic", "alter", "growing", "--partitions", "4")
    assert admin.describe_topic("growing").partition_count == 4


def test_the_default_count(strict: InProcessCluster, ctl: Ctl) -> None:
    """`num.partitions` is the default count."""
    assert strict.create_topic("six", partitions=None).partition_count == 6
    ctl("topic", "create", "by-default")
    assert "PartitionCount: 1\t" in ctl("topic", "describe", "by-default")


def takes(producer: Producer, topic: str, size: int) -> bool:
    try:
        producer.send(topic, bytes(size)).result(30)
    except MessageTooLargeError:
        return False
    return True


def test_topic_configs_change_while_running(servers: str, ctl: Ctl, piped: Piped) -> None:
    """Topic configs change while running."""
    ctl("topic", "create", "tuned", "--config", "max.message.bytes=1000")
    with Producer(bootstrap_servers=servers) as producer:
        assert not takes(producer, "tuned", 2_000)
        ctl("config", "alter", "--topic", "tuned", "--set", "max.message.bytes=5000")
        until(lambda: takes(producer, "tuned", 2_000))
        ctl("topic", "alter", "tuned", "--config", "max.message.bytes=1500")
        until(lambda: not takes(producer, "tuned", 2_000))
    assert "max.message.bytes=1500" in ctl("topic", "describe", "tuned")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a b", "ä", "x" * 250, "nul\0", "__consumer_offsets"])
def test_names_that_are_none(admin: Admin, channel: grpc.Channel, name: str) -> None:
    """Names: `[a-zA-Z0-9._-]{1,249}`, not `.` or `..`."""
    with pytest.raises(InvalidTopicError):
        admin.create_topic(name)
    request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name=name)])
    made = unary(channel, "Admin/CreateTopics", request, admin_pb2.CreateTopicsResponse)
    assert made.results[0].error.code == "INVALID_TOPIC"


def test_names_that_are_some(admin: Admin, ctl: Ctl) -> None:
    """Names: `[a-zA-Z0-9._-]{1,249}`."""
    for name in ("x" * 249, "A-Z.az", "_", "0", "-", "..."):
        assert admin.create_topics([NewTopic(name=name)], validate_only=True)[0].error is None, name
    # An option's dashes end where a user says so.
    assert ctl("topic", "create", "--", "-") == "Created topic -.\n"


def test_names_that_collide(ctl: Ctl, strict: InProcessCluster) -> None:
    """A warning for `_` and `.`, a refusal where two names would collide once `.` becomes `_`, and a strict setting
    that refuses both characters in user topics.
    """
    assert ctl("topic", "create", "col.lide").splitlines()[0].startswith("Warning: ")
    said = ctl("topic", "create", "col_lide", status=1)
    assert "'col_lide' collides with topic 'col.lide'" in said
    said = ctl_of(strict.bootstrap_servers)("topic", "create", "a.b", "a_b", "ab", status=1)
    assert said.count("topic.names.strict") == 2
    assert "Created topic ab.\n" in said


def test_more_replicas_than_live_brokers(ctl: Ctl, admin: Admin, streamlog_cluster: InProcessCluster) -> None:
    """More replicas than live brokers is a clear error."""
    said = ctl("topic", "create", "wide", "--replication-factor", "4", status=1)
    assert said == (
        "Error: replication factor 4 is larger than the number of active nodes, 3: give fewer replicas with "
        "--replication-factor, or start more nodes.\n"
    )
    streamlog_cluster.stop_node(3)
    try:
        until(lambda: sum(node.state is NodeState.ACTIVE for node in admin.describe_cluster().nodes) == 2)
        with pytest.raises(InvalidReplicationFactorError, match="active nodes, 2"):
            admin.create_topic("wide", replication_factor=3)
    finally:
        streamlog_cluster.start_node(3)
    assert "wide" not in json.loads(ctl("topic", "list", "-o", "json"))
