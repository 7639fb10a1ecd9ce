"""Internal topics: users neither create nor delete them.

They start with as many replicas as there are active nodes, up to the configured number, so that a cluster of one node
works at once; as nodes join they grow to that number (SEMANTICS 5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from streamlog.metadata.image.image import MetadataImage, Topic
from streamlog.metadata.records import Broker, PartitionChangeRecord
from streamlog.metadata.settings import ControllerSettings
from streamlog.metadata.topics.placement import Tally, TopicPlacer, candidates
from streamlog.model import NO_BROKER, PartitionId

_REPLICATION_FACTOR: Final = 3  # if not configured
_TRANSACTION_MIN_ISR: Final = 2  # likewise; with fewer replicas, all of them


class InternalTopic(Struct, frozen=True, kw_only=True):
    # Never changes: keys are distributed over the partitions by their hash.
    partitions: Callable[[ControllerSettings], int]
    # Small, so that compaction and the replay by a new coordinator have little to read.
    segment_bytes: Callable[[ControllerSettings], int]
    replication_factor: Callable[[ControllerSettings], int | None]
    min_isr: Callable[[ControllerSettings], int | None]  # None: as any topic's
    configs: Mapping[str, str]

    def replicas(self, settings: ControllerSettings, nodes: int) -> int:
        """The replicas of a partition in a cluster of that many nodes; at least one."""
        return max(1, min(self.replication_factor(settings) or _REPLICATION_FACTOR, nodes))

    def all_configs(self, settings: ControllerSettings) -> dict[str, str]:
        """Including the configured values."""
        configs = {**self.configs, "segment.bytes": str(self.segment_bytes(settings))}
        if (min_isr := self.min_isr(settings)) is not None:
            configs["min.insync.replicas"] = str(min_isr)
        return configs


INTERNAL_TOPICS: Final[Mapping[str, InternalTopic]] = {
    "__consumer_offsets": InternalTopic(
        partitions=lambda settings: settings.offsets_topic_num_partitions,
        segment_bytes=lambda settings: settings.offsets_topic_segment_bytes,
        replication_factor=lambda settings: settings.offsets_topic_replication_factor,
        min_isr=lambda _: None,
        configs={"cleanup.policy": "compact"},
    ),
    "__transaction_state": InternalTopic(
        partitions=lambda settings: settings.transaction_state_log_num_partitions,
        segment_bytes=lambda settings: settings.transaction_state_log_segment_bytes,
        replication_factor=lambda settings: settings.transaction_state_log_replication_factor,
        min_isr=lambda settings: settings.transaction_state_log_min_isr or _TRANSACTION_MIN_ISR,
        configs={"cleanup.policy": "compact", "unclean.leader.election.enable": "false"},
    ),
}


def growth(image: MetadataImage, settings: ControllerSettings) -> Iterator[PartitionChangeRecord]:
    """For each partition of an internal topic with too few replicas that could have more: a reassignment that adds
    them. Partitions without a leader to copy from, and those being reassigned already, follow later.
    """
    nodes = candidates(image)
    tally: Tally | None = None
    for name, internal in INTERNAL_TOPICS.items():
        wanted = internal.replicas(settings, len(nodes))
        topic = image.topic_named(name)
        if topic is None or all(len(partition.replicas) >= wanted for partition in topic.partitions):
            continue
        tally = tally or Tally.of_cluster(image)
        placer = TopicPlacer(nodes, tally, Tally.of_topic(image, topic.topic_id))
        yield from _growth_of(topic, wanted, placer, nodes)


def _growth_of(
    topic: Topic, wanted: int, placer: TopicPlacer, nodes: Sequence[Broker]
) -> Iterator[PartitionChangeRecord]:
    for partition_id, partition in enumerate(topic.partitions):
        available = sum(node.broker_id not in partition.replicas for node in nodes)
        missing = min(wanted - len(partition.replicas), available)
        if missing <= 0 or partition.leader == NO_BROKER or partition.adding or partition.removing:
            continue
        replicas = placer.extend(partition.replicas, missing)
        yield PartitionChangeRecord(
            topic_id=topic.topic_id,
            partition_id=PartitionId(partition_id),
            replicas=replicas,
            adding=replicas[len(partition.replicas) :],
        )
