"""Stored batches that cannot be decoded: what a consumer reports, and which of them it has skipped.

Leaders refuse such batches (`record.validation.enable`), but logs written before, and topics that are not validated,
may contain some, and disks damage intact ones. `on.corrupt.batch`:

    fail    CorruptBatchError, which names the batch and the offset after it; reading stops until it is sought
    skip    the batch is skipped, counted, and reported once
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from streamlog.client.log_lines import warn
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
"""What `records.decode` and `check_crc` raise for a corrupt batch."""

_log: Final = logging.getLogger(__name__)


def corrupt_batch(
    partition: TopicPartition, offset: Offset, next_offset: Offset | None, why: StreamlogError
) -> CorruptBatchError:
    """`next_offset`: after the batch; None where its header cannot be read."""
    reason = why.reason if isinstance(why, CorruptMessageError) else why.message
    if next_offset is None:
        remedy = "the offset of the next batch is unknown, seek to a later offset"
    else:
        remedy = f"to skip it, seek to offset {next_offset}, or set on.corrupt.batch=skip"
    return CorruptBatchError(
        f"{partition}: the batch at offset {offset} cannot be decoded: {reason}; {remedy}",
        topic=partition.topic,
        partition=int(partition.partition),
        offset=int(offset),
        next_offset=None if next_offset is None else int(next_offset),
        reason=reason,
    )


class CorruptBatches:
    """The skipped batches of one consumer, which is used by one thread at a time."""

    def __init__(self, *, skip: bool, report: Callable[[CorruptBatchError], None] | None = None) -> None:
        """`report`: called once for each batch that is skipped; None: a warning in the log."""
        self._skip = skip
        self._report = report or _warn
        self._last: dict[TopicPartition, int] = {}  # the offset skipped last: it may be read several times
        self.skipped_count = 0

    def skips(self, error: CorruptBatchError) -> bool:
        """Whether the batch is to be skipped; if not, the caller raises the error."""
        if not self._skip or error.next_offset is None:
            return False
        partition = TopicPartition(error.topic, PartitionId(error.partition))
        if self._last.get(partition) != error.offset:
            self._last[partition] = error.offset
            self.skipped_count += 1
            self._report(error)
        return True

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """What is skipped there is reported again."""
        for one in partitions:
            self._last.pop(one, None)


def _warn(error: CorruptBatchError) -> None:
    warn(
        _log,
        f"{error.topic}-{error.partition}: the batch at offset {error.offset} cannot be decoded and is skipped, reading"
        f" continues at offset {error.next_offset} (on.corrupt.batch=skip): {error.reason}",
    )
