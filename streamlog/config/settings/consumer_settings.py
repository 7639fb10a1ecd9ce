"""The settings of a consumer, in addition to those of all clients (`client_settings`)."""

from __future__ import annotations

from typing import Final

from streamlog.config.kinds import Boolean, OneOf, Text, count, duration_ms, size_bytes
from streamlog.config.offset_reset import AutoOffsetReset, AutoOffsetResetKind
from streamlog.config.setting import Setting, section

# A table reads best with an entry's facts on one line and its sentence below.
# fmt: off

GROUP_ID: Final[Setting[str | None]] = Setting(
    "group.id", Text(249), None,
    doc="The group whose members share the partitions and the committed offsets.")
GROUP_INSTANCE_ID: Final[Setting[str | None]] = Setting(
    "group.instance.id", Text(249), None,
    doc="Static membership: a member that returns with the same name within its session keeps its partitions.")
GROUP_REMOTE_ASSIGNOR: Final[Setting[str | None]] = Setting(
    "group.remote.assignor", OneOf(("uniform", "range", "roundrobin"), {"sticky": "uniform"}), None,
    default_doc="the nodes' first (group.consumer.assignors)",
    doc="How the coordinator assigns partitions to members.")
AUTO_OFFSET_RESET: Final = Setting(
    "auto.offset.reset", AutoOffsetResetKind(), AutoOffsetReset("latest"),
    doc="Where reading starts without a committed offset: at the beginning, at the end, nowhere (an error), or this "
    "long ago (by_duration:P1DT2H).")
ENABLE_AUTO_COMMIT: Final = Setting(
    "enable.auto.commit", Boolean(), True,
    doc="Whether the offsets of returned records are committed periodically.")
AUTO_COMMIT_INTERVAL_MS: Final = Setting(
    "auto.commit.interval.ms", duration_ms(1), 5_000,
    doc="The interval of these commits.")
SESSION_TIMEOUT_MS: Final = Setting(
    "session.timeout.ms", duration_ms(1), 45_000,
    doc="How long the coordinator waits for a member's heartbeat before it removes the member.")
HEARTBEAT_INTERVAL_MS: Final = Setting(
    "heartbeat.interval.ms", duration_ms(1), 3_000,
    doc="How often a member sends heartbeats to the coordinator.")
MAX_POLL_INTERVAL_MS: Final = Setting(
    "max.poll.interval.ms", duration_ms(1), 300_000,
    doc="How long a member may take between two polls before it leaves the group.")
MAX_POLL_RECORDS: Final = Setting(
    "max.poll.records", count(1), 500,
    doc="How many records one poll returns at most.")
FETCH_MIN_BYTES: Final = Setting(
    "fetch.min.bytes", size_bytes(), 1,
    doc="How many bytes a fetch waits for, up to fetch.max.wait.ms.")
FETCH_MAX_WAIT_MS: Final = Setting(
    "fetch.max.wait.ms", duration_ms(0, 3_600_000), 500,
    doc="The longest wait of a fetch for fetch.min.bytes.")
FETCH_MAX_BYTES: Final = Setting(
    "fetch.max.bytes", size_bytes(1 << 10), 50 << 20,
    doc="The maximum size of a fetch, unless a single batch is larger.")
MAX_PARTITION_FETCH_BYTES: Final = Setting(
    "max.partition.fetch.bytes", size_bytes(1 << 10), 1 << 20,
    doc="The maximum size of a fetch for one partition, unless a single batch is larger.")
ISOLATION_LEVEL: Final = Setting(
    "isolation.level", OneOf(("read_uncommitted", "read_committed")), "read_uncommitted",
    doc="Whether records of open and aborted transactions are returned.")
CHECK_CRCS: Final = Setting(
    "check.crcs", Boolean(), True,
    doc="Whether the checksums of batches are verified.")
ON_CORRUPT_BATCH: Final = Setting(
    "on.corrupt.batch", OneOf(("fail", "skip")), "fail",
    doc="What happens at a stored batch that cannot be decoded: an error that names it and the offset after it, or "
    "the batch is skipped, logged and counted (corrupt_batches_skipped).")
CLIENT_RACK: Final = Setting(
    "client.rack", Text(253, may_be_empty=True), "",
    doc="The rack or zone of this consumer: it is preferably assigned partitions with a replica there.")
EXCLUDE_INTERNAL_TOPICS: Final = Setting(
    "exclude.internal.topics", Boolean(), True,
    doc="Whether a pattern excludes internal topics.")
DEFAULT_API_TIMEOUT_MS: Final = Setting(
    "default.api.timeout.ms", duration_ms(1), 60_000,
    doc="The timeout of calls that have no timeout argument.")
# fmt: on

CONSUMING: Final = section("Consuming", globals())
