"""One partition of a Subscribe call: where it is read from, how far, and the status that the client gets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from streamlog.api.convert.records import subscribe as convert
from streamlog.api.convert.records.subscribe import OffsetPosition, Position, TimestampPosition, TopicSubscription
from streamlog.api.fetched import Fetched
from streamlog.api.pb import batches_pb2, common_pb2
from streamlog.api.pb import records_pb2 as pb
from streamlog.api.requests import OffsetPlace
from streamlog.client.consumer.aborted import AbortedTransactions
from streamlog.errors import CorruptBatchError, StreamlogError, UnknownTopicIdError
from streamlog.model import NO_BROKER, NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicId, TopicPartition
from streamlog.records.decode import Fields

# Upper bounds of what a message needs beside the bytes of records: per record, per header, per partition.
_RECORD_OVERHEAD: Final = 48
_HEADER_OVERHEAD: Final = 16
STATUS_OVERHEAD: Final = 128
RECORDS_A_TURN: Final = 1_000
"""Of one call in a turn of the event loop: records are made one by one, some 4 us each."""


class SubscribedPartition:
    """One partition of the call."""

    def __init__(self, topic_partition: TopicPartition, topic_id: TopicId, subscription: TopicSubscription) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.start: Position = subscription.start  # used while `position` is None
        self.end: Position | None = subscription.end
        self.position: Offset | None = None
        self.attempt = 0  # to find leader and offsets, since records last arrived
        self.generation = 0  # counts the feeds that it was added to; responses for an older one are ignored
        self.leader = NO_BROKER  # whose feed it is on; NO_BROKER: on none
        self.is_done = False
        self.is_reported = False  # in a message since the last heartbeat
        self.leader_epoch = NO_LEADER_EPOCH
        self.high_watermark = Offset(0)
        self.readable_end = Offset(0)
        self.log_start = Offset(0)
        self.sent_generation = 0  # of the records that were sent last
        self.aborted = AbortedTransactions()  # transactions of that generation; for READ_COMMITTED

    @property
    def end_reached(self) -> bool:
        return isinstance(self.end, OffsetPosition) and self.position is not None and self.position >= self.end.offset

    def status(
        self, error: StreamlogError | None = None, *, skipped: Iterable[CorruptBatchError] = ()
    ) -> pb.PartitionRecords:
        self.is_reported = True
        return convert.partition_status(
            self.topic_partition,
            leader_epoch=LeaderEpoch(max(0, self.leader_epoch)),
            position=self.position or Offset(0),
            high_watermark=self.high_watermark,
            log_start=self.log_start,
            readable_end=self.readable_end,
            end_reached=self.end_reached and error is None,
            error=error,
            skipped=skipped,
        )


class PartitionUpdates:
    """What a feed delivered, or an error, by partition. `sent` is set once the transport has taken all of it."""

    __slots__ = ("sent", "updates")

    def __init__(self, updates: list[tuple[SubscribedPartition, Fetched | StreamlogError]]) -> None:
        self.updates = updates
        self.sent = asyncio.Event()


def topic_deleted(partition: SubscribedPartition) -> UnknownTopicIdError:
    return UnknownTopicIdError(f"topic {partition.topic_partition.topic} was deleted", field="topic")


def record_size(record: Fields) -> int:
    """Upper bound of its bytes in a message."""
    _, _, key, value, headers = record
    size = len(key or b"") + len(value or b"") + _RECORD_OVERHEAD
    for name, content in headers:
        size += len(name) * 3 + len(content or b"") + _HEADER_OVERHEAD
    return size


def add_offset_query(
    request: batches_pb2.ListOffsetsRequest, partition: SubscribedPartition, position: Position
) -> None:
    query = request.queries.add(
        topic=partition.topic_partition.topic,
        topic_id=partition.topic_id,
        partition=partition.topic_partition.partition,
    )
    match position:
        case TimestampPosition(timestamp_ms):
            query.timestamp_ms = timestamp_ms
        case OffsetPlace.EARLIEST:
            query.bound = common_pb2.OFFSET_BOUND_EARLIEST
        case _:
            query.bound = common_pb2.OFFSET_BOUND_LATEST
