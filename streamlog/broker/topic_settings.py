"""A topic's configuration as its replicas on this node need it."""

from __future__ import annotations

from typing import ClassVar, Final

from msgspec import Struct
from msgspec.structs import fields

from streamlog.config.log_values import LogValues
from streamlog.config.settings import topic_settings as topic
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.records import Codec, ProduceLimits, TimestampType
from streamlog.storage.log_config import LogConfig

_COMPRESSION: Final = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
# Names that LogConfig and LogValues share.
_COMMON: Final = tuple(
    field.name for field in fields(LogConfig) if field.name in {value.name for value in fields(LogValues)}
)


class TopicSettings(Struct, frozen=True, kw_only=True):
    DEFAULT: ClassVar[TopicSettings]

    log: LogConfig
    limits: ProduceLimits
    min_insync_replicas: int | None  # as configured; None: by the number of replicas
    codec: Codec | None  # of the stored batches; None: as the producer sent them

    @classmethod
    def of(cls, configs: NodeConfigs, name: str) -> TopicSettings:
        """InvalidConfigError for a value of a newer release that this one does not know."""
        values, config = configs.log_values(name), configs.topic(name)
        timestamp_type = TimestampType.LOG_APPEND_TIME if values.log_append_time else TimestampType.CREATE_TIME
        return cls(
            log=LogConfig(**{name: getattr(values, name) for name in _COMMON}, timestamp_type=timestamp_type),
            limits=ProduceLimits(
                message_bytes_max=values.max_message_bytes,
                timestamp_type=timestamp_type,
                timestamp_before_max_ms=values.timestamp_before_max_ms,
                timestamp_after_max_ms=values.timestamp_after_max_ms,
                keys_required=values.cleanup_compact,
                check_records=config[topic.RECORD_VALIDATION_ENABLE],
            ),
            min_insync_replicas=config[topic.MIN_INSYNC_REPLICAS],
            codec=_COMPRESSION[config[topic.COMPRESSION_TYPE]],
        )


TopicSettings.DEFAULT = TopicSettings(
    log=LogConfig(),
    limits=ProduceLimits(message_bytes_max=LogConfig().max_message_bytes),
    min_insync_replicas=None,
    codec=None,
)
