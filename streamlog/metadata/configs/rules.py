"""The rules for the partitions of a topic under one image: which nodes may lead, how many must be in sync.

A config is looked up in the topic, then in the cluster-wide dynamic configs, then in the controller's own settings.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from streamlog.metadata.features import LAST_KNOWN_ELR
from streamlog.metadata.image.image import MetadataImage, Topic
from streamlog.metadata.partitions.replica_states import RecoveryStrategy
from streamlog.metadata.records import ALL_BROKERS, ConfigTarget, ConfigTargetType, Partition
from streamlog.metadata.settings import ControllerSettings
from streamlog.model import BrokerId

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION_ENABLE: Final = "unclean.leader.election.enable"
UNCLEAN_RECOVERY_STRATEGY: Final = "unclean.recovery.strategy"


class TopicRules(Struct, frozen=True, kw_only=True):
    active: frozenset[BrokerId]  # neither fenced nor stopping: may lead and be in sync
    min_insync_replicas: int | None  # as configured; None: by the number of replicas
    recovery: RecoveryStrategy = RecoveryStrategy.BALANCED  # when no in-sync or eligible replica is active
    remembers: bool = True  # metadata.version allows `last_known_elr`


class Rulebook:
    """The rules for every topic of one image."""

    def __init__(self, image: MetadataImage, settings: ControllerSettings) -> None:
        self._image = image
        self._settings = settings
        self.active = frozenset(broker.broker_id for broker in image.brokers.values() if broker.active)

    def of_topic(self, topic: Topic) -> TopicRules:
        min_insync = self._config(topic.name, MIN_INSYNC_REPLICAS)
        settings = self._settings
        return TopicRules(
            active=self.active,
            min_insync_replicas=settings.min_insync_replicas if min_insync is None else int(min_insync),
            recovery=self._recovery(topic.name),
            remembers=self._image.metadata_version >= LAST_KNOWN_ELR,
        )

    def _recovery(self, topic_name: str) -> RecoveryStrategy:
        """The first one set; `unclean.leader.election.enable` implies a strategy, as in Kafka."""
        for resource in (ConfigTarget(ConfigTargetType.TOPIC, topic_name), ALL_BROKERS):
            configs = self._image.config(resource)
            strategy, unclean = configs.get(UNCLEAN_RECOVERY_STRATEGY), configs.get(UNCLEAN_LEADER_ELECTION_ENABLE)
            if strategy is not None:
                return RecoveryStrategy(strategy.lower())
            if unclean is not None:
                return _strategy_of(unclean.lower() == "true")
        given = self._settings.unclean_recovery_strategy
        return _strategy_of(self._settings.unclean_leader_election_enable) if given is None else given

    def _config(self, topic_name: str, name: str) -> str | None:
        own = self._image.config(ConfigTarget(ConfigTargetType.TOPIC, topic_name)).get(name)
        return self._image.config(ALL_BROKERS).get(name) if own is None else own


def _strategy_of(unclean: bool) -> RecoveryStrategy:
    return RecoveryStrategy.AGGRESSIVE if unclean else RecoveryStrategy.BALANCED


def others_eligible(partition: Partition) -> bool:
    """Whether replicas outside of the ISR may be elected as complete: nothing may be acknowledged without them."""
    return bool(partition.elr or partition.last_known_elr)


def effective_min_isr(configured: int | None, partition: Partition) -> int:
    """How many replicas must be in sync for records to be committed (SEMANTICS 5).

    Replicas that a reassignment is still adding do not count, or growing a topic from one replica to three would block
    it until the new ones have caught up.
    """
    replication_factor = len(partition.replicas) - len(partition.adding)
    if configured is None:
        configured = 2 if replication_factor >= 3 else 1
    return max(1, min(configured, replication_factor))
