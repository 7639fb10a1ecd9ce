"""Adding partitions to topics. Counts only grow: clients map keys to partitions by the count."""

from __future__ import annotations

from msgspec import Struct

from streamlog.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    InvalidTopicError,
    StreamlogError,
)
from streamlog.metadata.decision import ControllerContext, MetadataDecision
from streamlog.metadata.image.image import MetadataImage, Topic
from streamlog.metadata.records import PartitionRecord, Replicas
from streamlog.metadata.topics.assignment import check_assignments, new_partition
from streamlog.metadata.topics.creation import (
    PARTITIONS_PER_REQUEST_MAX,
    check_partition_count,
    check_replication_factor,
)
from streamlog.metadata.topics.internal_topics import INTERNAL_TOPICS
from streamlog.metadata.topics.placement import Tally, TopicPlacer, candidates
from streamlog.model import PartitionId


class GrowTopic(Struct, frozen=True, kw_only=True):
    name: str
    count: int  # of all partitions afterwards
    assignments: tuple[Replicas, ...] = ()  # of the new partitions; empty: placed by the controller


class CreatePartitions(Struct, frozen=True, kw_only=True):
    topics: tuple[GrowTopic, ...]
    validate_only: bool = False


class GrowthResult(Struct, frozen=True, kw_only=True):
    name: str
    error: StreamlogError | None = None  # if set, the topic is unchanged


def create_partitions(
    command: CreatePartitions, image: MetadataImage, context: ControllerContext
) -> MetadataDecision[tuple[GrowthResult, ...]]:
    """InvalidRequestError for the whole request; in each result UnknownTopicOrPartitionError, InvalidPartitionsError,
    InvalidReplicationFactorError, InvalidReplicaAssignmentError, InvalidTopicError.
    """
    names = [topic.name for topic in command.topics]
    if len(frozenset(names)) != len(names):
        raise InvalidRequestError("a topic is named twice in one request", field="topics")
    tally = Tally.of_cluster(image)
    records: list[PartitionRecord] = []
    results = []
    for wanted in command.topics:
        try:
            records += _growth(wanted, image, tally, PARTITIONS_PER_REQUEST_MAX - len(records))
            results.append(GrowthResult(name=wanted.name))
        except StreamlogError as error:
            results.append(GrowthResult(name=wanted.name, error=error))
    return MetadataDecision(response=tuple(results), records=() if command.validate_only else tuple(records))


def _growth(wanted: GrowTopic, image: MetadataImage, tally: Tally, room: int) -> list[PartitionRecord]:
    topic = image.require_topic(wanted.name)
    if topic.name in INTERNAL_TOPICS:
        raise InvalidTopicError(f"topic {topic.name!r} is internal: its partitions are fixed", field="name")
    has = len(topic.partitions)
    if wanted.count <= has:
        raise InvalidPartitionsError(
            f"topic {topic.name!r} has {has} partitions: {wanted.count} would not be an increase, and partitions can "
            "only be added",
            field="count",
            limit=has + 1,
        )
    count = wanted.count - has
    check_partition_count(count, room)
    first = topic.partitions[0]
    factor = len(first.replicas) - len(first.adding)
    assignments = _by_hand(wanted, count, factor, image) or _place(topic, count, factor, image, tally)
    return [
        PartitionRecord(
            topic_id=topic.topic_id, partition_id=PartitionId(has + at), partition=new_partition(replicas, image)
        )
        for at, replicas in enumerate(assignments)
    ]


def _by_hand(wanted: GrowTopic, count: int, factor: int, image: MetadataImage) -> tuple[Replicas, ...]:
    if wanted.assignments and len(wanted.assignments) != count:
        raise InvalidReplicaAssignmentError(
            f"{len(wanted.assignments)} assignments for {count} new partitions", field="assignments", limit=count
        )
    check_assignments(wanted.assignments, image, factor)
    return wanted.assignments


def _place(topic: Topic, count: int, factor: int, image: MetadataImage, tally: Tally) -> list[Replicas]:
    nodes = candidates(image)
    check_replication_factor(factor, len(nodes))
    placer = TopicPlacer(nodes, tally, Tally.of_topic(image, topic.topic_id))
    return [placer.place(factor) for _ in range(count)]
