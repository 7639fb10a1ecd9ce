"""What a caller may give for a partition, and for the position at which reading starts."""

from __future__ import annotations

from typing import Final, TypeAlias

from streamlog.client.consumer.offset_finder import AtTime, Bound, Last, OffsetSpec, checked_integer
from streamlog.client.producer.given_records import check_topic
from streamlog.errors import InvalidRequestError
from streamlog.model import INT32_MAX, Offset, PartitionId, TopicPartition

# (topic, partition) does for a TopicPartition.
Partition: TypeAlias = TopicPartition | tuple[str, int]
# An offset, an end, a time, or so many before the end.
Start: TypeAlias = int | Bound | AtTime | Last

EARLIEST: Final = Bound.EARLIEST
LATEST: Final = Bound.LATEST


def as_partition(given: Partition) -> TopicPartition:
    """(topic, partition) as a TopicPartition. InvalidRequestError."""
    try:
        topic, number = (given.topic, given.partition) if isinstance(given, TopicPartition) else given
    except (TypeError, ValueError):
        raise InvalidRequestError(
            f"{given!r} is not a partition: give a TopicPartition or (topic, number)", field="partition"
        ) from None
    check_topic(topic)
    return TopicPartition(topic, PartitionId(checked_integer("partition", number, INT32_MAX)))


def as_start(given: Start | None) -> OffsetSpec | Offset | None:
    """InvalidRequestError."""
    if isinstance(given, int):
        return as_offset(given)
    if given is None or isinstance(given, Bound | AtTime | Last):
        return given
    raise InvalidRequestError(
        f"{given!r} is not a start position: give an offset, EARLIEST, LATEST, AtTime(ms) or Last(count)", field="start"
    )


def as_offset(given: int, field: str = "offset") -> Offset:
    """InvalidRequestError."""
    return Offset(checked_integer(field, given))
