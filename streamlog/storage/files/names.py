"""Names of files and directories in a log directory. They are Kafka's, so that its tools can read them.

A partition's directory is `topic-partition`; one that is being deleted `topic-partition.<32 hex digits>-delete`, one
that this node should not have `topic-partition.<32 hex digits>-stray`, an unfinished copy of one that moves here from
another log directory `topic-partition.<32 hex digits>-future`. A segment's files are named by its base offset in 20
digits. A suffix is a file's state: `.deleted` is scheduled for deletion, `.cleaned` is partly written by
compaction (deleted at the start), `.swap` is complete and replaces the segments that it covers (finished at the start).
"""

from __future__ import annotations

import re
from typing import Final

from streamlog.model import TOPIC_CHARACTER, Offset, PartitionId, TopicPartition

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
TEMPORARY: Final = ".tmp"

SEGMENT_FILES: Final = (LOG, INDEX, TIME_INDEX, TXN_INDEX)

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
GAPS: Final = "offset-gaps"
"""Empty: this log, or the one that it was copied from, is or was compacted."""
INCOMPLETE: Final = "incomplete"
"""Empty: records that may have been on stable storage were cut from this log, and it has not caught up since."""
TRANSACTION_SUMS: Final = "transaction-index-checksums"
PARTITION_METADATA: Final = "partition.metadata"
MOVING_TO: Final = "moving-to"
"""`directory.id` of the log directory to which this log may have moved (storage.directories.log_move)."""

LOCK: Final = ".lock"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
SCRUB: Final = "scrub-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"

DELETE_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"
FUTURE_SUFFIX: Final = "-future"

_PARTITION = re.compile(f"(?P<topic>{TOPIC_CHARACTER}{{1,249}})" r"-(?P<partition>0|[1-9][0-9]{0,9})")
_REMOVED = re.compile(r".+\.[0-9a-f]{32}-(delete|stray)")
_FUTURE = re.compile(r".+\.[0-9a-f]{32}-future")
_SEGMENT = re.compile(r"(?P<base>[0-9]{20})(?P<kind>\.[a-z]+)(?P<state>\.[a-z]+)?")


def join(directory: str, name: str) -> str:
    return f"{directory}/{name}"


def file_name(base_offset: int, kind: str) -> str:
    """Name of a segment's file of this kind (`LOG`, `INDEX` ...)."""
    return f"{base_offset:020d}{kind}"


def parse_file_name(name: str) -> tuple[Offset, str, str] | None:
    """(base offset, kind, state) of a segment's file; the state is "" for a plain one. None for other files."""
    match = _SEGMENT.fullmatch(name)
    if match is None:
        return None
    return Offset(int(match["base"])), match["kind"], match["state"] or ""


def parse_partition_directory(name: str) -> TopicPartition | None:
    """The partition that a directory contains, or None where the name is not a partition's."""
    match = _PARTITION.fullmatch(name)
    if match is None or is_deleted_or_stray(name):
        return None
    return TopicPartition(match["topic"], PartitionId(int(match["partition"])))


def is_deleted_or_stray(name: str) -> bool:
    """Renamed for deletion, or as a stray."""
    return _REMOVED.fullmatch(name) is not None


def is_future(name: str) -> bool:
    """An unfinished copy, for a move from another log directory."""
    return _FUTURE.fullmatch(name) is not None


def removed_directory_name(partition: TopicPartition, token: int, suffix: str) -> str:
    """Name of a removed directory, or of a copy; `token` (128 random bits) distinguishes several of one partition.

    The topic is truncated where the name would be longer than 255 bytes.
    """
    tail = f"-{partition.partition}.{token:032x}{suffix}"
    return partition.topic[: 255 - len(tail)] + tail
