"""What a topic's settings say about records that are published to it, resolved once for each version of the settings.

A record that the leader would refuse is refused before anything is written, unless a leader may have it already.
Leaders check again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamlog.api.convert.records.publish import NewRecord
from streamlog.config import Config
from streamlog.config.settings import topic_settings
from streamlog.errors import InvalidRecordError, InvalidTimestampError, MessageTooLargeError, StreamlogError
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.records import Codec
from streamlog.records.encode import encode_headers
from streamlog.records.header import HEADER_SIZE

_RECORD_OVERHEAD: Final = HEADER_SIZE + 64
"""Upper bound of a batch's bytes for one record, beside key, value and headers."""
_HEADERS_OVERHEAD: Final = _RECORD_OVERHEAD + 5
"""The same for one record with headers: their number besides."""
_HEADER_BYTES: Final = 10
"""Upper bound for the lengths of a header's key and value."""
_TOPICS_MAX: Final = 1_000
_CODECS: Final[Mapping[str, Codec]] = {
    "none": Codec.NONE,
    "producer": Codec.NONE,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class PublishRules:
    """By one version of a topic's settings."""

    __slots__ = ("_after_max_ms", "_before_max_ms", "_checks_time", "_codec", "_compacted", "_topic", "size_max")

    def __init__(self, topic: str, config: Config) -> None:
        self._topic = topic
        self.size_max = config[topic_settings.MAX_MESSAGE_BYTES]
        self._compacted = "compact" in config[topic_settings.CLEANUP_POLICY]
        self._checks_time = config[topic_settings.MESSAGE_TIMESTAMP_TYPE] == "CreateTime"
        self._before_max_ms = config[topic_settings.MESSAGE_TIMESTAMP_BEFORE_MAX_MS]
        self._after_max_ms = config[topic_settings.MESSAGE_TIMESTAMP_AFTER_MAX_MS]
        self._codec = _CODECS[config[topic_settings.COMPRESSION_TYPE]]

    def codec(self, wanted: str) -> Codec:
        """`wanted`: Kafka's name of the codec that the request asks for; empty: the topic's."""
        return _CODECS[wanted] if wanted else self._codec

    def refusal(self, record: NewRecord, index: int, now_ms: int) -> StreamlogError | None:
        """Why its leader would refuse it now; None: it would not."""
        size = record.size_bytes
        if record.headers and size + _HEADER_BYTES * len(record.headers) + _HEADERS_OVERHEAD > self.size_max:
            size = len(record.key or b"") + len(record.value or b"") + len(encode_headers(record.headers))
        if size + _RECORD_OVERHEAD > self.size_max:
            return MessageTooLargeError(
                f"record {index} has {size} bytes, too many for topic {self._topic}, whose batches have "
                f"at most {self.size_max} (max.message.bytes): make the record smaller, or raise the topic's limit",
                field=f"records[{index}]",
                limit=self.size_max,
            )
        if self._compacted and record.key is None:
            return InvalidRecordError(
                f"record {index} has no key: topic {self._topic} is compacted (cleanup.policy), so each record needs "
                "one",
                field=f"records[{index}].key",
            )
        if self._checks_time:
            earliest, latest = now_ms - self._before_max_ms, now_ms + self._after_max_ms
            if not earliest <= record.timestamp_ms <= latest:
                return InvalidTimestampError(
                    f"record {index} has the timestamp {record.timestamp_ms}, topic {self._topic} accepts {earliest} "
                    f"to {latest} (message.timestamp.before.max.ms, message.timestamp.after.max.ms)",
                    field=f"records[{index}].timestamp_ms",
                    limit=latest if record.timestamp_ms > latest else earliest,
                )
        return None


class PublishRulesTable:
    """Of one node."""

    def __init__(self, configs: NodeConfigs) -> None:
        self._configs = configs
        self._known: dict[str, tuple[Config, PublishRules]] = {}

    def of(self, topic: str) -> PublishRules:
        config = self._configs.topic(topic)  # the same object until a setting changes
        known = self._known.get(topic)
        if known is not None and known[0] is config:
            return known[1]
        rules = PublishRules(topic, config)
        if len(self._known) >= _TOPICS_MAX:
            self._known.clear()
        self._known[topic] = (config, rules)
        return rules
