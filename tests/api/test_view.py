"""What clients see of the metadata, from messages through the controller's decisions to messages."""

from __future__ import annotations

from typing import Any

import pytest

from streamlog.api.convert import view
from streamlog.api.convert.admin import configs, topics
from streamlog.api.errors import from_message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.errors import InvalidPartitionsError, InvalidReplicationFactorError, InvalidTopicError
from streamlog.model import BrokerId, PartitionId
from tests.metadata.rig import Rig


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.start_all(0, 1, 2, racks={0: "a", 1: "b", 2: "c"})
    return rig


def create(rig: Rig, **fields: Any) -> pb.CreateTopicResult:
    request = pb.CreateTopicsRequest(topics=[pb.NewTopic(**fields)])
    parsed = pb.CreateTopicsRequest.FromString(request.SerializeToString())
    response = topics.created(rig.do(topics.create_topics(parsed)))
    return pb.CreateTopicsResponse.FromString(response.SerializeToString()).results[0]


def test_a_topic_from_request_to_description(rig: Rig) -> None:
    made = create(rig, name="logs", partitions=2, replication_factor=3, configs={"retention.ms": "5"})
    assert (made.partition_count, made.replication_factor, made.HasField("error")) == (2, 3, False)
    topic = rig.topic("logs")
    answered = view.topic_description(topic, rig.image, range(2))
    assert (answered.name, answered.topic_id, answered.partition_count, answered.replication_factor) == (
        "logs",
        made.topic_id,
        2,
        3,
    )
    assert dict(answered.configs) == {"retention.ms": "5"}
    assert [one.partition for one in answered.partitions] == [0, 1]
    state = topic.partitions[0]
    assert list(answered.partitions[0].replicas) == list(state.replicas)
    assert answered.partitions[0].leader == state.leader
    assert list(answered.partitions[0].offline) == []
    listed = view.topic_listing(topic)
    assert (listed.name, listed.partition_count, listed.replication_factor, listed.internal) == ("logs", 2, 3, False)
    metadata = view.topic_metadata(topic, rig.image, range(1, 2))
    assert (metadata.partition_count, [one.partition for one in metadata.partitions]) == (2, [1])


@pytest.mark.parametrize("count", [0, -1, 10**9])
def test_absurd_counts_are_refused_before_anything_is_made(rig: Rig, count: int) -> None:
    before = rig.image
    error = from_message(create(rig, name="t", partitions=count).error)
    assert type(error) is InvalidPartitionsError
    assert error.details["field"] == "partitions"
    error = from_message(create(rig, name="t", replication_factor=count).error)
    assert type(error) is InvalidReplicationFactorError
    assert rig.image is before


@pytest.mark.parametrize("name", ["", "../x", "a\0b", ".", "x" * 250, "__consumer_offsets"])
def test_names_that_cannot_be_are_refused_topic_by_topic(rig: Rig, name: str) -> None:
    assert type(from_message(create(rig, name=name).error)) is InvalidTopicError


def test_a_dead_node_shows_in_its_partitions(rig: Rig) -> None:
    create(rig, name="t", partitions=1, replication_factor=3)
    rig.fence(1)
    message = view.partition(PartitionId(0), rig.partition(), rig.image)
    assert list(message.offline) == [1]
    assert 1 not in message.isr
    assert [node.node_id for node in view.live_nodes(rig.image, "")] == [0, 2]
    dead = view.node_description(rig.broker(1), rig.image, "")
    assert (dead.state, dead.replica_count, dead.leader_count) == (pb.NODE_STATE_FENCED, 1, 0)
    assert (dead.node.host, dead.node.port, dead.node.rack) == ("node1", 9092, "b")
    assert view.node_description(rig.broker(0), rig.image, "").state == pb.NODE_STATE_ACTIVE
    rig.heartbeat(0, want_shut_down=True)
    assert view.node_description(rig.broker(0), rig.image, "").state == pb.NODE_STATE_STOPPING


def test_a_partition_without_a_leader_says_so(rig: Rig) -> None:
    create(rig, name="t", partitions=1, replication_factor=1)
    leader = rig.partition().leader
    assert view.partition(PartitionId(0), rig.partition(), rig.image).HasField("leader")
    rig.fence(leader)
    message = view.partition(PartitionId(0), rig.partition(), rig.image)
    assert not message.HasField("leader")
    assert list(message.offline) == [leader]


def test_node_0_is_a_leader_like_any_other(rig: Rig) -> None:
    create(rig, name="t", assignments=[pb.ReplicaAssignment(replicas=[0])])
    message = view.partition(PartitionId(0), rig.partition(), rig.image)
    assert (message.HasField("leader"), message.leader) == (True, 0)
    assert rig.partition().leader == BrokerId(0)


def test_configs_are_altered_by_message(rig: Rig) -> None:
    create(rig, name="t")
    resource = pb.ConfigResource(type=pb.CONFIG_RESOURCE_TYPE_TOPIC, name="t")
    change = pb.ConfigChange(name="retention.ms", value="7")
    alteration = pb.ConfigAlteration(resource=resource, changes=[change])
    response = configs.altered(rig.do(configs.alter_configs(pb.AlterConfigsRequest(alterations=[alteration]))))
    assert [row.HasField("error") for row in response.results] == [False]
    assert response.results[0].resource == resource
    assert dict(view.topic_description(rig.topic(), rig.image, range(1)).configs) == {"retention.ms": "7"}
    change.name = "no.such.config"
    wrong = pb.AlterConfigsRequest(alterations=[pb.ConfigAlteration(resource=resource, changes=[change])])
    response = configs.altered(rig.do(configs.alter_configs(wrong)))
    assert response.results[0].error.code == "INVALID_CONFIG"
