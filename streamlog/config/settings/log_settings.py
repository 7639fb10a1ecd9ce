"""The settings of a node's logs, independent of the topic: directories, intervals of background work."""

from __future__ import annotations

from typing import Final

from streamlog.config.kinds import INT64_MAX, ListOf, Text, duration_ms, size_bytes
from streamlog.config.setting import Setting, Update, section
from streamlog.config.settings.topic_settings import DAY_MS

# A table reads best with an entry's facts on one line and its sentence below.
# fmt: off

LOG_DIRS: Final[Setting[tuple[str, ...]]] = Setting(
    "log.dirs", ListOf(Text(), items_max=100), (), default_doc="log.dir applies",
    doc="The directories of the logs, one for each disk; overrides log.dir.")
LOG_DIR: Final = Setting(
    "log.dir", ListOf(Text(), items_min=1, items_max=100), ("streamlog-data",),
    kafka="a directory that is lost when the machine restarts",
    doc="The directories of the logs where log.dirs is not set; relative to the node's working directory.")
LOG_RETENTION_CHECK_INTERVAL_MS: Final = Setting(
    "log.retention.check.interval.ms", duration_ms(1, INT64_MAX), 300_000,
    doc="How often retention checks for segments to delete.")
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS: Final = Setting(
    "log.flush.offset.checkpoint.interval.ms", duration_ms(1), 5_000, kafka="60000",
    doc="How often the recovery points of the logs are written; the rest of a log is scanned after an unclean stop.")
LOG_CLEANER_BACKOFF_MS: Final = Setting(
    "log.cleaner.backoff.ms", duration_ms(1, INT64_MAX), 15_000,
    doc="How long compaction pauses when there was nothing to compact.")
LOG_CLEANER_DEDUPE_BUFFER_SIZE: Final = Setting(
    "log.cleaner.dedupe.buffer.size", size_bytes(1 << 20, 64 << 30), 128 << 20,
    doc="How much memory compaction may use for its map of keys, for each log directory.")
LOG_SCRUB_INTERVAL_MS: Final = Setting(
    "log.scrub.interval.ms", duration_ms(-1, INT64_MAX), 7 * DAY_MS, ours=True, update=Update.PER_BROKER,
    doc="How often all logs are read to find corrupt data while it can be repaired; -1: never.")
LOG_SCRUB_MAX_BYTES_PER_SECOND: Final = Setting(
    "log.scrub.max.bytes.per.second", size_bytes(1 << 10, 64 << 30), 16 << 20, ours=True,
    update=Update.PER_BROKER,
    doc="The maximum rate of that reading, for each log directory.")
PRODUCER_ID_EXPIRATION_MS: Final = Setting(
    "producer.id.expiration.ms", duration_ms(1), DAY_MS, update=Update.CLUSTER_WIDE,
    doc="How long a partition keeps the sequence number of a producer that no longer writes.")
# fmt: on

LOGS: Final = section("Logs", globals())
