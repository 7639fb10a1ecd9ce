"""The settings of a node that coordinates groups and transactions (SEMANTICS 7, 9, 10)."""

from __future__ import annotations

from typing import Final

from streamlog.config.kinds import INT64_MAX, Boolean, ListOf, OneOf, count, duration_ms, size_bytes
from streamlog.config.setting import Setting, section

_LIVE: Final = "3, or the number of active nodes where there are fewer; increased as nodes join"

# A table reads best with an entry's facts on one line and its sentence below.
# fmt: off

GROUP_CONSUMER_ASSIGNORS: Final = Setting(
    "group.consumer.assignors", ListOf(OneOf(("uniform", "range", "roundrobin"), {"sticky": "uniform"}), items_min=1),
    ("uniform", "range", "roundrobin"), kafka="uniform,range",
    doc="The assignors that consumers may choose; the first is the default.")
GROUP_CONSUMER_SESSION_TIMEOUT_MS: Final = Setting(
    "group.consumer.session.timeout.ms", duration_ms(1), 45_000,
    doc="The session timeout of members whose consumer does not set one.")
GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS: Final = Setting(
    "group.consumer.heartbeat.interval.ms", duration_ms(1), 3_000, kafka="5000",
    doc="How often a member sends heartbeats to the coordinator.")
GROUP_MIN_SESSION_TIMEOUT_MS: Final = Setting(
    "group.min.session.timeout.ms", duration_ms(1), 6_000,
    doc="The shortest session timeout that a consumer may set.")
GROUP_MAX_SESSION_TIMEOUT_MS: Final = Setting(
    "group.max.session.timeout.ms", duration_ms(1), 1_800_000,
    doc="The longest session timeout that a consumer may set.")
GROUP_MAX_SIZE: Final = Setting(
    "group.max.size", count(1), 10_000, kafka="2147483647",
    doc="How many members a group may have.")
OFFSETS_TOPIC_NUM_PARTITIONS: Final = Setting(
    "offsets.topic.num.partitions", count(1, 10_000), 50,
    doc="How many partitions __consumer_offsets has; it must not change once the topic exists.")
OFFSETS_TOPIC_REPLICATION_FACTOR: Final[Setting[int | None]] = Setting(
    "offsets.topic.replication.factor", count(1, 1_000), None, kafka="3", default_doc=_LIVE,
    doc="How many replicas __consumer_offsets has.")
OFFSETS_TOPIC_SEGMENT_BYTES: Final = Setting(
    "offsets.topic.segment.bytes", size_bytes(1 << 20), 100 << 20,
    doc="The segment size of __consumer_offsets: small, for quick compaction and loading.")
OFFSETS_RETENTION_MINUTES: Final = Setting(
    "offsets.retention.minutes", count(1), 10_080,
    doc="How long a group's offsets are kept after its last member has left.")
OFFSETS_RETENTION_CHECK_INTERVAL_MS: Final = Setting(
    "offsets.retention.check.interval.ms", duration_ms(1, INT64_MAX), 600_000,
    doc="How often expired offsets are removed.")
OFFSETS_COMMIT_TIMEOUT_MS: Final = Setting(
    "offsets.commit.timeout.ms", duration_ms(1), 5_000,
    doc="How long an offset commit waits for its replicas.")
OFFSET_METADATA_MAX_BYTES: Final = Setting(
    "offset.metadata.max.bytes", size_bytes(0, 32_767), 4_096,  # its length is an int16 in the record
    doc="The maximum size of the metadata of a committed offset.")

TRANSACTION_STATE_LOG_NUM_PARTITIONS: Final = Setting(
    "transaction.state.log.num.partitions", count(1, 10_000), 50,
    doc="How many partitions __transaction_state has; it must not change once the topic exists.")
TRANSACTION_STATE_LOG_REPLICATION_FACTOR: Final[Setting[int | None]] = Setting(
    "transaction.state.log.replication.factor", count(1, 1_000), None, kafka="3", default_doc=_LIVE,
    doc="How many replicas __transaction_state has.")
TRANSACTION_STATE_LOG_MIN_ISR: Final[Setting[int | None]] = Setting(
    "transaction.state.log.min.isr", count(1, 1_000), None, kafka="2",
    default_doc="2, or the number of replicas where there are fewer",
    doc="The min.insync.replicas of __transaction_state.")
TRANSACTION_STATE_LOG_SEGMENT_BYTES: Final = Setting(
    "transaction.state.log.segment.bytes", size_bytes(1 << 20), 100 << 20,
    doc="The segment size of __transaction_state.")
TRANSACTION_MAX_TIMEOUT_MS: Final = Setting(
    "transaction.max.timeout.ms", duration_ms(1), 900_000,
    doc="The longest transaction timeout that a producer may set.")
TRANSACTIONAL_ID_EXPIRATION_MS: Final = Setting(
    "transactional.id.expiration.ms", duration_ms(1), 604_800_000,
    doc="How long the state of an unused transactional id is kept.")
TRANSACTION_TWO_PHASE_COMMIT_ENABLE: Final = Setting(
    "transaction.two.phase.commit.enable", Boolean(), False,
    doc="Whether transactions may be prepared for an external coordinator, and then have no timeout.")
# fmt: on

GROUPS: Final = section("Groups and transactions", globals())
