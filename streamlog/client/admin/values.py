"""The values that the admin client takes and returns. Times are milliseconds, sizes bytes, ranges of offsets half-open.

Requests about several things return a result for each, whose `error` is None where it succeeded. Results are in the
order of the request, unless a comment says otherwise.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from streamlog.config import ConfigChange as ConfigChange
from streamlog.config.addresses import Address
from streamlog.errors import StreamlogError
from streamlog.model import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionId,
    RaftIndex,
    RaftTerm,
    TopicId,
    TopicPartition,
)


class NewTopic(Struct, frozen=True):
    """`NewTopic("orders", 3, 2)`, as in Kafka's clients; None: the cluster's default. `assignments`: the replicas of
    each partition, preferred leader first; empty: the controller places them, evenly and over racks.
    """

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignments: Sequence[Sequence[int]] = ()
    configs: Mapping[str, str] = field(default_factory=dict)


class CreatedTopic(Struct, frozen=True, kw_only=True):
    name: str
    topic_id: TopicId  # empty with an error, or with validate_only
    partition_count: int
    replication_factor: int
    warning: str  # about the name; empty: none
    error: StreamlogError | None


class DeletedTopic(Struct, frozen=True, kw_only=True):
    name: str  # empty where only an unknown id was given
    topic_id: TopicId
    error: StreamlogError | None


class TopicListing(Struct, frozen=True, kw_only=True):
    name: str
    topic_id: TopicId
    partition_count: int
    replication_factor: int  # of its first partition
    internal: bool


class PartitionDescription(Struct, frozen=True, kw_only=True):
    """isr, elr, adding, removing, offline are subsets of `replicas`, whose first is the preferred leader."""

    partition: PartitionId
    leader: BrokerId | None
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    elr: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...]
    removing: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...]


class TopicDescription(Struct, frozen=True, kw_only=True):
    name: str
    topic_id: TopicId
    partition_count: int
    replication_factor: int  # of its first partition
    configs: Mapping[str, str]  # those that are set for this topic, in ascending order of names
    partitions: tuple[PartitionDescription, ...]  # in ascending order
    internal: bool
    error: StreamlogError | None


class TopicGrowth(Struct, frozen=True, kw_only=True):
    topic: str
    partition_count: int  # in all
    assignments: Sequence[Sequence[int]] = ()  # of the new partitions


class GrownTopic(Struct, frozen=True, kw_only=True):
    topic: str
    error: StreamlogError | None


class ResourceType(enum.Enum):
    TOPIC = "topic"
    BROKER = "broker"


class ConfigResource(Struct, frozen=True):
    """A topic by its name, a node by its id, or all nodes by an empty name."""

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int) -> ConfigResource:
        return cls(ResourceType.BROKER, str(node_id))

    @classmethod
    def all_brokers(cls) -> ConfigResource:
        return cls(ResourceType.BROKER, "")


class ConfigSource(enum.Enum):
    """Kafka's names."""

    UNKNOWN = "UNKNOWN"  # of a newer release
    DEFAULT = "DEFAULT_CONFIG"
    STATIC_BROKER = "STATIC_BROKER_CONFIG"
    DYNAMIC_ALL_BROKERS = "DYNAMIC_DEFAULT_BROKER_CONFIG"
    DYNAMIC_BROKER = "DYNAMIC_BROKER_CONFIG"
    TOPIC = "DYNAMIC_TOPIC_CONFIG"


class ConfigEntry(Struct, frozen=True, kw_only=True):
    name: str
    value: str | None  # None: none, or it is secret
    source: ConfigSource
    type: str  # boolean, string, int, long, double, list, password; empty: of a newer release
    read_only: bool
    sensitive: bool
    default_value: str | None
    valid_values: str  # as text for users; empty: any of its type
    documentation: str


class ConfigDescription(Struct, frozen=True, kw_only=True):
    resource: ConfigResource
    entries: tuple[ConfigEntry, ...]  # in ascending order of names
    error: StreamlogError | None


class ConfigAlteration(Struct, frozen=True, kw_only=True):
    resource: ConfigResource
    changes: Sequence[ConfigChange]  # all are applied, or none


class AlteredConfig(Struct, frozen=True, kw_only=True):
    resource: ConfigResource
    error: StreamlogError | None


class ElectionType(enum.Enum):
    PREFERRED = "preferred"
    UNCLEAN = "unclean"  # for a partition without a leader: the active replica with the longest log; may lose records


class ElectionCandidate(Struct, frozen=True, kw_only=True):
    """A replica that an unclean election could choose, if its node is active."""

    node_id: BrokerId
    state: str  # alive, no answer, fenced, stopping, unregistered, disk failed, damaged
    known: bool  # it was last in the ISR, or eligible
    last_epoch: int | None  # of its last record; None: it has none, or did not answer
    log_end: Offset | None  # None: it did not answer
    lost_records: int | None  # that it lacks of the longest known log; None: unknown
    would_lead: bool


class Election(Struct, frozen=True, kw_only=True):
    at: TopicPartition
    leader: BrokerId | None  # the present one
    error: StreamlogError | None  # ElectionNotNeededError where the preferred one leads already
    candidates: tuple[ElectionCandidate, ...] = ()  # of a dry run, in the order of the replicas


class DeletedRecords(Struct, frozen=True, kw_only=True):
    """The result of deleting records of one partition."""

    at: TopicPartition
    log_start: Offset  # first readable offset of the partition now; -1 with an error
    error: StreamlogError | None


class Reassignment(Struct, frozen=True, kw_only=True):
    at: TopicPartition
    replicas: Sequence[int] | None  # None: cancel the move under way


class ReassignmentResult(Struct, frozen=True, kw_only=True):
    at: TopicPartition
    error: StreamlogError | None


class OngoingReassignment(Struct, frozen=True, kw_only=True):
    topic: str
    partition: PartitionDescription


class NodeState(enum.Enum):
    UNKNOWN = "unknown"  # of a newer release
    ACTIVE = "active"
    FENCED = "fenced"  # registered, but without heartbeats, or not caught up with the metadata yet
    STOPPING = "stopping"


class NodeDescription(Struct, frozen=True, kw_only=True):
    node_id: BrokerId
    host: str
    port: int
    rack: str  # empty: none
    state: NodeState
    broker_epoch: BrokerEpoch
    draining: bool
    replica_count: int
    leader_count: int
    metadata_version_min: int
    metadata_version_max: int
    clock_skew_ms: int | None = None  # its wall clock minus that of most nodes; None: unknown to the node that answered

    @property
    def address(self) -> str:
        return str(Address(self.host, self.port))


class VoterDescription(Struct, frozen=True, kw_only=True):
    node_id: BrokerId
    address: str
    match_index: RaftIndex | None  # None: unknown to the node that answered
    without_vote: bool = False  # it lost its disk, and does not vote until its vote is restored


class ClusterDescription(Struct, frozen=True, kw_only=True):
    cluster_id: str
    controller: BrokerId | None
    nodes: tuple[NodeDescription, ...]  # in ascending order of ids
    voters: tuple[VoterDescription, ...]  # in ascending order of ids
    quorum_term: RaftTerm
    commit_index: RaftIndex
    metadata_version: int
    topic_count: int
    partition_count: int
    offline_partition_count: int
    under_replicated_partition_count: int


class DrainProgress(Struct, frozen=True, kw_only=True):
    draining: bool
    remaining_count: int  # partitions that still have a replica on the node
    moving_count: int  # of these, those that are being moved


class LogDirReplica(Struct, frozen=True, kw_only=True):
    at: TopicPartition
    size_bytes: int
    log_start: Offset
    log_end: Offset
    damaged_ranges: int = 0  # found and not repaired yet


class Scrub(Struct, frozen=True, kw_only=True):
    """The background check of a log directory for damage: the one under way, or the last one."""

    started_ms: int
    ended_ms: int | None  # None: it is under way
    read_bytes: int
    total_bytes: int  # at its start
    damaged_ranges: int  # found in it, repaired or not


class FutureReplica(Struct, frozen=True, kw_only=True):
    """A replica that moves to a log directory from another one of its node."""

    at: TopicPartition
    size_bytes: int  # of the copy
    offset_lag: int  # how many offsets are not in the copy yet, at most
    error: StreamlogError | None = None  # why the move ended; None: it is under way, or waits for its turn


class ReplicaOnNode(NamedTuple):
    """One replica of a partition."""

    topic: str
    partition: int
    node_id: int


class ReplicaLogDirResult(Struct, frozen=True, kw_only=True):
    at: ReplicaOnNode
    error: StreamlogError | None  # None: it moves, or waits for its turn


class LogDir(Struct, frozen=True, kw_only=True):
    path: str
    directory_id: bytes
    total_bytes: int | None  # of its file system; None: unknown
    usable_bytes: int | None
    replicas: tuple[LogDirReplica, ...]  # in ascending order
    error: StreamlogError | None
    scrub: Scrub | None = None  # None: none yet
    future_replicas: tuple[FutureReplica, ...] = ()  # that move here: they are not in `replicas` yet


class NodeLogDirs(Struct, frozen=True, kw_only=True):
    node_id: BrokerId
    log_dirs: tuple[LogDir, ...]
    error: StreamlogError | None


class EpochStart(Struct, frozen=True, kw_only=True):
    leader_epoch: LeaderEpoch
    start_offset: Offset


class ReplicaDigest(Struct, frozen=True, kw_only=True):
    node_id: BrokerId
    digest: bytes  # SHA-256 of the batches in the range
    batch_count: int
    log_start: Offset
    high_watermark: Offset
    log_end: Offset
    epochs: tuple[EpochStart, ...]
    error: StreamlogError | None


class PartitionDigests(Struct, frozen=True, kw_only=True):
    """What the replicas hold in [start_offset, end_offset)."""

    at: TopicPartition
    start_offset: Offset
    end_offset: Offset
    replicas: tuple[ReplicaDigest, ...]  # in the order of the replicas
    identical: bool


class DamagedRange(Struct, frozen=True, kw_only=True):
    """Offsets [begin_offset, end_offset) that a replica could not read."""

    path: str
    position: int
    begin_offset: Offset
    end_offset: Offset
    reason: str
    repaired_from: BrokerId | None  # None: it is still damaged
    failure: str  # why it was not repaired


class ReplicaRepair(Struct, frozen=True, kw_only=True):
    node_id: BrokerId
    read_bytes: int
    damages: tuple[DamagedRange, ...]  # in ascending order of offsets
    error: StreamlogError | None


class PartitionRepairs(Struct, frozen=True, kw_only=True):
    at: TopicPartition
    replicas: tuple[ReplicaRepair, ...]  # in the order of the replicas


class Feature(Struct, frozen=True, kw_only=True):
    name: str
    level_min: int
    level_max: int
    level: int  # the cluster's; 0: off


class Limits(Struct, frozen=True, kw_only=True):
    """The node refuses requests beyond these. 0: an older node, which does not report it."""

    request_bytes_max: int
    response_bytes: int
    response_bytes_max: int
    batch_bytes_max: int
    partitions_per_request_max: int
    new_partitions_per_request_max: int
    publish_request_bytes_max: int = 0
    other_request_bytes_max: int = 0
    records_per_request_max: int = 0
    subscribe_response_bytes_max: int = 0
    consume_response_bytes_max: int = 0


class LoggerLevel(enum.Enum):
    """The least severity that a logger logs."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"


class BrokerLogger(Struct, frozen=True, kw_only=True):
    """A logger of a node's own log. `level`: in effect; None: one that this release does not know."""

    name: str
    level: LoggerLevel | None
    is_set: bool  # for this logger; else it is that of the logger above


class NodeRelease(Struct, frozen=True, kw_only=True):
    """Release, features and limits of the node that answered."""

    version: str
    cluster_id: str
    node_id: BrokerId
    features: tuple[Feature, ...]  # in ascending order of names
    limits: Limits
