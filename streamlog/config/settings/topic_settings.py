"""The settings of a topic, with Kafka's names. Those that a topic does not set are the node's (`topic_defaults`).

Ranges and defaults are defined here only: `topic_defaults` is derived from this table.
"""

from __future__ import annotations

from typing import Final

from streamlog.config.kinds import INT64_MAX, Boolean, ListOf, OneOf, Real, count, duration_ms, long, size_bytes
from streamlog.config.setting import Setting, Table, Update, section

DAY_MS: Final = 24 * 60 * 60 * 1000
NEVER: Final = INT64_MAX  # Kafka's Long.MAX_VALUE: a limit that is never reached
# The smallest segment (KIP-1030): tiny ones cost a file, two indexes and a roll for each handful of records.
SEGMENT_BYTES_MIN: Final = 1 << 20
INDEX_BYTES_MIN: Final = 12  # one whole entry of the time index
_CHANGES: Final = Update.CLUSTER_WIDE
_STRATEGIES: Final = {"None": "none", "Balanced": "balanced", "Aggressive": "aggressive"}  # as KIP-966 spells them

# A table reads best with an entry's facts on one line and its sentence below.
# fmt: off

CLEANUP_POLICY: Final = Setting(
    "cleanup.policy", ListOf(OneOf(("delete", "compact")), items_min=1), ("delete",), update=_CHANGES,
    doc="What happens to old segments: deleted by time and size, compacted to the last record of each key, or both.")
RETENTION_MS: Final = Setting(
    "retention.ms", duration_ms(-1, INT64_MAX), 7 * DAY_MS, update=_CHANGES,
    doc="How long a segment is kept after its newest record; -1: no limit.")
RETENTION_BYTES: Final = Setting(
    "retention.bytes", size_bytes(-1, INT64_MAX), -1, update=_CHANGES,
    doc="The size of a partition above which its oldest segments are deleted; -1: no limit.")
SEGMENT_BYTES: Final = Setting(
    "segment.bytes", size_bytes(SEGMENT_BYTES_MIN), 1 << 30, update=_CHANGES,
    doc="The size at which the log rolls to a new segment.")
SEGMENT_MS: Final = Setting(
    "segment.ms", duration_ms(1, INT64_MAX), 7 * DAY_MS, update=_CHANGES,
    doc="The age, by the timestamps of its records, at which the log rolls to a new segment although it is not full.")
SEGMENT_INDEX_BYTES: Final = Setting(
    "segment.index.bytes", size_bytes(INDEX_BYTES_MIN), 10 << 20, update=_CHANGES,
    doc="The size of a segment's index files, which are preallocated; a full index rolls the segment.")
INDEX_INTERVAL_BYTES: Final = Setting(
    "index.interval.bytes", size_bytes(), 4_096, update=_CHANGES,
    doc="The minimum number of bytes of records between two entries of the index.")
FILE_DELETE_DELAY_MS: Final = Setting(
    "file.delete.delay.ms", duration_ms(0, INT64_MAX), 60_000, update=_CHANGES,
    doc="How long a file scheduled for deletion stays on disk under another name.")
FLUSH_MESSAGES: Final = Setting(
    "flush.messages", long(1), 1, update=_CHANGES, kafka="9223372036854775807",
    doc="After how many records the log is synced: 1 acknowledges only what is on disk (group commit), "
    "9223372036854775807 leaves it to the operating system.")
FLUSH_MS: Final = Setting(
    "flush.ms", duration_ms(0, INT64_MAX), NEVER, update=_CHANGES,
    doc="After how long the log is synced to disk, where flush.messages has not caused it.")
MAX_MESSAGE_BYTES: Final = Setting(
    "max.message.bytes", size_bytes(), (1 << 20) + 12, update=_CHANGES,
    doc="The largest record batch of a producer, as it is stored.")
COMPRESSION_TYPE: Final = Setting(
    "compression.type", OneOf(("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")), "producer",
    update=_CHANGES,
    doc="How batches are stored: as compressed by the producer, or recompressed by the leader.")
MESSAGE_TIMESTAMP_TYPE: Final = Setting(
    "message.timestamp.type", OneOf(("CreateTime", "LogAppendTime")), "CreateTime", update=_CHANGES,
    doc="Whether a record's timestamp is the time of its creation by the producer, or of the append by the leader.")
MESSAGE_TIMESTAMP_BEFORE_MAX_MS: Final = Setting(
    "message.timestamp.before.max.ms", duration_ms(0, INT64_MAX), NEVER, update=_CHANGES,
    doc="How far a record's timestamp may be before the leader's clock; with CreateTime only.")
MESSAGE_TIMESTAMP_AFTER_MAX_MS: Final = Setting(
    "message.timestamp.after.max.ms", duration_ms(0, INT64_MAX), 3_600_000, update=_CHANGES,
    doc="How far a record's timestamp may be after the leader's clock; with CreateTime only.")
RECORD_VALIDATION_ENABLE: Final = Setting(
    "record.validation.enable", Boolean(), True, update=_CHANGES,
    doc="Whether the leader validates each record of a batch, also of a compressed one, before the append, as Kafka "
    "does. false trusts the producers: a batch that cannot be decoded is stored, and stops consumers.")
DELETE_RETENTION_MS: Final = Setting(
    "delete.retention.ms", duration_ms(0, INT64_MAX), DAY_MS, update=_CHANGES,
    doc="How long a tombstone is kept after the compaction that first processed it.")
MIN_CLEANABLE_DIRTY_RATIO: Final = Setting(
    "min.cleanable.dirty.ratio", Real(0.0, 1.0), 0.5, update=_CHANGES,
    doc="The minimum ratio of uncompacted bytes in a log for compaction to start.")
MIN_COMPACTION_LAG_MS: Final = Setting(
    "min.compaction.lag.ms", duration_ms(0, INT64_MAX), 0, update=_CHANGES,
    doc="The minimum time a record stays uncompacted.")
MAX_COMPACTION_LAG_MS: Final = Setting(
    "max.compaction.lag.ms", duration_ms(1, INT64_MAX), NEVER, update=_CHANGES,
    doc="The maximum time a record stays uncompacted.")
MIN_INSYNC_REPLICAS: Final[Setting[int | None]] = Setting(
    "min.insync.replicas", count(1, 1_000), None, update=_CHANGES, kafka="1",
    default_doc="2 where there are 3 replicas or more, else 1",
    doc="How many replicas must be in sync for acks=all to succeed; capped at the topic's replication factor.")
UNCLEAN_LEADER_ELECTION_ENABLE: Final = Setting(
    "unclean.leader.election.enable", Boolean(), False, update=_CHANGES,
    doc="Whether a replica that may lack committed records may become leader where there is no other: records are lost "
        "then. true means unclean.recovery.strategy=aggressive, false balanced.")
UNCLEAN_RECOVERY_STRATEGY: Final[Setting[str | None]] = Setting(
    "unclean.recovery.strategy", OneOf(("none", "balanced", "aggressive"), _STRATEGIES), None, update=_CHANGES,
    ours=True,
    default_doc="by unclean.leader.election.enable",
    doc="The automatic recovery when no in-sync or eligible replica is active. The nodes report the ends of their "
        "logs. none: a leader is elected only where it is proven that no acknowledged record is lost. balanced: also "
        "the longest log, once all replicas of the last ISR have answered. aggressive: the longest log of those that "
        "answer now; records may be lost.")
# fmt: on

TOPIC: Final = Table("topic", [section("Topics", globals())])
