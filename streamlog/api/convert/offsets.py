"""Offsets by bound or timestamp, and end offsets of leader epochs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamlog.api.convert.admin.partitions import (
    isolation_level,
    known_epoch,
    partition_ref,
    set_partition,
)
from streamlog.api.convert.fields import (
    at_least,
    each,
    enum_value,
    leader_epoch,
)
from streamlog.api.errors import to_message
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.pb import common_pb2
from streamlog.api.requests import (
    PARTITIONS_PER_REQUEST_MAX,
    EpochQuery,
    ListOffsetsRequest,
    OffsetPlace,
    OffsetQuery,
)
from streamlog.errors import InvalidRequestError, StreamlogError
from streamlog.model import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
)

_BOUNDS: Final[Mapping[int, OffsetPlace]] = {
    common_pb2.OFFSET_BOUND_EARLIEST: OffsetPlace.EARLIEST,
    common_pb2.OFFSET_BOUND_LATEST: OffsetPlace.LATEST,
}


def list_offsets_request(message: pb.ListOffsetsRequest) -> ListOffsetsRequest:
    """InvalidRequestError, InvalidTopicError."""
    return ListOffsetsRequest(
        isolation_level=isolation_level(message.isolation_level),
        queries=each(message.queries, "queries", _offset_query, count_min=1, count_max=PARTITIONS_PER_REQUEST_MAX),
    )


def _offset_query(message: pb.OffsetQuery) -> OffsetQuery:
    known = known_epoch(message)
    return OffsetQuery(ref=partition_ref(message, known), place=_place(message))


def _place(message: pb.OffsetQuery) -> OffsetPlace | int:
    match message.WhichOneof("place"):
        case "bound":
            return enum_value(message.bound, _BOUNDS, common_pb2.OffsetBound, "bound")
        case "timestamp_ms":
            return at_least(message.timestamp_ms, 0, "timestamp_ms")
        case "max_timestamp" if message.max_timestamp:
            return OffsetPlace.MAX_TIMESTAMP
        case _:
            raise InvalidRequestError("set one of bound, timestamp_ms and max_timestamp", field="place")


def found_offset(
    query: OffsetQuery,
    offset: Offset = NO_OFFSET,
    *,
    timestamp_ms: int = NO_TIMESTAMP,
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
    error: StreamlogError | None = None,
) -> pb.FoundOffset:
    """NO_OFFSET without an error: no record has that timestamp or a later one."""
    found = pb.FoundOffset(offset=offset, timestamp_ms=timestamp_ms, leader_epoch=leader_epoch)
    set_partition(found, query.ref)
    if error is not None:
        found.error.CopyFrom(to_message(error))
    return found


def epoch_queries(message: pb.OffsetForLeaderEpochRequest) -> tuple[EpochQuery, ...]:
    """InvalidRequestError, InvalidTopicError. Not empty."""
    return each(message.queries, "queries", _epoch_query, count_min=1, count_max=PARTITIONS_PER_REQUEST_MAX)


def _epoch_query(message: pb.EpochQuery) -> EpochQuery:
    known = NO_LEADER_EPOCH
    if message.HasField("current_leader_epoch"):
        known = leader_epoch(message.current_leader_epoch, "current_leader_epoch")
    return EpochQuery(ref=partition_ref(message, known), leader_epoch=leader_epoch(message.leader_epoch))


def found_epoch(query: EpochQuery, end: pb.EpochEnd | StreamlogError) -> pb.FoundEpoch:
    found = pb.FoundEpoch()
    set_partition(found, query.ref)
    if isinstance(end, StreamlogError):
        found.error.CopyFrom(to_message(end))
    else:
        found.end.CopyFrom(end)
    return found


def epoch_end(leader_epoch: LeaderEpoch, end_offset: Offset) -> pb.EpochEnd:
    return pb.EpochEnd(leader_epoch=leader_epoch, end_offset=end_offset)
