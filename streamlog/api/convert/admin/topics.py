"""Topics are created, grown, deleted: streamlog/v1/admin.proto to the controller's commands, and its results back.

Names, counts and assignments of one topic are the controller's to refuse, topic by topic; here only what would cost
memory or time before it gets there is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from streamlog.api.convert.fields import bounded, each, text, together, topic_id
from streamlog.api.errors import to_message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.errors import InvalidRequestError
from streamlog.metadata.configs.changes import VALUE_LENGTH_MAX
from streamlog.metadata.records import Replicas
from streamlog.metadata.topics.assignment import REPLICATION_FACTOR_MAX
from streamlog.metadata.topics.creation import (
    PARTITIONS_PER_REQUEST_MAX,
    CreatableTopic,
    CreateTopics,
    TopicResult,
)
from streamlog.metadata.topics.deletion import DeleteTopics, DeletionResult
from streamlog.metadata.topics.growth import CreatePartitions, GrowthResult, GrowTopic
from streamlog.model import BrokerId, TopicId

# Each topic of a request has at least one partition, so there cannot be more topics than partitions.
TOPICS_PER_REQUEST_MAX: Final = PARTITIONS_PER_REQUEST_MAX
# The controller takes at most PARTITIONS_PER_REQUEST_MAX, and refuses the topics that do not fit one by one.
ASSIGNMENTS_MAX: Final = 5 * PARTITIONS_PER_REQUEST_MAX
# Of one topic. There are some 30 topic configs.
CONFIGS_MAX: Final = 200
CONFIG_NAME_LENGTH_MAX: Final = 200
# Longer than any valid name; the controller refuses invalid names.
_NAME_LENGTH_MAX: Final = 1_000


def create_topics(message: pb.CreateTopicsRequest) -> CreateTopics:
    """InvalidRequestError."""
    together((topic.assignments for topic in message.topics), "topics", count_max=ASSIGNMENTS_MAX)
    topics = each(message.topics, "topics", _new_topic, count_min=1, count_max=TOPICS_PER_REQUEST_MAX)
    return CreateTopics(topics=topics, validate_only=message.validate_only)


def _new_topic(message: pb.NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=_name(message.name),
        partitions=message.partitions if message.HasField("partitions") else None,
        replication_factor=message.replication_factor if message.HasField("replication_factor") else None,
        assignments=_assignments(message.assignments),
        configs=_configs(message.configs),
    )


def _configs(configs: Mapping[str, str]) -> dict[str, str]:
    """By rising name: protobuf's maps have no order."""
    if len(configs) > CONFIGS_MAX:
        raise InvalidRequestError(
            f"configs has {len(configs)} entries, but may have at most {CONFIGS_MAX}",
            field="configs",
            limit=CONFIGS_MAX,
        )
    return {config_name(name, "configs"): config_value(configs[name], "configs") for name in sorted(configs)}


def created(results: Iterable[TopicResult]) -> pb.CreateTopicsResponse:
    response = pb.CreateTopicsResponse()
    for result in results:
        row = response.results.add(name=result.name)
        if result.error is not None:
            row.error.CopyFrom(to_message(result.error))
            continue
        row.topic_id = result.topic_id or b""
        row.partition_count = result.partitions
        row.replication_factor = result.replication_factor
        row.warning = result.warning or ""
    return response


def create_partitions(message: pb.CreatePartitionsRequest) -> CreatePartitions:
    """InvalidRequestError."""
    together((topic.assignments for topic in message.topics), "topics", count_max=ASSIGNMENTS_MAX)
    topics = each(message.topics, "topics", _growth, count_min=1, count_max=TOPICS_PER_REQUEST_MAX)
    return CreatePartitions(topics=topics, validate_only=message.validate_only)


def _growth(message: pb.TopicGrowth) -> GrowTopic:
    return GrowTopic(
        name=_name(message.topic, "topic"),
        count=message.partition_count,
        assignments=_assignments(message.assignments),
    )


def grown(results: Iterable[GrowthResult]) -> pb.CreatePartitionsResponse:
    response = pb.CreatePartitionsResponse()
    for result in results:
        row = response.results.add(topic=result.name)
        if result.error is not None:
            row.error.CopyFrom(to_message(result.error))
    return response


def delete_topics(message: pb.DeleteTopicsRequest) -> DeleteTopics:
    """InvalidRequestError."""
    names = each(message.topics, "topics", _listed_name, count_max=TOPICS_PER_REQUEST_MAX)
    ids = each(message.topic_ids, "topic_ids", _listed_id, count_max=TOPICS_PER_REQUEST_MAX - len(names))
    if not names and not ids:
        raise InvalidRequestError("topics or topic_ids is required", field="topics", limit=1)
    return DeleteTopics(names=names, topic_ids=ids)


def deleted(results: Iterable[DeletionResult]) -> pb.DeleteTopicsResponse:
    response = pb.DeleteTopicsResponse()
    for result in results:
        row = response.results.add(name=result.name or "", topic_id=result.topic_id or b"")
        if result.error is not None:
            row.error.CopyFrom(to_message(result.error))
    return response


def replicas(message: pb.ReplicaAssignment) -> Replicas:
    """InvalidRequestError. The controller decides whether they can hold the partition."""
    return each(message.replicas, "replicas", _broker_id, count_min=1, count_max=REPLICATION_FACTOR_MAX)


def config_name(name: str, field: str = "name") -> str:
    return text(name, field, length_max=CONFIG_NAME_LENGTH_MAX)


def config_value(value: str, field: str = "value") -> str:
    return text(value, field, length_max=VALUE_LENGTH_MAX)


def _assignments(messages: Sequence[pb.ReplicaAssignment]) -> tuple[Replicas, ...]:
    return each(messages, "assignments", replicas, count_max=PARTITIONS_PER_REQUEST_MAX)


def _broker_id(number: int) -> BrokerId:
    if number < 0:
        raise InvalidRequestError(f"{number} is no node's id: they count from 0", limit=0)
    return BrokerId(number)


def _name(name: str, field: str = "name") -> str:
    """The controller validates the names, for each topic separately."""
    return bounded(name, field, length_max=_NAME_LENGTH_MAX)


def _listed_name(name: str) -> str:
    return bounded(name, "", length_max=_NAME_LENGTH_MAX)


def _listed_id(data: bytes) -> TopicId:
    return topic_id(data, "")
