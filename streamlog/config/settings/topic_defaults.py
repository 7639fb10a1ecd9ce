"""The node's defaults of topic settings, under Kafka's other names.

`SYNONYMS` maps the names of topics to those of nodes. Where a topic setting has several synonyms, the first one given
wins, in its own unit: log.retention.ms over log.retention.minutes over log.retention.hours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from msgspec import Struct

from streamlog.config.kinds import INT64_MAX, Integer, count
from streamlog.config.setting import Setting, Update, section
from streamlog.config.settings import topic_settings as topic
from streamlog.model import INT32_MAX

T = TypeVar("T")

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
_CHANGES: Final = Update.CLUSTER_WIDE


class Synonym(Struct, frozen=True):
    """A node's setting that is a topic setting's default. `unit`: its unit in units of the topic setting."""

    setting: Setting[Any]
    unit: int = 1

    def in_unit(self, value: object) -> object:
        """`value` of the node's setting in the topic's unit. -1 is no limit in every unit."""
        return value * self.unit if self.unit != 1 and isinstance(value, int) and value > 0 else value


def _default_of(setting: Setting[T], name: str) -> Setting[T]:
    """The node's setting for the default of a topic's: the same except for the name."""
    return Setting(
        name,
        setting.kind,
        setting.default,
        update=_CHANGES,
        kafka=setting.kafka,
        ours=setting.ours,
        default_doc=setting.default_doc,
        doc=f"The default of the topics' {setting.name}: {setting.doc[0].lower()}{setting.doc[1:]}",
    )


def _finer(setting: Setting[int], name: str, instead: str) -> Setting[int | None]:
    """As `_default_of`, for a setting that overrides one of a coarser unit, and so has no default."""
    return Setting(
        name,
        setting.kind,
        None,
        update=_CHANGES,
        default_doc=f"{instead} applies",
        doc=f"The default of the topics' {setting.name}; overrides {instead}.",
    )


def _periods(low: int, unit_ms: int) -> Integer:
    """A number of minutes or hours whose milliseconds fit 64 bits."""
    return count(low, min(INT32_MAX, INT64_MAX // unit_ms))


# A table reads best with an entry's facts on one line and its sentence below.
# fmt: off

LOG_CLEANUP_POLICY: Final = _default_of(topic.CLEANUP_POLICY, "log.cleanup.policy")
LOG_RETENTION_MS: Final = _finer(topic.RETENTION_MS, "log.retention.ms", "log.retention.minutes")
LOG_RETENTION_MINUTES: Final[Setting[int | None]] = Setting(
    "log.retention.minutes", _periods(-1, MINUTE_MS), None, update=_CHANGES, default_doc="log.retention.hours applies",
    doc="The default of the topics' retention.ms, in minutes; overrides log.retention.hours.")
LOG_RETENTION_HOURS: Final = Setting(
    "log.retention.hours", _periods(-1, HOUR_MS), topic.RETENTION_MS.default // HOUR_MS, update=_CHANGES,
    doc="The default of the topics' retention.ms, in hours; -1: no limit.")
LOG_RETENTION_BYTES: Final = _default_of(topic.RETENTION_BYTES, "log.retention.bytes")
LOG_SEGMENT_BYTES: Final = _default_of(topic.SEGMENT_BYTES, "log.segment.bytes")
LOG_ROLL_MS: Final = _finer(topic.SEGMENT_MS, "log.roll.ms", "log.roll.hours")
LOG_ROLL_HOURS: Final = Setting(
    "log.roll.hours", _periods(1, HOUR_MS), topic.SEGMENT_MS.default // HOUR_MS, update=_CHANGES,
    doc="The default of the topics' segment.ms, in hours.")
LOG_INDEX_SIZE_MAX_BYTES: Final = _default_of(topic.SEGMENT_INDEX_BYTES, "log.index.size.max.bytes")
LOG_INDEX_INTERVAL_BYTES: Final = _default_of(topic.INDEX_INTERVAL_BYTES, "log.index.interval.bytes")
LOG_SEGMENT_DELETE_DELAY_MS: Final = _default_of(topic.FILE_DELETE_DELAY_MS, "log.segment.delete.delay.ms")
LOG_FLUSH_INTERVAL_MESSAGES: Final = _default_of(topic.FLUSH_MESSAGES, "log.flush.interval.messages")
LOG_FLUSH_INTERVAL_MS: Final = _default_of(topic.FLUSH_MS, "log.flush.interval.ms")
MESSAGE_MAX_BYTES: Final = _default_of(topic.MAX_MESSAGE_BYTES, "message.max.bytes")
COMPRESSION_TYPE: Final = _default_of(topic.COMPRESSION_TYPE, "compression.type")
LOG_MESSAGE_TIMESTAMP_TYPE: Final = _default_of(topic.MESSAGE_TIMESTAMP_TYPE, "log.message.timestamp.type")
LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS: Final = _default_of(
    topic.MESSAGE_TIMESTAMP_BEFORE_MAX_MS, "log.message.timestamp.before.max.ms")
LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS: Final = _default_of(
    topic.MESSAGE_TIMESTAMP_AFTER_MAX_MS, "log.message.timestamp.after.max.ms")
LOG_RECORD_VALIDATION_ENABLE: Final = _default_of(topic.RECORD_VALIDATION_ENABLE, "log.record.validation.enable")
LOG_CLEANER_DELETE_RETENTION_MS: Final = _default_of(topic.DELETE_RETENTION_MS, "log.cleaner.delete.retention.ms")
LOG_CLEANER_MIN_CLEANABLE_RATIO: Final = _default_of(topic.MIN_CLEANABLE_DIRTY_RATIO, "log.cleaner.min.cleanable.ratio")
LOG_CLEANER_MIN_COMPACTION_LAG_MS: Final = _default_of(
    topic.MIN_COMPACTION_LAG_MS, "log.cleaner.min.compaction.lag.ms")
LOG_CLEANER_MAX_COMPACTION_LAG_MS: Final = _default_of(
    topic.MAX_COMPACTION_LAG_MS, "log.cleaner.max.compaction.lag.ms")
MIN_INSYNC_REPLICAS: Final = _default_of(topic.MIN_INSYNC_REPLICAS, "min.insync.replicas")
UNCLEAN_LEADER_ELECTION_ENABLE: Final = _default_of(
    topic.UNCLEAN_LEADER_ELECTION_ENABLE, "unclean.leader.election.enable")
UNCLEAN_RECOVERY_STRATEGY: Final = _default_of(topic.UNCLEAN_RECOVERY_STRATEGY, "unclean.recovery.strategy")
# fmt: on

DEFAULTS: Final = section("Defaults of topics", globals())

SYNONYMS: Final[Mapping[str, tuple[Synonym, ...]]] = {
    topic.CLEANUP_POLICY.name: (Synonym(LOG_CLEANUP_POLICY),),
    topic.RETENTION_MS.name: (
        Synonym(LOG_RETENTION_MS),
        Synonym(LOG_RETENTION_MINUTES, MINUTE_MS),
        Synonym(LOG_RETENTION_HOURS, HOUR_MS),
    ),
    topic.RETENTION_BYTES.name: (Synonym(LOG_RETENTION_BYTES),),
    topic.SEGMENT_BYTES.name: (Synonym(LOG_SEGMENT_BYTES),),
    topic.SEGMENT_MS.name: (Synonym(LOG_ROLL_MS), Synonym(LOG_ROLL_HOURS, HOUR_MS)),
    topic.SEGMENT_INDEX_BYTES.name: (Synonym(LOG_INDEX_SIZE_MAX_BYTES),),
    topic.INDEX_INTERVAL_BYTES.name: (Synonym(LOG_INDEX_INTERVAL_BYTES),),
    topic.FILE_DELETE_DELAY_MS.name: (Synonym(LOG_SEGMENT_DELETE_DELAY_MS),),
    topic.FLUSH_MESSAGES.name: (Synonym(LOG_FLUSH_INTERVAL_MESSAGES),),
    topic.FLUSH_MS.name: (Synonym(LOG_FLUSH_INTERVAL_MS),),
    topic.MAX_MESSAGE_BYTES.name: (Synonym(MESSAGE_MAX_BYTES),),
    topic.COMPRESSION_TYPE.name: (Synonym(COMPRESSION_TYPE),),
    topic.MESSAGE_TIMESTAMP_TYPE.name: (Synonym(LOG_MESSAGE_TIMESTAMP_TYPE),),
    topic.MESSAGE_TIMESTAMP_BEFORE_MAX_MS.name: (Synonym(LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS),),
    topic.MESSAGE_TIMESTAMP_AFTER_MAX_MS.name: (Synonym(LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS),),
    topic.RECORD_VALIDATION_ENABLE.name: (Synonym(LOG_RECORD_VALIDATION_ENABLE),),
    topic.DELETE_RETENTION_MS.name: (Synonym(LOG_CLEANER_DELETE_RETENTION_MS),),
    topic.MIN_CLEANABLE_DIRTY_RATIO.name: (Synonym(LOG_CLEANER_MIN_CLEANABLE_RATIO),),
    topic.MIN_COMPACTION_LAG_MS.name: (Synonym(LOG_CLEANER_MIN_COMPACTION_LAG_MS),),
    topic.MAX_COMPACTION_LAG_MS.name: (Synonym(LOG_CLEANER_MAX_COMPACTION_LAG_MS),),
    topic.MIN_INSYNC_REPLICAS.name: (Synonym(MIN_INSYNC_REPLICAS),),
    topic.UNCLEAN_LEADER_ELECTION_ENABLE.name: (Synonym(UNCLEAN_LEADER_ELECTION_ENABLE),),
    topic.UNCLEAN_RECOVERY_STRATEGY.name: (Synonym(UNCLEAN_RECOVERY_STRATEGY),),
}
"""Topic setting -> the node's synonyms; the first one given wins."""
