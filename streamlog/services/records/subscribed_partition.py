"""One partition of a Subscribe: where it is read from, how far, and what its news say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from streamlog.api.convert import subscribe as convert
from streamlog.api.convert.subscribe import OffsetPosition, Position, TimestampPosition, TopicSubscription
from streamlog.api.pb import batches_pb2, common_pb2
from streamlog.api.pb import records_pb2 as pb
from streamlog.api.requests import OffsetPlace
from streamlog.client.consumer.aborted import Aborted
from streamlog.errors import CorruptBatchError, StreamlogError, UnknownTopicIdError
from streamlog.model import NO_BROKER, NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicId, TopicPartition
from streamlog.records.decode import Fields

# What a record takes in a message beside its bytes, at most; and what news of a partition do.
_RECORD_OVERHEAD: Final = 48
_HEADER_OVERHEAD: Final = 16
NEWS_OVERHEAD: Final = 128


class SubscribedPartition:
    """One partition of the call."""

    def __init__(self, partition: TopicPartition, topic_id: TopicId, subscription: TopicSubscription) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.start: Position = subscription.start  # as long as `position` is None
        self.end: Position | None = subscription.end
        self.position: Offset | None = None
        self.attempt = 0  # to place it, since it was last read
        self.generation = 0  # counts the places that it had: what comes of an older one is passed over
        self.leader = NO_BROKER  # whose feed it is on; NO_BROKER: on none
        self.is_done = False
        self.was_told = False  # since the last heartbeat
        self.leader_epoch = NO_LEADER_EPOCH
        self.high_watermark = Offset(0)
        self.readable_end = Offset(0)
        self.log_start = Offset(0)
        self.told_generation = 0  # of what the client was told last
        self.aborted = Aborted()  # for readers of committed records; of that generation

    @property
    def end_reached(self) -> bool:
        return isinstance(self.end, OffsetPosition) and self.position is not None and self.position >= self.end.offset

    def news(
        self, error: StreamlogError | None = None, *, skipped: Iterable[CorruptBatchError] = ()
    ) -> pb.PartitionRecords:
        self.was_told = True
        return convert.partition_news(
            self.partition,
            leader_epoch=LeaderEpoch(max(0, self.leader_epoch)),
            position=self.position or Offset(0),
            high_watermark=self.high_watermark,
            log_start=self.log_start,
            readable_end=self.readable_end,
            end_reached=self.end_reached,
            error=error,
            skipped=skipped,
        )


def deleted(place: SubscribedPartition) -> UnknownTopicIdError:
    return UnknownTopicIdError(f"topic {place.partition.topic} was deleted", field="topic")


def size_of(record: Fields) -> int:
    _, _, key, value, headers = record
    size = len(key or b"") + len(value or b"") + _RECORD_OVERHEAD
    for name, content in headers:
        size += len(name) * 3 + len(content or b"") + _HEADER_OVERHEAD
    return size


def add_query(request: batches_pb2.ListOffsetsRequest, place: SubscribedPartition, position: Position) -> None:
    query = request.queries.add(
        topic=place.partition.topic, topic_id=place.topic_id, partition=place.partition.partition
    )
    match position:
        case TimestampPosition(timestamp_ms):
            query.timestamp_ms = timestamp_ms
        case OffsetPlace.EARLIEST:
            query.bound = common_pb2.OFFSET_BOUND_EARLIEST
        case _:
            query.bound = common_pb2.OFFSET_BOUND_LATEST
