"""The resolved settings of a log: `node` makes a storage LogConfig of them, with the same field names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from streamlog.config.effective import Layer, node_value, topic_config
from streamlog.config.settings import topic_settings as topic
from streamlog.config.settings.log_settings import PRODUCER_ID_EXPIRATION_MS


class LogValues(Struct, frozen=True, kw_only=True):
    """Sizes in bytes, times in ms; -1: no limit, where Kafka has it."""

    segment_bytes: int
    segment_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    retention_ms: int
    retention_bytes: int
    cleanup_delete: bool
    cleanup_compact: bool
    delete_retention_ms: int
    file_delete_delay_ms: int
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    log_append_time: bool  # False: CreateTime
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    flush_messages: int
    flush_ms: int
    producer_expiration_ms: int


def resolve_log_settings(own: Mapping[str, str], layers: Sequence[Layer]) -> LogValues:
    """The values for a topic with its `own` settings, on a node with these layers. InvalidConfigError."""
    config = topic_config(own, layers)
    policy = config[topic.CLEANUP_POLICY]
    return LogValues(
        segment_bytes=config[topic.SEGMENT_BYTES],
        segment_ms=config[topic.SEGMENT_MS],
        segment_index_bytes=config[topic.SEGMENT_INDEX_BYTES],
        index_interval_bytes=config[topic.INDEX_INTERVAL_BYTES],
        retention_ms=config[topic.RETENTION_MS],
        retention_bytes=config[topic.RETENTION_BYTES],
        cleanup_delete="delete" in policy,
        cleanup_compact="compact" in policy,
        delete_retention_ms=config[topic.DELETE_RETENTION_MS],
        file_delete_delay_ms=config[topic.FILE_DELETE_DELAY_MS],
        min_cleanable_dirty_ratio=config[topic.MIN_CLEANABLE_DIRTY_RATIO],
        min_compaction_lag_ms=config[topic.MIN_COMPACTION_LAG_MS],
        max_compaction_lag_ms=config[topic.MAX_COMPACTION_LAG_MS],
        max_message_bytes=config[topic.MAX_MESSAGE_BYTES],
        log_append_time=config[topic.MESSAGE_TIMESTAMP_TYPE] == "LogAppendTime",
        timestamp_before_max_ms=config[topic.MESSAGE_TIMESTAMP_BEFORE_MAX_MS],
        timestamp_after_max_ms=config[topic.MESSAGE_TIMESTAMP_AFTER_MAX_MS],
        flush_messages=config[topic.FLUSH_MESSAGES],
        flush_ms=config[topic.FLUSH_MS],
        producer_expiration_ms=node_value(PRODUCER_ID_EXPIRATION_MS, layers),
    )
