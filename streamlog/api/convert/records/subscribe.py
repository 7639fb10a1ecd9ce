"""Subscribe: the partitions and positions of a request, and the records of a response."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from streamlog.api.convert.admin.partitions import isolation_level
from streamlog.api.convert.fields import amount, at_least, each, enum_value, partition_id, topic_name
from streamlog.api.errors import cut, to_message
from streamlog.api.pb import common_pb2
from streamlog.api.pb import records_pb2 as pb
from streamlog.api.requests import (
    PARTITIONS_PER_REQUEST_MAX,
    RECEIVE_BYTES,
    RECEIVE_BYTES_MAX,
    RESPONSE_BYTES,
    OffsetPlace,
)
from streamlog.errors import CorruptBatchError, InvalidRequestError, StreamlogError
from streamlog.model import INT32_MAX, IsolationLevel, LeaderEpoch, Offset, PartitionId, TopicPartition
from streamlog.records import TimestampType
from streamlog.records.decode import Fields

HEARTBEAT_INTERVAL_MS: Final = 5_000
HEARTBEAT_INTERVAL_MS_MIN: Final = 100


class OffsetResetPolicy(enum.Enum):
    NONE = 1
    EARLIEST = 2
    LATEST = 3


class OffsetPosition(Struct, frozen=True):
    offset: Offset


class TimestampPosition(Struct, frozen=True):
    timestamp_ms: int


Position = OffsetPosition | TimestampPosition | OffsetPlace


class TopicSubscription(Struct, frozen=True, kw_only=True):
    topic: str
    partitions: tuple[PartitionId, ...]  # empty: all that no other entry names, and those that are added later
    start: Position
    end: OffsetPosition | TimestampPosition | OffsetPlace | None  # None: no end; of OffsetPlace only LATEST


class SubscribeQuery(Struct, frozen=True, kw_only=True):
    subscriptions: tuple[TopicSubscription, ...]  # not empty
    isolation_level: IsolationLevel
    offset_reset: OffsetResetPolicy
    response_bytes_max: int
    receive_bytes_max: int
    heartbeat_interval_ms: int
    skip_corrupt: bool  # batches that cannot be decoded


_RESETS: Final[Mapping[int, OffsetResetPolicy]] = {
    pb.OFFSET_RESET_NONE: OffsetResetPolicy.NONE,
    pb.OFFSET_RESET_EARLIEST: OffsetResetPolicy.EARLIEST,
    pb.OFFSET_RESET_LATEST: OffsetResetPolicy.LATEST,
}
_SKIPS: Final[Mapping[int, bool]] = {pb.CORRUPT_BATCH_POLICY_FAIL: False, pb.CORRUPT_BATCH_POLICY_SKIP: True}
_BOUNDS: Final[Mapping[int, OffsetPlace]] = {
    common_pb2.OFFSET_BOUND_EARLIEST: OffsetPlace.EARLIEST,
    common_pb2.OFFSET_BOUND_LATEST: OffsetPlace.LATEST,
}
_END_BOUNDS: Final[Mapping[int, OffsetPlace]] = {common_pb2.OFFSET_BOUND_LATEST: OffsetPlace.LATEST}


def subscribe_query(message: pb.SubscribeRequest) -> SubscribeQuery:
    """InvalidRequestError, InvalidTopicError."""
    check_count(sum(len(one.partitions) for one in message.subscriptions[: PARTITIONS_PER_REQUEST_MAX + 1]))
    subscriptions = each(
        message.subscriptions, "subscriptions", _subscription, count_min=1, count_max=PARTITIONS_PER_REQUEST_MAX
    )
    _check_distinct(subscriptions)
    receive = amount(message.receive_bytes_max, "receive_bytes_max", default=RECEIVE_BYTES, high=RECEIVE_BYTES_MAX)
    response = amount(message.response_bytes_max, "response_bytes_max", default=RESPONSE_BYTES, high=receive)
    return SubscribeQuery(
        subscriptions=subscriptions,
        isolation_level=isolation_level(message.isolation_level),
        offset_reset=enum_value(message.offset_reset, _RESETS, pb.OffsetReset, "offset_reset", OffsetResetPolicy.NONE),
        response_bytes_max=response,
        receive_bytes_max=receive,
        heartbeat_interval_ms=heartbeat_interval_ms(message.heartbeat_interval_ms),
        skip_corrupt=skips_corrupt(message.on_corrupt_batch),
    )


def heartbeat_interval_ms(given: int) -> int:
    """InvalidRequestError."""
    interval_ms = amount(given, "heartbeat_interval_ms", default=HEARTBEAT_INTERVAL_MS, high=INT32_MAX)
    return max(interval_ms, HEARTBEAT_INTERVAL_MS_MIN)


def skips_corrupt(policy: int) -> bool:
    """InvalidRequestError."""
    return enum_value(policy, _SKIPS, pb.CorruptBatchPolicy, "on_corrupt_batch", default=False)


def _subscription(message: pb.SubscribePartitions) -> TopicSubscription:
    partitions = each(
        message.partitions, "partitions", lambda number: partition_id(number, ""), count_max=PARTITIONS_PER_REQUEST_MAX
    )
    return TopicSubscription(
        topic=topic_name(message.topic), partitions=partitions, start=_start(message.start), end=_end(message.end)
    )


def _start(message: pb.StartPosition) -> Position:
    match message.WhichOneof("position"):
        case "bound":
            return enum_value(message.bound, _BOUNDS, common_pb2.OffsetBound, "start.bound")
        case "offset":
            return OffsetPosition(Offset(at_least(message.offset, 0, "start.offset")))
        case "timestamp_ms":
            return TimestampPosition(at_least(message.timestamp_ms, 0, "start.timestamp_ms"))
        case _:
            return OffsetPlace.LATEST


def _end(message: pb.EndPosition) -> Position | None:
    match message.WhichOneof("position"):
        case "bound":
            return enum_value(message.bound, _END_BOUNDS, common_pb2.OffsetBound, "end.bound")
        case "offset":
            return OffsetPosition(Offset(at_least(message.offset, 0, "end.offset")))
        case "timestamp_ms":
            return TimestampPosition(at_least(message.timestamp_ms, 0, "end.timestamp_ms"))
        case _:
            return None


def _check_distinct(subscriptions: tuple[TopicSubscription, ...]) -> None:
    seen: set[tuple[str, int]] = set()
    whole: set[str] = set()  # topics of which all partitions are requested, but those that other entries name
    for index, one in enumerate(subscriptions):
        keys = {(one.topic, partition) for partition in one.partitions}
        clash = bool(seen & keys) if keys else one.topic in whole
        if clash or len(keys) < len(one.partitions):
            raise InvalidRequestError(
                f"the request has a partition of topic {one.topic!r} twice: each may occur once",
                field=f"subscriptions[{index}]",
            )
        seen |= keys
        if not keys:
            whole.add(one.topic)
        check_count(len(seen))


def check_count(count: int) -> None:
    """InvalidRequestError for too many partitions."""
    if count > PARTITIONS_PER_REQUEST_MAX:
        raise InvalidRequestError(
            f"the call reads more than {PARTITIONS_PER_REQUEST_MAX} partitions: use several calls",
            field="subscriptions",
            limit=PARTITIONS_PER_REQUEST_MAX,
        )


_TIMESTAMP_TYPES: Final = {
    TimestampType.CREATE_TIME: common_pb2.TIMESTAMP_TYPE_CREATE_TIME,
    TimestampType.LOG_APPEND_TIME: common_pb2.TIMESTAMP_TYPE_LOG_APPEND_TIME,
}


def received_record(fields: Fields, kind: TimestampType) -> pb.ReceivedRecord:
    offset, timestamp_ms, key, value, headers = fields
    record = pb.ReceivedRecord(
        offset=offset, timestamp_ms=timestamp_ms, key=key, value=value, timestamp_type=_TIMESTAMP_TYPES[kind]
    )
    for name, content in headers:
        # The log may have keys that are not UTF-8; a message cannot.
        record.headers.add(key=name.encode("utf-8", "replace").decode(), value=content)
    return record


def partition_status(
    partition: TopicPartition,
    *,
    leader_epoch: LeaderEpoch,
    position: Offset,
    high_watermark: Offset,
    log_start: Offset,
    readable_end: Offset,
    end_reached: bool = False,
    error: StreamlogError | None = None,
    skipped: Iterable[CorruptBatchError] = (),
) -> pb.PartitionRecords:
    """Without records: a heartbeat."""
    status = pb.PartitionRecords(
        topic=partition.topic,
        partition=partition.partition,
        leader_epoch=leader_epoch,
        position=position,
        high_watermark=high_watermark,
        log_start=log_start,
        lag=max(0, readable_end - position),
        end_reached=end_reached,
    )
    if error is not None:
        status.error.CopyFrom(to_message(error))
    for one in skipped:
        status.skipped_batches.add(offset=one.offset, next_offset=one.next_offset or 0, reason=cut(one.reason))
    return status
