"""The records of the metadata log and the values in them: the only way to change the cluster's metadata.

A record states a decision, not its reason. It is self-contained, so replay needs neither clock nor settings: the same
records always give the same image on every node. One Raft command holds one list of records, applied atomically.

Partitions and nodes have two kinds of record. `PartitionRecord` and `BrokerRecord` have the whole state: they create,
and make up snapshots. `PartitionChangeRecord` and `BrokerChangeRecord` have the changes; a field that is None does not
change.

Every type is gated by a level of `metadata.version` (streamlog.metadata.features), and every encoded record carries
the version of its own format (streamlog.metadata.convert).
"""

from __future__ import annotations

import enum
from typing import Final, NewType, TypeAlias

from msgspec import Struct

from streamlog.access.acl import Acl
from streamlog.access.passwords import SaltedPassword
from streamlog.access.quotas import QuotaEntity
from streamlog.model import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    ProducerId,
    TopicId,
)

MetadataVersion = NewType("MetadataVersion", int)
"""Level of `metadata.version`: what all nodes of the cluster understand. 0 before the first record."""

# In a BrokerRecord: the broker epoch is the index of the command that carries it (SEMANTICS 8). Indexes start at 1.
EPOCH_FROM_INDEX: Final = BrokerEpoch(0)

FIRST_LEADER_EPOCH: Final = LeaderEpoch(0)
FIRST_PARTITION_EPOCH: Final = PartitionEpoch(0)

Replicas: TypeAlias = tuple[BrokerId, ...]
"""Distinct brokers: a replica list, an ISR or the like."""


class Partition(Struct, frozen=True, kw_only=True):
    """The state of one partition. Leader and ISR change only by the rules of streamlog.metadata.partitions.election."""

    replicas: Replicas  # not empty; the preferred leader first; while reassigned, the old ones too
    isr: Replicas  # subset of replicas; at rest neither fenced, nor stopping, nor offline
    elr: Replicas = ()  # subset of replicas, none of them in isr; empty once |isr| >= min.insync.replicas
    # subset of replicas, none of them in isr or elr: they were so, hold all that was committed, and stopped uncleanly
    # since, on disks that they have kept; empty once |isr| >= min.insync.replicas. Since metadata.version 2.
    last_known_elr: Replicas = ()
    adding: Replicas = ()  # subset of replicas: those that a reassignment adds
    removing: Replicas = ()  # subset of replicas: those that it will remove
    offline: Replicas = ()  # subset of replicas: those whose log directory has failed
    leader: BrokerId = NO_BROKER  # in isr, or NO_BROKER
    last_leader: BrokerId = NO_BROKER  # the latest leader; it may lead again when isr and elr are empty (KIP-966)
    leader_epoch: LeaderEpoch = FIRST_LEADER_EPOCH  # rises with every change of the leader, also to none
    partition_epoch: PartitionEpoch = FIRST_PARTITION_EPOCH  # rises with every change


class BrokerListener(Struct, frozen=True, kw_only=True):
    """Where callers of one listener of a node find it."""

    name: str
    host: str
    port: int


class Broker(Struct, frozen=True, kw_only=True):
    """A registered node. `host` and `port`: where nodes find it, and clients where it has one listener."""

    broker_id: BrokerId
    epoch: BrokerEpoch  # Raft index of the registration
    incarnation_id: bytes  # 16 random bytes, new with each start of the process
    host: str
    port: int
    rack: str = ""  # empty: none
    metadata_version_min: MetadataVersion
    metadata_version_max: MetadataVersion  # the levels it supports, inclusive
    directory_ids: tuple[bytes, ...] = ()  # of its log directories, ascending
    fenced: bool = True  # leads nothing, is in no ISR
    stopping: bool = False  # in controlled shutdown: barred from ISRs until it registers again
    draining: bool = False  # being drained by an operator: gets no new replicas
    listeners: tuple[BrokerListener, ...] = ()  # by name, the one for nodes too; empty: there is one

    def listener(self, name: str) -> tuple[str, int] | None:
        """Host and port for callers of the listener `name`, empty: of the one for nodes; None: it has no such one."""
        if not name or not self.listeners:
            return self.host, self.port
        return next(((one.host, one.port) for one in self.listeners if one.name == name), None)

    @property
    def active(self) -> bool:
        """May lead and be in sync."""
        return not (self.fenced or self.stopping)


class ConfigTargetType(enum.IntEnum):
    """What a config belongs to. The numbers are Kafka's and are stored in records."""

    TOPIC = 2
    BROKER = 4


class ConfigTarget(Struct, frozen=True, order=True):
    """A topic by name; a broker by its id in decimal; all brokers by the empty name."""

    type: ConfigTargetType
    name: str


ALL_BROKERS: Final = ConfigTarget(ConfigTargetType.BROKER, "")


class MetadataVersionRecord(Struct, frozen=True, kw_only=True):
    """The first record of every cluster. Later ones raise the level."""

    level: MetadataVersion


class ClusterRecord(Struct, frozen=True, kw_only=True):
    """Sets the cluster's id, once."""

    cluster_id: str


class BrokerRecord(Struct, frozen=True, kw_only=True):
    """A registration: replaces the earlier one of this id."""

    broker: Broker  # epoch EPOCH_FROM_INDEX in a registration, the real one in a snapshot


class BrokerChangeRecord(Struct, frozen=True, kw_only=True):
    broker_id: BrokerId
    broker_epoch: BrokerEpoch  # must be the registered one
    fenced: bool | None = None
    stopping: bool | None = None
    draining: bool | None = None


class UnregisterBrokerRecord(Struct, frozen=True, kw_only=True):
    broker_id: BrokerId
    broker_epoch: BrokerEpoch


class TopicRecord(Struct, frozen=True, kw_only=True):
    topic_id: TopicId
    name: str


class RemoveTopicRecord(Struct, frozen=True, kw_only=True):
    """Also removes the topic's partitions and configs."""

    topic_id: TopicId


class PartitionRecord(Struct, frozen=True, kw_only=True):
    topic_id: TopicId
    partition_id: PartitionId  # the next one of its topic
    partition: Partition


class PartitionChangeRecord(Struct, frozen=True, kw_only=True):
    """Raises the partition epoch by one; with a `leader`, even the same one, the leader epoch too."""

    topic_id: TopicId
    partition_id: PartitionId
    replicas: Replicas | None = None
    isr: Replicas | None = None
    elr: Replicas | None = None
    last_known_elr: Replicas | None = None
    adding: Replicas | None = None
    removing: Replicas | None = None
    offline: Replicas | None = None
    leader: BrokerId | None = None
    last_leader: BrokerId | None = None  # only to clear it; replay sets it to a new leader


class ConfigRecord(Struct, frozen=True, kw_only=True):
    resource: ConfigTarget
    name: str
    value: str | None  # None: removed, the default applies again


class ProducerIdsRecord(Struct, frozen=True, kw_only=True):
    """Every producer id below this one has been allocated."""

    next_producer_id: ProducerId


class AclRecord(Struct, frozen=True, kw_only=True):
    """Adds an entry to the access control lists; one that is there already stays."""

    acl: Acl


class RemoveAclRecord(Struct, frozen=True, kw_only=True):
    acl: Acl


class UserRecord(Struct, frozen=True, kw_only=True):
    """A new user, or another password of one."""

    name: str
    password: SaltedPassword


class RemoveUserRecord(Struct, frozen=True, kw_only=True):
    name: str


class ClientQuotaRecord(Struct, frozen=True, kw_only=True):
    """One limit."""

    entity: QuotaEntity
    key: str
    value: float | None  # None: removed


MetadataRecord: TypeAlias = (
    MetadataVersionRecord
    | ClusterRecord
    | BrokerRecord
    | BrokerChangeRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | RemoveTopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ConfigRecord
    | ProducerIdsRecord
    | AclRecord
    | RemoveAclRecord
    | UserRecord
    | RemoveUserRecord
    | ClientQuotaRecord
)
