"""Stored batches that cannot be decoded: what a consumer reports, and which of them it has skipped.

Leaders refuse such batches (`record.validation.enable`), but old logs may hold some, so do topics that trust their
producers, and disks damage what was sound. `on.corrupt.batch`:

    fail    CorruptBatchError, which names the batch and the offset behind it; reading stands until it is sought
    skip    the batch is passed over, counted, and reported once
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from streamlog.errors import (
    CorruptBatchError,
    CorruptMessageError,
    InvalidRecordError,
    MessageTooLargeError,
    StreamlogError,
    UnsupportedCompressionError,
)
from streamlog.model import Offset, PartitionId, TopicPartition

UNREADABLE: Final = (
    CorruptMessageError,
    InvalidRecordError,
    MessageTooLargeError,
    UnsupportedCompressionError,
)
"""What `records.decode` and `check_crc` raise of a batch."""

_log: Final = logging.getLogger(__name__)


def corrupt_batch(
    partition: TopicPartition, offset: Offset, next_offset: Offset | None, why: StreamlogError
) -> CorruptBatchError:
    """`next_offset`: behind the batch; None where its header does not say."""
    reason = why.reason if isinstance(why, CorruptMessageError) else why.message
    if next_offset is None:
        remedy = "where the next batch begins is not known"
    else:
        remedy = f"to step over it go on at offset {next_offset}, or skip such batches with on.corrupt.batch=skip"
    return CorruptBatchError(
        f"{partition}: the batch at offset {offset} cannot be decoded: {reason}; {remedy}",
        topic=partition.topic,
        partition=int(partition.partition),
        offset=int(offset),
        next_offset=None if next_offset is None else int(next_offset),
        reason=reason,
    )


class CorruptBatches:
    """Of one consumer, which is used by one thread at a time."""

    def __init__(self, *, skip: bool, report: Callable[[CorruptBatchError], None] | None = None) -> None:
        """`report`: of each that is skipped, once; None: a warning in the log."""
        self._skip = skip
        self._report = report or _warn
        self._last: dict[TopicPartition, int] = {}  # the one skipped last: it may be read several times
        self.skipped_count = 0

    def skips(self, error: CorruptBatchError) -> bool:
        """Whether the batch is to be passed over; the caller raises the error otherwise."""
        if not self._skip or error.next_offset is None:
            return False
        partition = TopicPartition(error.topic, PartitionId(error.partition))
        if self._last.get(partition) != error.offset:
            self._last[partition] = error.offset
            self.skipped_count += 1
            self._report(error)
        return True


def _warn(error: CorruptBatchError) -> None:
    _log.warning(
        "%s-%d: the batch at offset %d cannot be decoded and is skipped, reading goes on at offset %s"
        " (on.corrupt.batch=skip): %s",
        error.topic,
        error.partition,
        error.offset,
        error.next_offset,
        error.reason,
    )
