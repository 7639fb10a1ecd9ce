"""The reassignments of a drain: for a planned removal, or to replace a node that failed permanently.

Draining is a mark on the node, so it survives a change of the controller. A marked node gets no new replicas, and its
partitions are reassigned to other nodes, `drain.partitions.max` at a time; each completed one lets the next one start.
The moves are consequences of the mark (partitions.settle), so there is no other state. Cancelling removes the mark and
cancels the moves in progress; completed ones are kept.

The new replica is last in the list, so a leadership moves to the next replica in order, which differs by partition
(streamlog.metadata.topics.placement), and not to the new copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from streamlog.metadata.configs.rules import Rulebook
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.image.roles import PartitionKey, Role
from streamlog.metadata.partitions.election import without
from streamlog.metadata.partitions.reassignment import moved, reassignments
from streamlog.metadata.records import Broker, Partition, PartitionChangeRecord
from streamlog.metadata.settings import ControllerSettings
from streamlog.metadata.topics.placement import Tally, TopicPlacer, candidates
from streamlog.model import NO_BROKER, BrokerId, TopicId


class DrainStatus(Struct, frozen=True, kw_only=True):
    replicas: int  # still on the node, including those that are moving
    moving: int


def progress(image: MetadataImage, broker_id: BrokerId) -> DrainStatus:
    moving = sum(broker_id in partition.removing for _, partition in reassignments(image))
    return DrainStatus(replicas=image.roles.count(Role.REPLICA, broker_id), moving=moving)


def moves(image: MetadataImage, settings: ControllerSettings) -> Iterator[PartitionChangeRecord]:
    """For each node being drained, the reassignments that may start now. Partitions without a leader to copy from, and
    those being reassigned already, follow later.
    """
    drained = [broker.broker_id for broker in image.brokers.values() if broker.draining]
    if not drained:
        return
    nodes, tally, rulebook = candidates(image), Tally.of_cluster(image), Rulebook(image, settings)
    placers: dict[TopicId, TopicPlacer] = {}
    started: set[PartitionKey] = set()
    for broker_id in drained:
        room = settings.drain_partitions_max - progress(image, broker_id).moving
        for key in image.roles.partitions(Role.REPLICA, broker_id):
            if room <= 0:
                break
            if key in started or not _movable(image.partition(key), nodes):
                continue
            if key[0] not in placers:
                placers[key[0]] = TopicPlacer(nodes, tally, Tally.of_topic(image, key[0]))
            record = _move(key, broker_id, image, placers[key[0]], rulebook)
            if record is not None:
                started.add(key)
                room -= 1
                yield record


def _movable(partition: Partition, nodes: Sequence[Broker]) -> bool:
    at_rest = partition.leader != NO_BROKER and not partition.adding and not partition.removing
    return at_rest and any(node.broker_id not in partition.replicas for node in nodes)


def _move(
    key: PartitionKey, broker_id: BrokerId, image: MetadataImage, placer: TopicPlacer, rulebook: Rulebook
) -> PartitionChangeRecord | None:
    partition = image.partition(key)
    remaining = without(partition.replicas, (broker_id,))
    target = placer.extend(remaining, 1) if remaining else placer.place(1)
    return moved(key, partition, target, rulebook.of_topic(image.topics[key[0]]))
