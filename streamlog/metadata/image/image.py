"""The metadata image: everything that the quorum has decided, as of one index. Immutable.

An image is made from another one and a list of records, only by streamlog.metadata.image.delta. It is a persistent data
structure: its maps are `SortedMap`, a topic's partitions a `PagedSequence`, so an image shares everything unchanged
with its predecessor and may be held for any time (by a request, a snapshot being written, the controller's decisions
ahead of the commit).

Nothing in it depends on the process: no hashes, no addresses, no wall clock. Nodes that have applied the same records
have byte-identical snapshots (FAULTS I13).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from streamlog.access.acl import Acl
from streamlog.access.passwords import SaltedPassword
from streamlog.access.quotas import QuotaEntity
from streamlog.errors import (
    BrokerIdNotRegisteredError,
    StaleBrokerEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from streamlog.metadata.image.pages import PagedSequence
from streamlog.metadata.image.roles import PartitionKey, RoleIndex
from streamlog.metadata.image.sorted_map import SortedMap
from streamlog.metadata.records import Broker, ConfigTarget, MetadataVersion, Partition
from streamlog.model import BrokerEpoch, BrokerId, PartitionId, ProducerId, RaftIndex, TopicId, TopicPartition


class Topic(Struct, frozen=True, kw_only=True):
    topic_id: TopicId
    name: str
    partitions: PagedSequence[Partition]  # by partition id; not empty at the end of a batch


class MetadataImage(Struct, frozen=True, kw_only=True):
    index: RaftIndex  # of the last command applied; 0: none
    metadata_version: MetadataVersion  # 0: not bootstrapped
    cluster_id: str  # empty: not bootstrapped
    brokers: SortedMap[BrokerId, Broker]
    topics: SortedMap[TopicId, Topic]
    # By the name with every '.' replaced by '_': two topics cannot share it (`collision_key`), so it serves both the
    # look-up by name and the check for collisions.
    topic_ids: SortedMap[str, TopicId]
    # Only resources that have a config; inside, only names that are set.
    configs: SortedMap[ConfigTarget, SortedMap[str, str]]
    # Another map object if and only if they have changed.
    acls: SortedMap[Acl, bool]  # a set: all values are True
    users: SortedMap[str, SaltedPassword]
    # Only entities that have a limit; inside, only keys that are set.
    quotas: SortedMap[QuotaEntity, SortedMap[str, float]]
    next_producer_id: ProducerId
    partition_count: int  # of all topics
    roles: RoleIndex  # derived from topics

    def topic_named(self, name: str) -> Topic | None:
        topic = self.topic_like(name)
        return topic if topic is not None and topic.name == name else None

    def topic_like(self, name: str) -> Topic | None:
        """The topic of this name, or the one that it would collide with."""
        topic_id = self.topic_ids.get(collision_key(name))
        return None if topic_id is None else self.topics[topic_id]

    def require_topic(self, name: str) -> Topic:
        """UnknownTopicOrPartitionError if there is none of this name."""
        topic = self.topic_named(name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"topic {name!r} does not exist", field="topic")
        return topic

    def has(self, partition: TopicPartition) -> bool:
        topic = self.topic_named(partition.topic)
        return topic is not None and partition.partition < len(topic.partitions)

    def require_topic_id(self, topic_id: TopicId) -> Topic:
        """UnknownTopicIdError if there is none, or it was deleted."""
        topic = self.topics.get(topic_id)
        if topic is None:
            raise UnknownTopicIdError("no topic has this id (it may have been deleted)", field="topic_id")
        return topic

    def partition(self, key: PartitionKey) -> Partition:
        """KeyError, IndexError if it is missing."""
        return self.topics[key[0]].partitions[key[1]]

    def require_broker(self, broker_id: BrokerId, broker_epoch: BrokerEpoch | None = None) -> Broker:
        """BrokerIdNotRegisteredError; StaleBrokerEpochError if it is registered under another epoch."""
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise BrokerIdNotRegisteredError(f"node {broker_id} is not registered", field="broker_id")
        if broker_epoch is not None and broker_epoch != broker.epoch:
            raise StaleBrokerEpochError(
                f"stale broker epoch {broker_epoch} of node {broker_id}; current is {broker.epoch}",
                field="broker_epoch",
                limit=broker.epoch,
            )
        return broker

    def config(self, resource: ConfigTarget) -> SortedMap[str, str]:
        return self.configs.get(resource, NO_CONFIG)

    def partitions(self) -> Iterator[tuple[PartitionKey, Partition]]:
        """All of them, by topic id and partition id."""
        for topic in self.topics.values():
            for partition_id, partition in enumerate(topic.partitions):
                yield (topic.topic_id, PartitionId(partition_id)), partition


EMPTY_IMAGE: Final = MetadataImage(
    index=RaftIndex(0),
    metadata_version=MetadataVersion(0),
    cluster_id="",
    brokers=SortedMap(),
    topics=SortedMap(),
    topic_ids=SortedMap(),
    configs=SortedMap(),
    acls=SortedMap(),
    users=SortedMap(),
    quotas=SortedMap(),
    next_producer_id=ProducerId(0),
    partition_count=0,
    roles=RoleIndex(),
)
NO_CONFIG: Final[SortedMap[str, str]] = SortedMap()
NO_LIMITS: Final[SortedMap[str, float]] = SortedMap()


def collision_key(topic_name: str) -> str:
    """Names that differ only in '.' and '_' collide, as they do in metric names (Kafka's rule)."""
    return topic_name.replace(".", "_")


def require_partition(topic: Topic, partition_id: int) -> Partition:
    """UnknownTopicOrPartitionError if the topic has no such partition."""
    partition = topic.partitions.get(partition_id)
    if partition is None:
        raise UnknownTopicOrPartitionError(
            f"topic {topic.name!r} has {len(topic.partitions)} partitions, {partition_id} is not one of them",
            field="partition",
            limit=len(topic.partitions),
        )
    return partition
