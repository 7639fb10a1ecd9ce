"""The settings of a node (server.properties), with Kafka's names: all but those of other modules, and the whole table.

Ours alone are those marked `ours`. Defaults differ from Kafka's where its own loses acknowledged records, keeps
a cluster waiting, or opens a port to the world.
"""

from __future__ import annotations

from typing import Final

from streamlog.config.addresses import (
    Address,
    AddressKind,
    ListenerAddress,
    ListenerKind,
    Protocol,
    VoterAddress,
    VoterKind,
)
from streamlog.config.group_settings import GROUPS
from streamlog.config.kinds import INT64_MAX, Boolean, ListOf, Text, count, duration_ms, long, size_bytes
from streamlog.config.log_settings import LOGS
from streamlog.config.security_settings import SECURITY
from streamlog.config.setting import Setting, Table, Update, section
from streamlog.config.topic_defaults import DEFAULTS

# What a request may ask for is bounded before anything is allocated (FAULTS "Bad input").
PARTITIONS_MAX: Final = 10_000
REPLICAS_MAX: Final = 1_000

# A table reads best with an entry's facts on one line and its sentence below.
# fmt: off

# -- who and where it is

NODE_ID: Final = Setting(
    "node.id", count(), -1, required=True,
    doc="The number of this node, no other node's in the cluster; it never changes.")
BROKER_RACK: Final = Setting(
    "broker.rack", Text(253, may_be_empty=True), "",
    doc="The rack, or the zone, that the node stands in: replicas of a partition are put on different ones.")
LISTENERS: Final[Setting[tuple[ListenerAddress, ...]]] = Setting(
    "listeners", ListOf(ListenerKind(), items_min=1, items_max=1),
    (ListenerAddress(Protocol.PLAINTEXT, Address("127.0.0.1", 9092)),), kafka="PLAINTEXT://:9092, on all addresses",
    doc="The one address where clients and nodes reach this node; without a host: all addresses of the machine.")
ADVERTISED_LISTENERS: Final[Setting[tuple[ListenerAddress, ...]]] = Setting(
    "advertised.listeners", ListOf(ListenerKind(advertised=True), items_max=1), (), default_doc="that of listeners",
    doc="The address that others are told for this node, where it is not the one of listeners.")
ALLOW_PLAINTEXT_PUBLIC_LISTENERS: Final = Setting(
    "allow.plaintext.public.listeners", Boolean(), False, ours=True,
    doc="Whether a PLAINTEXT listener may be on an address that other machines see, for all who reach it.")

HTTP_LISTENERS: Final[Setting[tuple[Address, ...]]] = Setting(
    "http.listeners", ListOf(AddressKind(listening=True), items_max=4), (Address("127.0.0.1", 9644),), ours=True,
    doc="Where metrics and health are served over HTTP; without a host: all addresses of the machine; empty: nowhere.")
METRICS_PER_PARTITION: Final = Setting(
    "metrics.per.partition", Boolean(), True, ours=True,
    doc="Whether /metrics has series of single partitions and of groups' offsets; the totals are always there.")

# -- the metadata quorum

CONTROLLER_QUORUM_VOTERS: Final[Setting[tuple[VoterAddress, ...]]] = Setting(
    "controller.quorum.voters", ListOf(VoterKind(), items_max=9), (), default_doc="this node alone",
    doc="The nodes that vote on the cluster's metadata, as id@host:port; three or five, the same list everywhere.")
CONTROLLER_QUORUM_BOOTSTRAP_SERVERS: Final[Setting[tuple[Address, ...]]] = Setting(
    "controller.quorum.bootstrap.servers", ListOf(AddressKind(), items_max=100), (),
    doc="Nodes of a running cluster that this one asks for the voters, in the place of controller.quorum.voters.")
CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS: Final = Setting(
    "controller.quorum.election.timeout.ms", duration_ms(20, 60_000), 300, kafka="1000",
    doc="How long a voter hears nothing of the leader before it asks for votes; drawn between this and its double.")
CONTROLLER_QUORUM_HEARTBEAT_INTERVAL_MS: Final = Setting(
    "controller.quorum.heartbeat.interval.ms", duration_ms(5, 30_000), 100, ours=True,
    doc="How often the leader of the quorum tells the voters that it is there.")
CONTROLLER_QUORUM_VOTER_RESTORE_ENABLE: Final = Setting(
    "controller.quorum.voter.restore.enable", Boolean(), True, ours=True,
    doc="Whether a voter that comes back without its metadata directory is given its vote again by itself: the other "
    "voters commit that its new directory takes the place of the lost one (of controller.quorum.auto.join.enable, "
    "the part that trusts no new nodes).")
METADATA_LOG_DIR: Final[Setting[str | None]] = Setting(
    "metadata.log.dir", Text(), None, default_doc="the first log directory",
    doc="The directory of the quorum's journal and snapshots.")
METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS: Final = Setting(
    "metadata.log.max.record.bytes.between.snapshots", size_bytes(1 << 16, INT64_MAX), 32 << 20, kafka="20971520",
    doc="The size of the quorum's journal at which a snapshot takes its place.")

# -- membership

BROKER_HEARTBEAT_INTERVAL_MS: Final = Setting(
    "broker.heartbeat.interval.ms", duration_ms(10, 3_600_000), 2_000,
    doc="How often a node tells the controller that it lives.")
CLOCK_SKEW_MAX_MS: Final = Setting(
    "clock.skew.max.ms", duration_ms(100, 86_400_000), 10_000, update=Update.CLUSTER_WIDE, ours=True,
    doc="How far a node's wall clock may be from what most nodes agree on. Beyond it the node says so, goes by the "
        "quorum's time, and deletes nothing by time.")
BROKER_SESSION_TIMEOUT_MS: Final = Setting(
    "broker.session.timeout.ms", duration_ms(20, 3_600_000), 6_000, kafka="9000",
    doc="How long the controller waits for a silent node before it gives the node's leaderships to others.")
INITIAL_BROKER_REGISTRATION_TIMEOUT_MS: Final = Setting(
    "initial.broker.registration.timeout.ms", duration_ms(1), 60_000,
    doc="How long a node that starts tries to register before it gives up.")
CONTROLLED_SHUTDOWN_ENABLE: Final = Setting(
    "controlled.shutdown.enable", Boolean(), True,
    doc="Whether a node that is stopped gives its leaderships away first.")
CONTROLLED_SHUTDOWN_TIMEOUT_MS: Final = Setting(
    "controlled.shutdown.timeout.ms", duration_ms(0, 3_600_000), 30_000, ours=True,
    doc="How long a node that is stopped waits at most until it leads nothing any more.")

# -- topics

NUM_PARTITIONS: Final = Setting(
    "num.partitions", count(1, PARTITIONS_MAX), 1,
    doc="How many partitions a topic gets that is created without a number.")
DEFAULT_REPLICATION_FACTOR: Final[Setting[int | None]] = Setting(
    "default.replication.factor", count(1, REPLICAS_MAX), None, kafka="1",
    default_doc="3, or the number of live nodes where there are fewer",
    doc="How many replicas a topic gets that is created without a number.")
AUTO_CREATE_TOPICS_ENABLE: Final = Setting(
    "auto.create.topics.enable", Boolean(), False, kafka="true",
    doc="Whether a topic comes into being when somebody first names it; a misspelt one does too then.")
DELETE_TOPIC_ENABLE: Final = Setting(
    "delete.topic.enable", Boolean(), True,
    doc="Whether topics can be deleted.")
TOPIC_NAMES_STRICT: Final = Setting(
    "topic.names.strict", Boolean(), False, ours=True,
    doc="Whether '.' and '_' are refused in the names of topics, which collide where names differ in them alone.")
AUTO_LEADER_REBALANCE_ENABLE: Final = Setting(
    "auto.leader.rebalance.enable", Boolean(), True,
    doc="Whether leaderships go back to the preferred replicas of themselves.")
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS: Final = Setting(
    "leader.imbalance.check.interval.seconds", long(1, 86_400), 300,
    doc="How often it is looked whether leaderships are to go back to the preferred replicas.")
LEADER_IMBALANCE_PER_BROKER_PERCENTAGE: Final = Setting(
    "leader.imbalance.per.broker.percentage", count(0, 100), 10,
    doc="Which share of the partitions that prefer a node others may lead before its leaderships are given back.")
DRAIN_PARTITIONS_MAX: Final = Setting(
    "drain.partitions.max", count(1, PARTITIONS_MAX), 32, ours=True,
    doc="How many partitions move at the same time away from a node that is drained.")

# -- replication

REPLICA_LAG_TIME_MAX_MS: Final = Setting(
    "replica.lag.time.max.ms", duration_ms(10, INT64_MAX), 10_000,
    doc="How long a follower may be behind the leader before it is out of sync.")
REPLICA_FETCH_MAX_BYTES: Final = Setting(
    "replica.fetch.max.bytes", size_bytes(1 << 10, 1 << 30), 1 << 20,
    doc="How many bytes of records a message from leader to follower carries, unless a single batch is larger.")
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS: Final = Setting(
    "replica.high.watermark.checkpoint.interval.ms", duration_ms(1, INT64_MAX), 5_000,
    doc="How often the high watermarks are written to the disk.")
LEADER_REPLICATION_THROTTLED_RATE: Final = Setting(
    "leader.replication.throttled.rate", size_bytes(1, INT64_MAX), INT64_MAX, update=Update.PER_BROKER,
    doc="How many bytes a second a node sends at most to replicas that are being moved or catch up.")
FOLLOWER_REPLICATION_THROTTLED_RATE: Final = Setting(
    "follower.replication.throttled.rate", size_bytes(1, INT64_MAX), INT64_MAX, update=Update.PER_BROKER,
    doc="How many bytes a second a node takes at most for replicas that are being moved or catch up.")

# -- what a node takes on

SOCKET_REQUEST_MAX_BYTES: Final = Setting(
    "socket.request.max.bytes", size_bytes(64 << 10, 1 << 30), 4 << 20, kafka="104857600; a gRPC message is held whole",
    doc="The largest message that a node takes.")
QUEUED_MAX_REQUEST_BYTES: Final = Setting(
    "queued.max.request.bytes", size_bytes(1 << 20, INT64_MAX), 64 << 20, kafka="without limit",
    doc="How many bytes of records may wait to be appended before further ones are refused.")
QUEUED_MAX_RESPONSE_BYTES: Final = Setting(
    "queued.max.response.bytes", size_bytes(4 << 20, INT64_MAX), 64 << 20, ours=True,
    doc="How many bytes a node holds for all who read from it, until they have taken them; beyond it readers wait, and "
        "those that do not take theirs are ended with THROTTLED.")
FETCH_MAX_BYTES: Final = Setting(
    "fetch.max.bytes", size_bytes(1 << 10), 55 << 20,
    doc="The most that a fetch is answered with, whatever it asks for, unless a single batch is larger.")
MAX_CONCURRENT_CALLS: Final = Setting(
    "max.concurrent.calls", count(16), 10_000, ours=True,
    doc="How many calls and streams a node serves at the same time; further ones are refused.")
MAX_CONNECTIONS: Final[Setting[int | None]] = Setting(
    "max.connections", count(16), None, kafka="without limit",
    default_doc="three quarters of the files that the process may open, and never more",
    doc="How many connections a node holds; beyond it those that have said nothing, then the newest, are closed.")
MAX_CONNECTIONS_PER_IP: Final[Setting[int | None]] = Setting(
    "max.connections.per.ip", count(1), None, kafka="without limit",
    default_doc="half of max.connections",
    doc="How many connections of one address a node holds.")
CONNECTIONS_HANDSHAKE_TIMEOUT_MS: Final = Setting(
    "connections.handshake.timeout.ms", duration_ms(100, 120_000), 10_000, ours=True,
    doc="How long a connection may take until it has said that it speaks HTTP/2; then it is closed.")
CONNECTIONS_MAX_IDLE_MS: Final = Setting(
    "connections.max.idle.ms", duration_ms(1_000), 600_000,
    doc="How long a connection without a call stays open.")
# fmt: on

NODE: Final = Table("node", [section("The node", globals()), LOGS, DEFAULTS, GROUPS, SECURITY])
