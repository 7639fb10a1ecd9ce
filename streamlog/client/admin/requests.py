"""Values of the admin client to messages of streamlog/v1/admin.proto. Pure; nodes validate the values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.pb import common_pb2
from streamlog.client.admin.values import (
    ConfigAlteration,
    ConfigChange,
    ConfigResource,
    ElectionType,
    NewTopic,
    Reassignment,
    ResourceType,
    TopicGrowth,
)
from streamlog.config import Operation
from streamlog.errors import InvalidRequestError
from streamlog.model import INT32_MAX, Offset, TopicId, TopicPartition

_RESOURCE_TYPES: Final = {
    ResourceType.TOPIC: pb.CONFIG_RESOURCE_TYPE_TOPIC,
    ResourceType.BROKER: pb.CONFIG_RESOURCE_TYPE_BROKER,
}
_OPERATIONS: Final = {
    Operation.SET: pb.CONFIG_OPERATION_SET,
    Operation.DELETE: pb.CONFIG_OPERATION_DELETE,
    Operation.APPEND: pb.CONFIG_OPERATION_APPEND,
    Operation.SUBTRACT: pb.CONFIG_OPERATION_SUBTRACT,
}
_ELECTION_TYPES: Final = {
    ElectionType.PREFERRED: pb.ELECTION_TYPE_PREFERRED,
    ElectionType.UNCLEAN: pb.ELECTION_TYPE_UNCLEAN,
}


def create_topics(topics: Iterable[NewTopic], *, validate_only: bool) -> pb.CreateTopicsRequest:
    return pb.CreateTopicsRequest(topics=[_new_topic(topic) for topic in topics], validate_only=validate_only)


def _new_topic(topic: NewTopic) -> pb.NewTopic:
    message = pb.NewTopic(name=topic.name, assignments=_assignments(topic.assignments), configs=topic.configs)
    if topic.partitions is not None:
        message.partitions = int32(topic.partitions, "partitions")
    if topic.replication_factor is not None:
        message.replication_factor = int32(topic.replication_factor, "replication_factor")
    return message


def delete_topics(names: Iterable[str], topic_ids: Iterable[TopicId]) -> pb.DeleteTopicsRequest:
    return pb.DeleteTopicsRequest(topics=names, topic_ids=topic_ids)


def create_partitions(growths: Iterable[TopicGrowth], *, validate_only: bool) -> pb.CreatePartitionsRequest:
    topics = [
        pb.TopicGrowth(
            topic=growth.topic,
            partition_count=int32(growth.partition_count, "partition_count"),
            assignments=_assignments(growth.assignments),
        )
        for growth in growths
    ]
    return pb.CreatePartitionsRequest(topics=topics, validate_only=validate_only)


def describe_configs(resources: Iterable[ConfigResource], names: Iterable[str]) -> pb.DescribeConfigsRequest:
    return pb.DescribeConfigsRequest(resources=[_resource(resource) for resource in resources], names=names)


def alter_configs(alterations: Iterable[ConfigAlteration], *, validate_only: bool) -> pb.AlterConfigsRequest:
    messages = [
        pb.ConfigAlteration(
            resource=_resource(alteration.resource), changes=[_change(change) for change in alteration.changes]
        )
        for alteration in alterations
    ]
    return pb.AlterConfigsRequest(alterations=messages, validate_only=validate_only)


def elect_leaders(
    kind: ElectionType, partitions: Iterable[TopicPartition], *, dry_run: bool = False
) -> pb.ElectLeadersRequest:
    named = topic_partitions(partitions)
    return pb.ElectLeadersRequest(type=_ELECTION_TYPES[kind], partitions=named, dry_run=dry_run)


def alter_reassignments(reassignments: Iterable[Reassignment]) -> pb.AlterPartitionReassignmentsRequest:
    return pb.AlterPartitionReassignmentsRequest(reassignments=[_reassignment(one) for one in reassignments])


def digest_replicas(at: TopicPartition, start: Offset | None, end: Offset | None) -> pb.DigestReplicasRequest:
    message = pb.DigestReplicasRequest(topic=at.topic, partition=at.partition)
    if start is not None:
        message.start_offset = start
    if end is not None:
        message.end_offset = end
    return message


def topic_partitions(partitions: Iterable[TopicPartition]) -> list[common_pb2.TopicPartition]:
    return [common_pb2.TopicPartition(topic=at.topic, partition=int32(at.partition, "partition")) for at in partitions]


def _reassignment(one: Reassignment) -> pb.Reassignment:
    message = pb.Reassignment(topic=one.at.topic, partition=int32(one.at.partition, "partition"))
    if one.replicas is not None:
        message.target.CopyFrom(_assignment(one.replicas))
    return message


def _resource(resource: ConfigResource) -> pb.ConfigResource:
    return pb.ConfigResource(type=_RESOURCE_TYPES[resource.type], name=resource.name)


def _change(change: ConfigChange) -> pb.ConfigChange:
    return pb.ConfigChange(name=change.name, operation=_OPERATIONS[change.operation], value=change.value)


def _assignments(assignments: Sequence[Sequence[int]]) -> list[pb.ReplicaAssignment]:
    return [_assignment(replicas) for replicas in assignments]


def _assignment(replicas: Sequence[int]) -> pb.ReplicaAssignment:
    return pb.ReplicaAssignment(replicas=[int32(node_id, "replicas") for node_id in replicas])


def int32(value: int, field: str) -> int:
    """InvalidRequestError for a number that no message can have."""
    if abs(value) > INT32_MAX:
        raise InvalidRequestError(f"{field}: {value} must be at most {INT32_MAX}", field=field, limit=INT32_MAX)
    return value


RESOURCE_TYPES: Final[Mapping[int, ResourceType]] = {number: kind for kind, number in _RESOURCE_TYPES.items()}
