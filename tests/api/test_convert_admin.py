"""Administration: messages to the controller's commands, and through the controller's own checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import Message

from streamlog.access.acl import PatternType
from streamlog.api.convert.admin import access, configs, placement, topics
from streamlog.api.convert.admin.placement import DrainAction
from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.pb import common_pb2
from streamlog.config import Operation
from streamlog.errors import InvalidRequestError, InvalidTopicError
from streamlog.metadata.partitions.drain_moves import DrainStatus
from streamlog.metadata.partitions.leaders import ElectionResult, RequestedElection
from streamlog.metadata.partitions.reassignment import PartitionReassignmentResult
from streamlog.metadata.records import ConfigTarget, ConfigTargetType
from streamlog.metadata.topics.creation import PARTITIONS_PER_REQUEST_MAX, TopicResult
from streamlog.metadata.topics.deletion import DeletionResult
from streamlog.metadata.topics.growth import GrowthResult
from streamlog.model import BrokerId, PartitionId, TopicId

ID = TopicId(bytes(range(16)))


def creating(**fields: Any) -> pb.CreateTopicsRequest:
    return pb.CreateTopicsRequest(topics=[pb.NewTopic(**{"name": "t", **fields})])


def test_a_new_topic_tells_what_is_left_to_the_cluster() -> None:
    (topic,) = topics.create_topics(creating()).topics
    assert (topic.name, topic.partitions, topic.replication_factor, topic.assignments) == ("t", None, None, ())
    full = creating(
        partitions=2,
        replication_factor=3,
        assignments=[pb.ReplicaAssignment(replicas=[1, 2, 3]), pb.ReplicaAssignment(replicas=[2, 3, 1])],
        configs={"retention.ms": "1", "cleanup.policy": "compact"},
    )
    full.validate_only = True
    command = topics.create_topics(full)
    assert command.validate_only
    assert command.topics[0].assignments == ((1, 2, 3), (2, 3, 1))
    assert list(command.topics[0].configs.items()) == [("cleanup.policy", "compact"), ("retention.ms", "1")]


@pytest.mark.parametrize("count", [0, -1, 10**9, 2**31 - 1])
def test_absurd_counts_reach_the_controller_as_they_are(count: int) -> None:
    """An explicit 0 is no default; the controller refuses it before it makes anything (FAULTS, "Bad input")."""
    (topic,) = topics.create_topics(creating(partitions=count, replication_factor=count)).topics
    assert (topic.partitions, topic.replication_factor) == (count, count)


UNKNOWN: Any = 9
"""A number that no enum has."""


def altering(**change: Any) -> pb.AlterConfigsRequest:
    resource = pb.ConfigResource(type=pb.CONFIG_RESOURCE_TYPE_TOPIC, name="t")
    alteration = pb.ConfigAlteration(resource=resource, changes=[pb.ConfigChange(**{"name": "n", **change})])
    return pb.AlterConfigsRequest(alterations=[alteration])


def reassigning(*targets: list[int]) -> pb.AlterPartitionReassignmentsRequest:
    moves = [
        pb.Reassignment(topic="t", partition=index, target=pb.ReplicaAssignment(replicas=target))
        for index, target in enumerate(targets)
    ]
    return pb.AlterPartitionReassignmentsRequest(reassignments=moves)


MANY = PARTITIONS_PER_REQUEST_MAX + 1
UNNAMED = pb.ConfigAlteration(changes=[pb.ConfigChange(name="n")])
TWICE = [common_pb2.TopicPartition(topic="t", partition=1)] * 2


@pytest.mark.parametrize(
    ("convert", "message", "field"),
    [
        (topics.create_topics, pb.CreateTopicsRequest(), "topics"),
        (topics.create_topics, pb.CreateTopicsRequest(topics=[pb.NewTopic()] * MANY), "topics"),
        (topics.create_topics, creating(name="x" * 1_001), "topics[0].name"),
        (topics.create_topics, creating(assignments=[pb.ReplicaAssignment()]), "topics[0].assignments[0].replicas"),
        (
            topics.create_topics,
            creating(assignments=[pb.ReplicaAssignment(replicas=range(65))]),
            "topics[0].assignments[0].replicas",
        ),
        (
            topics.create_topics,
            creating(assignments=[pb.ReplicaAssignment(replicas=[1, -1])]),
            "topics[0].assignments[0].replicas[1]",
        ),
        (topics.create_topics, creating(assignments=[pb.ReplicaAssignment()] * MANY), "topics[0].assignments"),
        (topics.create_topics, creating(configs={f"c{n}": "" for n in range(201)}), "topics[0].configs"),
        (topics.create_topics, creating(configs={"c" * 201: ""}), "topics[0].configs"),
        (topics.create_topics, creating(configs={"c": "v" * 32_768}), "topics[0].configs"),
        (topics.create_partitions, pb.CreatePartitionsRequest(), "topics"),
        (topics.delete_topics, pb.DeleteTopicsRequest(), "topics"),
        (topics.delete_topics, pb.DeleteTopicsRequest(topics=["a" * 1_001]), "topics[0]"),
        (topics.delete_topics, pb.DeleteTopicsRequest(topic_ids=[ID, b"x"]), "topic_ids[1]"),
        (topics.delete_topics, pb.DeleteTopicsRequest(topics=["a"], topic_ids=[ID] * (MANY - 1)), "topic_ids"),
        (configs.alter_configs, pb.AlterConfigsRequest(), "alterations"),
        (configs.alter_configs, pb.AlterConfigsRequest(alterations=[UNNAMED]), "alterations[0].resource.type"),
        (configs.alter_configs, altering(operation=9), "alterations[0].changes[0].operation"),
        (configs.alter_configs, altering(value="v" * 32_768), "alterations[0].changes[0].value"),
        (configs.alter_configs, altering(name="n" * 201), "alterations[0].changes[0].name"),
        (placement.elect_leaders, pb.ElectLeadersRequest(type=UNKNOWN), "type"),
        (placement.elect_leaders, pb.ElectLeadersRequest(partitions=TWICE), "partitions[1]"),
        (placement.alter_reassignments, pb.AlterPartitionReassignmentsRequest(), "reassignments"),
        (placement.alter_reassignments, reassigning([]), "reassignments[0].target.replicas"),
        (placement.alter_reassignments, reassigning([1], [-4]), "reassignments[1].target.replicas[0]"),
        (placement.drain, pb.DrainNodeRequest(node_id=1), "action"),
        (placement.drain, pb.DrainNodeRequest(node_id=-1, action=pb.DRAIN_ACTION_START), "node_id"),
        (placement.unregister, pb.UnregisterNodeRequest(node_id=-1), "node_id"),
    ],
)
def test_a_bad_request_names_the_field(convert: Callable[[Any], object], message: Message, field: str) -> None:
    with pytest.raises((InvalidRequestError, InvalidTopicError)) as caught:
        convert(message)
    assert caught.value.details["field"] == field


def test_configs() -> None:
    (resource,) = configs.alter_configs(altering(operation=pb.CONFIG_OPERATION_APPEND, value="a")).resources
    assert resource.resource == ConfigTarget(ConfigTargetType.TOPIC, "t")
    assert [(c.name, c.operation, c.value) for c in resource.changes] == [("n", Operation.APPEND, "a")]
    for kind in ConfigTargetType:
        there = ConfigTarget(kind, "1")
        assert configs.config_resource(configs.resource_message(there)) == there


def test_elections_of_all_partitions_and_of_some() -> None:
    everything = placement.elect_leaders(pb.ElectLeadersRequest())
    assert (everything.type, everything.partitions) == (RequestedElection.PREFERRED, None)
    some = pb.ElectLeadersRequest(
        type=pb.ELECTION_TYPE_UNCLEAN, partitions=[common_pb2.TopicPartition(topic="t", partition=4)]
    )
    assert placement.elect_leaders(some).partitions == (("t", 4),)
    assert placement.elect_leaders(some).type is RequestedElection.UNCLEAN


def test_a_move_without_a_target_is_a_cancellation() -> None:
    moves = reassigning([3, 1])
    moves.reassignments.add(topic="t", partition=7)
    asked = placement.alter_reassignments(moves).reassignments
    assert [(one.partition_id, one.replicas) for one in asked] == [(0, (3, 1)), (7, None)]


def test_an_entry_that_an_earlier_release_accepted_is_listed() -> None:
    """The list would fail as a whole."""
    entry = pb.AclEntry(
        resource_type=pb.ACL_RESOURCE_TYPE_TOPIC,
        resource_name="*",
        pattern_type=pb.ACL_PATTERN_TYPE_PREFIXED,
        principal="User:alice",
        operation=pb.ACL_OPERATION_READ,
        host="FE80::1",
    )
    with pytest.raises(InvalidRequestError):
        access.create_acls(pb.CreateAclsRequest(acls=[entry]))
    found = access.acl_of(entry)
    assert (found.name, found.pattern_type, found.host) == ("*", PatternType.PREFIXED, "FE80::1")


def test_draining() -> None:
    asked = pb.DrainNodeRequest(node_id=2, action=pb.DRAIN_ACTION_CANCEL)
    assert placement.drain(asked) == (2, DrainAction.CANCEL)
    response = placement.drained(DrainStatus(replicas=5, moving=2), draining=True)
    assert (response.draining, response.remaining_count, response.moving_count) == (True, 5, 2)


def test_results_stand_beside_their_errors() -> None:
    error = InvalidTopicError("no", field="name")
    made = topics.created(
        [
            TopicResult(name="a", topic_id=ID, partitions=3, replication_factor=2, warning="mixed"),
            TopicResult(name="b", error=error),
        ]
    ).results
    assert (made[0].topic_id, made[0].partition_count, made[0].replication_factor, made[0].warning) == (
        ID,
        3,
        2,
        "mixed",
    )
    assert not made[0].HasField("error")
    assert (made[1].name, made[1].error.code, made[1].topic_id) == ("b", "INVALID_TOPIC", b"")
    grown = topics.grown([GrowthResult(name="a"), GrowthResult(name="b", error=error)]).results
    assert [row.HasField("error") for row in grown] == [False, True]
    gone = topics.deleted([DeletionResult(name=None, topic_id=ID, error=error)]).results
    assert (gone[0].name, gone[0].topic_id, gone[0].error.code) == ("", ID, "INVALID_TOPIC")
    led = placement.elected(
        [
            ElectionResult(topic="a", partition_id=PartitionId(0), leader=BrokerId(0)),
            ElectionResult(topic="a", partition_id=PartitionId(1), error=error),
        ]
    ).results
    assert (led[0].HasField("leader"), led[0].leader) == (True, 0)
    assert (led[1].HasField("leader"), led[1].error.code) == (False, "INVALID_TOPIC")
    moved = placement.reassigned(
        [PartitionReassignmentResult(topic="a", partition_id=PartitionId(1), error=error)]
    ).results
    assert (moved[0].topic, moved[0].partition, moved[0].error.code) == ("a", 1, "INVALID_TOPIC")
