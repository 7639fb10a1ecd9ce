"""How a node keeps its logs, whatever the topic: where they are, how often what is looked after."""

from __future__ import annotations

from typing import Final

from streamlog.config.kinds import INT64_MAX, ListOf, Text, duration_ms, size_bytes
from streamlog.config.setting import Setting, Update, section
from streamlog.config.topic_settings import DAY_MS

# A table reads best with an entry's facts on one line and its sentence below.
# fmt: off

LOG_DIRS: Final[Setting[tuple[str, ...]]] = Setting(
    "log.dirs", ListOf(Text(), items_max=100), (), default_doc="log.dir holds",
    doc="The directories of the logs, one a disk; goes before log.dir.")
LOG_DIR: Final = Setting(
    "log.dir", ListOf(Text(), items_min=1, items_max=100), ("streamlog-data",),
    kafka="a directory that does not outlive a restart of the machine",
    doc="The directories of the logs, where log.dirs names none; relative to where the node starts.")
LOG_RETENTION_CHECK_INTERVAL_MS: Final = Setting(
    "log.retention.check.interval.ms", duration_ms(1, INT64_MAX), 300_000,
    doc="How often it is looked whether a segment is to be deleted.")
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS: Final = Setting(
    "log.flush.offset.checkpoint.interval.ms", duration_ms(1), 5_000, kafka="60000",
    doc="How often it is written down up to where the logs are on the disk; the rest is scanned after an unclean stop.")
LOG_CLEANER_BACKOFF_MS: Final = Setting(
    "log.cleaner.backoff.ms", duration_ms(1, INT64_MAX), 15_000,
    doc="How long compaction rests when there was nothing to compact.")
LOG_CLEANER_DEDUPE_BUFFER_SIZE: Final = Setting(
    "log.cleaner.dedupe.buffer.size", size_bytes(1 << 20, 64 << 30), 128 << 20,
    doc="How much memory compaction may take for its map of keys, for each log directory.")
LOG_SCRUB_INTERVAL_MS: Final = Setting(
    "log.scrub.interval.ms", duration_ms(-1, INT64_MAX), 7 * DAY_MS, ours=True, update=Update.PER_BROKER,
    doc="How often everything in the logs is read to find damage while it can be repaired; -1: never.")
LOG_SCRUB_MAX_BYTES_PER_SECOND: Final = Setting(
    "log.scrub.max.bytes.per.second", size_bytes(1 << 10, 64 << 30), 16 << 20, ours=True,
    update=Update.PER_BROKER,
    doc="How fast that is read at most, in each log directory.")
PRODUCER_ID_EXPIRATION_MS: Final = Setting(
    "producer.id.expiration.ms", duration_ms(1), DAY_MS, update=Update.CLUSTER_WIDE,
    doc="How long a partition remembers the sequence of a producer that no longer writes.")
# fmt: on

LOGS: Final = section("Logs", globals())
