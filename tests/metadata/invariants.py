"""What is true of every image, of every image at rest, and of every step from one to the next."""

from __future__ import annotations

from streamlog.metadata.configs.rules import Rulebook, effective_min_isr
from streamlog.metadata.image.image import MetadataImage, collision_key
from streamlog.metadata.image.roles import Role, RoleIndex
from streamlog.metadata.partitions.settle import unsettled
from streamlog.metadata.records import Partition
from streamlog.metadata.settings import ControllerSettings
from streamlog.model import NO_BROKER, PartitionId


def check_image(image: MetadataImage, settings: ControllerSettings) -> None:
    """Of an image at rest."""
    check_structure(image)
    rulebook = Rulebook(image, settings)
    for key, partition in image.partitions():
        assert all(image.brokers[b].active for b in partition.isr), "SEMANTICS 8: fenced nodes are out of every ISR"
        assert not set(partition.isr) & set(partition.offline)
        assert partition.leader == NO_BROKER or partition.leader in partition.isr, "SEMANTICS 4: a leader is in sync"
        assert (partition.leader == NO_BROKER) == (not partition.isr)
        rules = rulebook.of_topic(image.topics[key[0]])
        if len(partition.isr) >= effective_min_isr(rules.min_insync_replicas, partition):
            assert not partition.last_known_elr
            assert not partition.elr, "SEMANTICS 4: the ELR is cleared once enough are in sync"
    assert not list(unsettled(image, settings)), "the image is not at rest"


def check_structure(image: MetadataImage) -> None:
    """Of every image, also between the commands of one change."""
    for topic_id, topic in image.topics.items():
        assert topic.topic_id == topic_id
        assert image.topic_ids[collision_key(topic.name)] == topic_id
        assert len(topic.partitions) > 0
    assert len(image.topic_ids) == len(image.topics)
    for _, partition in image.partitions():
        check_partition(partition)
        assert all(b in image.brokers for b in partition.replicas)
    assert image.partition_count == sum(len(topic.partitions) for topic in image.topics.values())
    assert all(len(configs) for configs in image.configs.values())
    for maps in (image.brokers, image.topics, image.topic_ids, image.configs):
        maps.check()
    check_roles(image)


def check_partition(partition: Partition) -> None:
    replicas = set(partition.replicas)
    assert partition.replicas
    assert len(replicas) == len(partition.replicas)
    subsets = (partition.isr, partition.elr, partition.last_known_elr, partition.adding, partition.removing)
    for subset in (*subsets, partition.offline):
        assert len(set(subset)) == len(subset)
        assert set(subset) <= replicas
    assert not set(partition.isr) & set(partition.elr)
    assert not set(partition.last_known_elr) & {*partition.isr, *partition.elr}
    assert not set(partition.adding) & set(partition.removing)
    if partition.leader != NO_BROKER:
        assert partition.leader in partition.isr
        assert partition.last_leader == partition.leader


def check_roles(image: MetadataImage) -> None:
    """The index that was derived step by step is the one that the partitions give."""
    fresh = RoleIndex().updated(
        (topic.topic_id, [(PartitionId(at), None, partition) for at, partition in enumerate(topic.partitions)])
        for topic in image.topics.values()
    )
    for role in Role:
        for broker_id in (NO_BROKER, *image.brokers):
            keys = list(fresh.partitions(role, broker_id))
            assert list(image.roles.partitions(role, broker_id)) == keys
            assert image.roles.count(role, broker_id) == len(keys)
            assert image.roles.any(role, broker_id) == bool(keys)


def check_step(before: MetadataImage, after: MetadataImage) -> None:
    """From one command of the quorum to the next (SEMANTICS 3: epochs)."""
    assert after.index > before.index
    assert after.next_producer_id >= before.next_producer_id
    assert after.metadata_version >= before.metadata_version
    for (topic_id, partition_id), new in after.partitions():
        topic = before.topics.get(topic_id)
        old = topic.partitions.get(partition_id) if topic is not None else None
        if old is None or old is new:
            continue
        assert new.partition_epoch > old.partition_epoch, "any change raises the partition epoch"
        assert new.leader_epoch >= old.leader_epoch
        if new.leader != old.leader:
            assert new.leader_epoch > old.leader_epoch, "FAULTS I10: one leader for each epoch"
        if not set(old.replicas) <= set(new.replicas):
            assert new.leader_epoch > old.leader_epoch, "who is no replica any more must not fetch as one"
    for topic_id, topic in before.topics.items():
        grown = after.topics.get(topic_id)
        assert grown is None or len(grown.partitions) >= len(topic.partitions), "partitions only grow"
    for broker_id, broker in after.brokers.items():
        known = before.brokers.get(broker_id)
        if known is not None and known.incarnation_id != broker.incarnation_id:
            assert broker.epoch == after.index
            assert broker.fenced
            assert not before.roles.any(Role.LEADER, broker_id) or not after.roles.any(Role.LEADER, broker_id)
            assert not after.roles.any(Role.LEADER, broker_id), "a new incarnation leads nothing"
            assert not after.roles.any(Role.ISR, broker_id)
