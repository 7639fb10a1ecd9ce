"""What holds for the partitions of a topic at one moment: who may lead, how many must be in sync.

A config is looked up in the topic, then in the cluster-wide dynamic configs, then in the controller's own settings.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from streamlog.metadata.image import MetadataImage, Topic
from streamlog.metadata.records import ALL_BROKERS, ConfigResource, Partition, ResourceType
from streamlog.metadata.settings import ControllerSettings
from streamlog.model import BrokerId

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION_ENABLE: Final = "unclean.leader.election.enable"


class TopicRules(Struct, frozen=True, kw_only=True):
    active: frozenset[BrokerId]  # neither fenced nor stopping: may lead and be in sync
    min_insync_replicas: int | None  # as configured; None: by the number of replicas
    unclean: bool  # a replica that may lack committed records may lead, rather than none


class Rulebook:
    """The rules for every topic of one image."""

    def __init__(self, image: MetadataImage, settings: ControllerSettings) -> None:
        self._image = image
        self._settings = settings
        self.active = frozenset(broker.broker_id for broker in image.brokers.values() if broker.active)

    def of_topic(self, topic: Topic) -> TopicRules:
        min_insync = self._config(topic.name, MIN_INSYNC_REPLICAS)
        unclean = self._config(topic.name, UNCLEAN_LEADER_ELECTION_ENABLE)
        settings = self._settings
        return TopicRules(
            active=self.active,
            min_insync_replicas=settings.min_insync_replicas if min_insync is None else int(min_insync),
            unclean=settings.unclean_leader_election_enable if unclean is None else unclean.lower() == "true",
        )

    def _config(self, topic_name: str, name: str) -> str | None:
        own = self._image.config(ConfigResource(ResourceType.TOPIC, topic_name)).get(name)
        return self._image.config(ALL_BROKERS).get(name) if own is None else own


def effective_min_isr(configured: int | None, partition: Partition) -> int:
    """How many replicas must be in sync for records to be committed (SEMANTICS 5).

    What a reassignment is still adding does not count as replicas, or growing a topic from one replica to three would
    stop it until the new ones have caught up.
    """
    replication_factor = len(partition.replicas) - len(partition.adding)
    if configured is None:
        configured = 2 if replication_factor >= 3 else 1
    return max(1, min(configured, replication_factor))
