"""The settings of a node (server.properties), with Kafka's names: those of no other module, and the whole table.

Settings marked `ours` are not in Kafka. Defaults differ from Kafka's where Kafka's can lose acknowledged records, make
a cluster wait, or open a port to other machines.
"""

from __future__ import annotations

from typing import Final

from streamlog.config.addresses import (
    Address,
    AddressKind,
    HttpAddress,
    HttpAddressKind,
    ListenerAddress,
    ListenerKind,
    ListenerNameKind,
    ListenerProtocol,
    ListenerProtocolKind,
    Protocol,
    VoterAddress,
    VoterKind,
)
from streamlog.config.kinds import INT64_MAX, Boolean, ListOf, OneOf, Text, count, duration_ms, long, size_bytes
from streamlog.config.setting import Setting, Table, Update, section
from streamlog.config.settings.group_settings import GROUPS
from streamlog.config.settings.http_settings import HTTP_API
from streamlog.config.settings.listener_settings import listener_setting_named
from streamlog.config.settings.log_settings import LOGS
from streamlog.config.settings.node_tracing_settings import NODE_TRACING
from streamlog.config.settings.security_settings import SECURITY
from streamlog.config.settings.topic_defaults import DEFAULTS
from streamlog.model import INT32_MAX

# Requests are checked against these limits before anything is allocated (FAULTS "Bad input").
PARTITIONS_MAX: Final = 10_000
REPLICAS_MAX: Final = 1_000
LISTENERS_MAX: Final = 8

# A table reads best with an entry's facts on one line and its sentence below.
# fmt: off

# -- identity and addresses

NODE_ID: Final = Setting(
    "node.id", count(), -1, required=True,
    doc="The id of this node, unique in the cluster; it must never change.")
BROKER_RACK: Final = Setting(
    "broker.rack", Text(253, may_be_empty=True), "",
    doc="The rack or zone of the node: replicas of a partition are placed on different ones.")
LISTENERS: Final[Setting[tuple[ListenerAddress, ...]]] = Setting(
    "listeners", ListOf(ListenerKind(), items_min=1, items_max=LISTENERS_MAX),
    (ListenerAddress("PLAINTEXT", Address("127.0.0.1", 9092)),), kafka="PLAINTEXT://:9092, on all addresses",
    doc="The addresses where clients and nodes reach this node, such as one for clients and one for nodes; without a "
        "host: all addresses of the machine.")
ADVERTISED_LISTENERS: Final[Setting[tuple[ListenerAddress, ...]]] = Setting(
    "advertised.listeners", ListOf(ListenerKind(advertised=True), items_max=LISTENERS_MAX), (),
    default_doc="those of listeners",
    doc="The addresses that clients and nodes use to connect to this node, by listener, where they differ from "
        "listeners.")
LISTENER_SECURITY_PROTOCOL_MAP: Final[Setting[tuple[ListenerProtocol, ...]]] = Setting(
    "listener.security.protocol.map", ListOf(ListenerProtocolKind(), items_max=100),
    (ListenerProtocol("PLAINTEXT", Protocol.PLAINTEXT), ListenerProtocol("SSL", Protocol.SSL)),
    kafka="SASL_PLAINTEXT and SASL_SSL too",
    doc="Whether a listener, by its name, uses TLS (SSL) or none (PLAINTEXT).")
INTER_BROKER_LISTENER_NAME: Final[Setting[str | None]] = Setting(
    "inter.broker.listener.name", ListenerNameKind(), None, default_doc="the only listener",
    kafka="by security.inter.broker.protocol",
    doc="The listener by which nodes connect to each other; with several listeners the services between nodes are "
        "served at this one only.")
ALLOW_PLAINTEXT_PUBLIC_LISTENERS: Final = Setting(
    "allow.plaintext.public.listeners", Boolean(), False, ours=True,
    doc="Whether a PLAINTEXT listener may be on an address that other machines can reach.")

HTTP_LISTENERS: Final[Setting[tuple[HttpAddress, ...]]] = Setting(
    "http.listeners", ListOf(HttpAddressKind(), items_max=4), (HttpAddress(Address("127.0.0.1", 9644)),), ours=True,
    doc="Where metrics and health are served over HTTP, or over TLS at HTTPS://; without a host: all addresses of the "
        "machine; empty: nowhere.")
METRICS_PER_PARTITION: Final = Setting(
    "metrics.per.partition", Boolean(), True, ours=True,
    doc="Whether /metrics has series of single partitions and of groups' offsets; the totals are always there.")

# -- the node's own log of events

LOG_FORMAT: Final = Setting(
    "log.format", OneOf(("text", "json")), "text", ours=True,
    doc="The format of the node's own log of events: lines of text, or one JSON object a line.")
DAEMON_LOG_MAX_BYTES: Final = Setting(
    "daemon.log.max.bytes", size_bytes(0, INT64_MAX), 64 << 20, ours=True,
    doc="The size at which -daemon starts a new file for the node's own log of events; 0: never.")
DAEMON_LOG_COUNT: Final = Setting(
    "daemon.log.count", count(1, 1_000), 5, ours=True,
    doc="How many files of that log are kept, the current one included; 1: a single file that grows without limit.")

# -- the metadata quorum

CONTROLLER_QUORUM_VOTERS: Final[Setting[tuple[VoterAddress, ...]]] = Setting(
    "controller.quorum.voters", ListOf(VoterKind(), items_max=9), (), default_doc="this node alone",
    doc="The nodes that vote on the cluster's metadata, as id@host:port; three or five, the same list everywhere.")
CONTROLLER_QUORUM_BOOTSTRAP_SERVERS: Final[Setting[tuple[Address, ...]]] = Setting(
    "controller.quorum.bootstrap.servers", ListOf(AddressKind(), items_max=100), (),
    doc="Nodes of a running cluster from which this one gets the voters, instead of controller.quorum.voters.")
CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS: Final = Setting(
    "controller.quorum.election.timeout.ms", duration_ms(20, 60_000), 300, kafka="1000",
    doc="How long a voter waits for a message from the leader before it starts an election; random between this and "
    "its double.")
CONTROLLER_QUORUM_HEARTBEAT_INTERVAL_MS: Final = Setting(
    "controller.quorum.heartbeat.interval.ms", duration_ms(5, 30_000), 100, ours=True,
    doc="How often the leader of the quorum sends heartbeats to the voters.")
CONTROLLER_QUORUM_VOTER_RESTORE_ENABLE: Final = Setting(
    "controller.quorum.voter.restore.enable", Boolean(), True, ours=True,
    doc="Whether a voter that returns without its metadata directory gets its vote back automatically: the other "
    "voters commit that its new directory replaces the lost one (the part of controller.quorum.auto.join.enable that "
    "trusts no new nodes).")
METADATA_LOG_DIR: Final[Setting[str | None]] = Setting(
    "metadata.log.dir", Text(), None, default_doc="the first log directory",
    doc="The directory of the quorum's journal and snapshots.")
METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS: Final = Setting(
    "metadata.log.max.record.bytes.between.snapshots", size_bytes(1 << 16, INT64_MAX), 32 << 20, kafka="20971520",
    doc="The size at which the quorum's journal is replaced by a snapshot.")

# -- membership

BROKER_HEARTBEAT_INTERVAL_MS: Final = Setting(
    "broker.heartbeat.interval.ms", duration_ms(10, 3_600_000), 2_000,
    doc="How often a node sends heartbeats to the controller.")
CLOCK_SKEW_MAX_MS: Final = Setting(
    "clock.skew.max.ms", duration_ms(100, 86_400_000), 10_000, update=Update.CLUSTER_WIDE, ours=True,
    doc="How far a node's wall clock may differ from the majority's. Beyond it the node logs it, uses the quorum's "
        "time, and stops deleting by time.")
BROKER_SESSION_TIMEOUT_MS: Final = Setting(
    "broker.session.timeout.ms", duration_ms(20, 3_600_000), 6_000, kafka="9000",
    doc="How long the controller waits for a node's heartbeat before it fences the node and elects other leaders.")
INITIAL_BROKER_REGISTRATION_TIMEOUT_MS: Final = Setting(
    "initial.broker.registration.timeout.ms", duration_ms(1), 60_000,
    doc="How long a node that starts tries to register before it gives up.")
CONTROLLED_SHUTDOWN_ENABLE: Final = Setting(
    "controlled.shutdown.enable", Boolean(), True,
    doc="Whether a node hands over its leaderships before it stops.")
CONTROLLED_SHUTDOWN_TIMEOUT_MS: Final = Setting(
    "controlled.shutdown.timeout.ms", duration_ms(0, 3_600_000), 30_000, ours=True,
    doc="How long a stopping node waits at most for its leaderships to be handed over.")

# -- topics

NUM_PARTITIONS: Final = Setting(
    "num.partitions", count(1, PARTITIONS_MAX), 1,
    doc="The number of partitions of a topic that is created without one.")
DEFAULT_REPLICATION_FACTOR: Final[Setting[int | None]] = Setting(
    "default.replication.factor", count(1, REPLICAS_MAX), None, kafka="1",
    default_doc="3, or the number of active nodes where there are fewer",
    doc="The replication factor of a topic that is created without one.")
AUTO_CREATE_TOPICS_ENABLE: Final = Setting(
    "auto.create.topics.enable", Boolean(), False, kafka="true",
    doc="Whether a topic is created when a client first uses its name, even a misspelt one.")
DELETE_TOPIC_ENABLE: Final = Setting(
    "delete.topic.enable", Boolean(), True,
    doc="Whether topics can be deleted.")
TOPIC_NAMES_STRICT: Final = Setting(
    "topic.names.strict", Boolean(), False, ours=True,
    doc="Whether '.' and '_' are refused in the names of topics: names that differ only in these collide.")
AUTO_LEADER_REBALANCE_ENABLE: Final = Setting(
    "auto.leader.rebalance.enable", Boolean(), True,
    doc="Whether preferred leaders are elected automatically.")
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS: Final = Setting(
    "leader.imbalance.check.interval.seconds", long(1, 86_400), 300,
    doc="How often the controller checks whether preferred leaders must be elected.")
LEADER_IMBALANCE_PER_BROKER_PERCENTAGE: Final = Setting(
    "leader.imbalance.per.broker.percentage", count(0, 100), 10,
    doc="The percentage of a node's preferred partitions led by others above which preferred leaders are elected.")
DRAIN_PARTITIONS_MAX: Final = Setting(
    "drain.partitions.max", count(1, PARTITIONS_MAX), 32, ours=True,
    doc="How many partitions move at the same time from a node that is drained.")

# -- replication

REPLICA_LAG_TIME_MAX_MS: Final = Setting(
    "replica.lag.time.max.ms", duration_ms(10, INT64_MAX), 10_000,
    doc="How long a follower may be behind the leader before it is removed from the ISR.")
REPLICA_FETCH_MAX_BYTES: Final = Setting(
    "replica.fetch.max.bytes", size_bytes(1 << 10, 1 << 30), 1 << 20,
    doc="How many bytes of records a message from leader to follower carries, unless a single batch is larger.")
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS: Final = Setting(
    "replica.high.watermark.checkpoint.interval.ms", duration_ms(1, INT64_MAX), 5_000,
    doc="How often the high watermarks are written to disk.")
LEADER_REPLICATION_THROTTLED_RATE: Final = Setting(
    "leader.replication.throttled.rate", size_bytes(1, INT64_MAX), INT64_MAX, update=Update.PER_BROKER,
    doc="The maximum rate (bytes/s) at which a node sends to replicas that are being moved or catch up.")
FOLLOWER_REPLICATION_THROTTLED_RATE: Final = Setting(
    "follower.replication.throttled.rate", size_bytes(1, INT64_MAX), INT64_MAX, update=Update.PER_BROKER,
    doc="The maximum rate (bytes/s) at which a node receives for replicas that are being moved or catch up.")
REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND: Final = Setting(
    "replica.alter.log.dirs.io.max.bytes.per.second", size_bytes(1, INT64_MAX), INT64_MAX, update=Update.PER_BROKER,
    doc="The maximum rate (bytes/s) at which a node copies replicas that move between its log directories.")

# -- limits

SOCKET_REQUEST_MAX_BYTES: Final = Setting(
    "socket.request.max.bytes", size_bytes(64 << 10, 1 << 30), 4 << 20,
    kafka="104857600; a gRPC message is held in memory as a whole",
    doc="The largest message that a node accepts.")
QUEUED_MAX_REQUEST_BYTES: Final = Setting(
    "queued.max.request.bytes", size_bytes(1 << 20, INT64_MAX), 64 << 20, kafka="no limit",
    doc="How many bytes of records may be queued for append before further ones are refused; and how many bytes of "
        "requests may have arrived that are not handled yet, on each listener: callers wait, and beyond it those that "
        "hold most are refused.")
QUEUED_MAX_RESPONSE_BYTES: Final = Setting(
    "queued.max.response.bytes", size_bytes(4 << 20, INT64_MAX), 64 << 20, ours=True,
    doc="How many bytes of responses a node buffers for all readers; beyond it readers wait, and those that do not "
        "read are ended with THROTTLED.")
FETCH_MAX_BYTES: Final = Setting(
    "fetch.max.bytes", size_bytes(1 << 10), 55 << 20,
    doc="The maximum size of a fetch response, whatever the request says, unless a single batch is larger.")
MAX_CONCURRENT_CALLS: Final = Setting(
    "max.concurrent.calls", count(16), 10_000, ours=True,
    doc="How many concurrent calls and streams a node serves; further ones are refused.")
MAX_CONNECTIONS: Final[Setting[int | None]] = Setting(
    "max.connections", count(16), None, kafka="no limit",
    default_doc="three quarters of the process's open-file limit, which is also the maximum",
    doc="How many connections a node keeps; beyond it one of the address that has most is closed: the oldest that has "
        "sent nothing, else the newest.")
MAX_CONNECTIONS_PER_IP: Final[Setting[int | None]] = Setting(
    "max.connections.per.ip", count(1), None, kafka="no limit",
    default_doc="half of max.connections",
    doc="How many connections from one address a node keeps. At HTTPS addresses of http.listeners: how many TLS "
        "handshakes from one address may be in progress, of 64 in all; not set, 32.")
MAX_CONNECTION_CREATION_RATE: Final = Setting(
    "max.connection.creation.rate", count(1), INT32_MAX, update=Update.CLUSTER_WIDE,
    doc="How many connections a second a node accepts from all addresses together; further ones wait in the kernel. "
        "Not at the listener for nodes, where clients have others.")
CONNECTIONS_HANDSHAKE_TIMEOUT_MS: Final = Setting(
    "connections.handshake.timeout.ms", duration_ms(100, 120_000), 10_000, ours=True,
    doc="How long a connection may take for its TLS handshake, and then until it has acknowledged the node's settings "
        "of HTTP/2; then it is closed.")
CONNECTIONS_MAX_IDLE_MS: Final = Setting(
    "connections.max.idle.ms", duration_ms(1_000), 600_000,
    doc="How long a connection without a call stays open.")
# fmt: on

NODE: Final = Table(
    "node",
    [section("The node", globals()), HTTP_API, LOGS, DEFAULTS, GROUPS, SECURITY, NODE_TRACING],
    named=listener_setting_named,
)
