"""The records of the admin client: deletion by offset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamlog.api.calls import unary
from streamlog.api.errors import from_message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.client.admin.values import DeletedRecords
from streamlog.client.connection.any_node import AnyNode
from streamlog.client.connection.backoff import Backoff
from streamlog.client.consumer.offset_finder import Bound
from streamlog.client.consumer.start_positions import as_partition
from streamlog.errors import (
    InvalidRequestError,
    LeaderNotAvailableError,
    NotLeaderError,
    StreamlogError,
    UnsupportedVersionError,
)
from streamlog.model import INT64_MAX, NO_OFFSET, Offset, PartitionId, TopicPartition
from streamlog.ports import Clock

_DELETE: Final = unary("streamlog.v1.Admin/DeleteRecords", pb.DeleteRecordsResponse)
_AT_ONCE: Final = 1_000
_HIGH_WATERMARK: Final = -1
# During a fail-over: the request was certainly not carried out.
_TRY_AGAIN: Final = (LeaderNotAvailableError, NotLeaderError)


class RecordAdmin:
    """The records of AsyncAdmin, whose `start` sets the attributes."""

    _nodes: AnyNode
    _clock: Clock
    _backoff: Backoff
    _total_s: float

    async def delete_records(self, before: Mapping[TopicPartition, int | Bound]) -> tuple[DeletedRecords, ...]:
        """Delete the records of each partition before an offset, or before LATEST: all that are committed. Its log
        starts there then, on all its replicas, also after a fail-over. In the order of `before`; per partition
        OffsetOutOfRangeError beyond the high watermark, PolicyViolationError without `delete` in cleanup.policy,
        RequestTimedOutError where the leader has deleted the records and another replica has not confirmed it.
        """
        found: dict[TopicPartition, DeletedRecords] = {}
        open_ = {as_partition(at): _offset(offset) for at, offset in before.items()}
        deadline = self._clock.monotonic() + self._total_s
        attempt = 0
        while open_:
            for at, result in (await self._delete(open_)).items():
                found[at] = result
            left_s = deadline - self._clock.monotonic()
            open_ = {at: offset for at, offset in open_.items() if isinstance(found[at].error, _TRY_AGAIN)}
            if left_s <= 0:
                break
            if open_:
                attempt += 1
                await self._backoff.wait(attempt, left_s=left_s)
        return tuple(found[at] for at in before)

    async def _delete(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, DeletedRecords]:
        found = {}
        rows = [
            pb.RecordDeletion(topic=at.topic, partition=at.partition, before_offset=offset)
            for at, offset in before.items()
        ]
        for start in range(0, len(rows), _AT_ONCE):
            request = pb.DeleteRecordsRequest(partitions=rows[start : start + _AT_ONCE])
            for row in (await self._nodes.ask(_DELETE, request)).results:
                at = TopicPartition(row.topic, PartitionId(row.partition))
                error = from_message(row.error) if row.HasField("error") else None
                found[at] = DeletedRecords(at=at, log_start=Offset(row.log_start), error=error)
        return {at: found.get(at) or DeletedRecords(at=at, log_start=NO_OFFSET, error=_missing(at)) for at in before}


def _missing(at: TopicPartition) -> StreamlogError:
    return UnsupportedVersionError(f"the node's response has no result for {at}; it may not be a streamlog node")


def _offset(before: int | Bound) -> int:
    """InvalidRequestError."""
    if before is Bound.LATEST:
        return _HIGH_WATERMARK
    if isinstance(before, bool) or not isinstance(before, int) or not 0 <= before <= INT64_MAX:
        raise InvalidRequestError(
            f"records are deleted before an offset from 0, or before LATEST; not before {before!r}", field="before"
        )
    return before
