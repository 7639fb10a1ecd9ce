"""One batch of a call for one partition, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from streamlog.api.requests import PartitionAppend, PartitionRef
from streamlog.errors import (
    NetworkError,
    NotEnoughReplicasAfterAppendError,
    OutcomeUnknownError,
    RequestTimedOutError,
    StorageError,
    StreamlogError,
)
from streamlog.model import Offset, PartitionId, TopicId
from streamlog.ports import CallInfo

UNCERTAIN: Final = (
    NetworkError,
    NotEnoughReplicasAfterAppendError,
    OutcomeUnknownError,
    RequestTimedOutError,
    StorageError,
)
"""After these it is unknown whether the records are in the log."""


class BatchWrite(Struct, frozen=True, kw_only=True):
    """One batch for one partition."""

    topic: str
    topic_id: TopicId
    partition: PartitionId
    batch: bytes
    count: int  # of its records
    base_sequence: int | None  # None: the producer is not idempotent
    transactional_id: str = ""  # empty: not transactional
    call: CallInfo | None = None  # that it is written for, on a node that is traced
    traceparents: Sequence[str] = ()  # contexts in the headers of its records, there

    def as_append(self) -> PartitionAppend:
        ref = PartitionRef(topic=self.topic, topic_id=self.topic_id, partition=self.partition)
        return PartitionAppend(ref=ref, correlation_id=0, batches=self.batch, traceparents=tuple(self.traceparents))

    def contexts(self) -> list[str]:
        """Of the call that it is written for, then of its records."""
        if self.call is None:
            return []
        span = self.call.span
        return [*(() if span is None else (span.traceparent,)), *self.traceparents]


class WriteResult(NamedTuple):
    base_offset: Offset  # NO_OFFSET with acks=0, and for a duplicate that is too old
    log_append_time_ms: int  # NO_TIMESTAMP: the records keep their own


def is_of_one(error: StreamlogError) -> bool:
    """Whether several batches that were refused together, with nothing written, may have been so for one of them."""
    return not error.retriable and not isinstance(error, UNCERTAIN)
