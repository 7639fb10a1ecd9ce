"""What clients see of the metadata image: nodes, topics, partitions."""

from __future__ import annotations

from streamlog.api.errors import to_message
from streamlog.api.pb import admin_pb2, batches_pb2, common_pb2
from streamlog.errors import StreamlogError
from streamlog.metadata.image.image import MetadataImage, Topic
from streamlog.metadata.image.roles import Role
from streamlog.metadata.records import Broker, ConfigTarget, ConfigTargetType, Partition
from streamlog.metadata.topics.internal_topics import INTERNAL_TOPICS
from streamlog.model import NO_BROKER, BrokerId, PartitionId

# `listener`: by which the caller came, empty where there is one. Callers get the addresses of their own listener.


def node(broker: Broker, listener: str) -> common_pb2.Node:
    """At the address for nodes, if it has no such listener."""
    host, port = broker.listener(listener) or (broker.host, broker.port)
    return common_pb2.Node(node_id=broker.broker_id, host=host, port=port, rack=broker.rack)


def localize(message: common_pb2.Node, image: MetadataImage, listener: str) -> None:
    """For a node in another node's answer, which has the address for nodes: the caller's instead."""
    broker = image.brokers.get(BrokerId(message.node_id))
    if listener and broker is not None:
        message.CopyFrom(node(broker, listener))


def live_nodes(image: MetadataImage, listener: str) -> list[common_pb2.Node]:
    """By rising id. Without those that have no such listener, as in Kafka: such callers may not reach them."""
    return [
        node(broker, listener)
        for broker in image.brokers.values()
        if not broker.fenced and broker.listener(listener) is not None
    ]


def node_description(broker: Broker, image: MetadataImage, listener: str) -> admin_pb2.NodeDescription:
    return admin_pb2.NodeDescription(
        node=node(broker, listener),
        state=_node_state(broker),
        broker_epoch=broker.epoch,
        draining=broker.draining,
        replica_count=image.roles.count(Role.REPLICA, broker.broker_id),
        leader_count=image.roles.count(Role.LEADER, broker.broker_id),
        metadata_version_min=broker.metadata_version_min,
        metadata_version_max=broker.metadata_version_max,
    )


def _node_state(broker: Broker) -> admin_pb2.NodeState.ValueType:
    if broker.stopping:
        return admin_pb2.NODE_STATE_STOPPING
    return admin_pb2.NODE_STATE_FENCED if broker.fenced else admin_pb2.NODE_STATE_ACTIVE


def partition(index: PartitionId, state: Partition, image: MetadataImage) -> common_pb2.Partition:
    message = common_pb2.Partition(
        partition=index,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        replicas=state.replicas,
        isr=state.isr,
        elr=state.elr,
        adding=state.adding,
        removing=state.removing,
        offline=[replica for replica in state.replicas if replica in state.offline or not _is_alive(replica, image)],
    )
    if state.leader != NO_BROKER:
        message.leader = state.leader
    return message


def _is_alive(broker_id: BrokerId, image: MetadataImage) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced


def topic_metadata(topic: Topic, image: MetadataImage, indexes: range) -> batches_pb2.TopicMetadata:
    """With the partitions of these indexes."""
    return batches_pb2.TopicMetadata(
        topic=topic.name,
        topic_id=topic.topic_id,
        partition_count=len(topic.partitions),
        partitions=_partitions(topic, image, indexes),
        internal=topic.name in INTERNAL_TOPICS,
    )


def missing_topic(name: str, topic_id: bytes, error: StreamlogError) -> batches_pb2.TopicMetadata:
    """One of name and id is empty."""
    return batches_pb2.TopicMetadata(topic=name, topic_id=topic_id, error=to_message(error))


def topic_description(topic: Topic, image: MetadataImage, indexes: range) -> admin_pb2.TopicDescription:
    """With the partitions of these indexes."""
    configs = image.config(ConfigTarget(ConfigTargetType.TOPIC, topic.name))
    return admin_pb2.TopicDescription(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_count=len(topic.partitions),
        replication_factor=replication_factor(topic),
        configs=dict(configs.items()),
        partitions=_partitions(topic, image, indexes),
        internal=topic.name in INTERNAL_TOPICS,
    )


def topic_listing(topic: Topic) -> admin_pb2.TopicListing:
    return admin_pb2.TopicListing(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_count=len(topic.partitions),
        replication_factor=replication_factor(topic),
        internal=topic.name in INTERNAL_TOPICS,
    )


def replication_factor(topic: Topic) -> int:
    """Of the first partition, without what a reassignment is still adding."""
    first = topic.partitions[0]
    return len(first.replicas) - len(first.adding)


def _partitions(topic: Topic, image: MetadataImage, indexes: range) -> list[common_pb2.Partition]:
    return [partition(PartitionId(index), topic.partitions[index], image) for index in indexes]
