"""The contents of this node's log directories, for operators (`DescribeLogDirs`)."""

from __future__ import annotations

import base64

from msgspec import Struct, field

from streamlog.broker.table.log_moves import LogMoves, MovingReplica
from streamlog.errors import StorageError
from streamlog.model import Offset, TopicPartition
from streamlog.ports import FileSystem
from streamlog.storage.directories.directories import LogDirectories
from streamlog.storage.directories.directory import LogDirectory
from streamlog.storage.directories.scrub_progress import ScrubProgress


class ReplicaOnDisk(Struct, frozen=True, kw_only=True):
    partition: TopicPartition
    size_bytes: int
    log_start: Offset
    log_end: Offset
    damaged_ranges: int = 0  # found and not repaired


class LogDirDescription(Struct, frozen=True, kw_only=True):
    path: str
    directory_id: bytes  # 16 bytes; empty if the directory could not be opened
    total_bytes: int  # of its file system; -1: unknown
    usable_bytes: int  # still writable; -1: unknown
    replicas: tuple[ReplicaOnDisk, ...]  # by topic and partition, ascending
    error: StorageError | None  # None: it works
    scrub: ScrubProgress = field(default_factory=ScrubProgress)
    future_replicas: tuple[MovingReplica, ...] = ()  # that move here; by topic and partition, ascending


def describe(
    fs: FileSystem, directories: LogDirectories, moves: LogMoves, topics: frozenset[str]
) -> list[LogDirDescription]:
    """In the order of the configuration, those that could not be opened last. No topics: all."""
    opened = [_describe(fs, directory, moves, topics) for directory in directories]
    known = {description.path for description in opened}
    closed = [
        LogDirDescription(path=path, directory_id=b"", total_bytes=-1, usable_bytes=-1, replicas=(), error=error)
        for path, error in directories.offline.items()
        if path not in known
    ]
    return opened + closed


def _describe(fs: FileSystem, directory: LogDirectory, moves: LogMoves, topics: frozenset[str]) -> LogDirDescription:
    replicas = tuple(
        ReplicaOnDisk(
            partition=partition,
            size_bytes=log.size_bytes,
            log_start=log.log_start_offset,
            log_end=log.log_end_offset,
            damaged_ranges=sum(len(found.damages) for found in log.damaged_segments.values())
            + (log.damage is not None),
        )
        for partition, log in sorted(directory.logs.items())
        if not topics or partition.topic in topics
    )
    total_bytes = usable_bytes = -1
    if directory.failure is None:
        try:
            total_bytes, usable_bytes = fs.total_bytes(directory.path), fs.free_bytes(directory.path)
        except OSError as e:
            directory.fail(e)
    return LogDirDescription(
        path=directory.path,
        directory_id=_directory_id(directory.meta.directory_id),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        replicas=replicas,
        error=directory.failure,
        scrub=directory.scrub,
        future_replicas=tuple(
            one for one in moves.in_directory(directory) if not topics or one.partition.topic in topics
        ),
    )


def _directory_id(text: str) -> bytes:
    """From the text of `meta.properties` (URL-safe base64 without padding)."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
