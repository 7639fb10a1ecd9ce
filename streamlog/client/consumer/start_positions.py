"""What a caller may give for a partition, and for the position at which reading starts."""

from __future__ import annotations

from typing import Final, TypeAlias

from streamlog.client.consumer.offset_finder import AtTime, Bound, Last, OffsetSpec
from streamlog.errors import InvalidRequestError
from streamlog.model import Offset, PartitionId, TopicPartition

# (topic, partition) does for a TopicPartition.
Partition: TypeAlias = TopicPartition | tuple[str, int]
# An offset, an end, a time, or so many before the end.
Start: TypeAlias = int | Bound | AtTime | Last

EARLIEST: Final = Bound.EARLIEST
LATEST: Final = Bound.LATEST


def as_partition(given: Partition) -> TopicPartition:
    """(topic, partition) as a TopicPartition."""
    if isinstance(given, TopicPartition):
        return given
    topic, number = given
    return TopicPartition(topic, PartitionId(number))


def as_start(given: Start | None) -> OffsetSpec | Offset | None:
    """InvalidRequestError."""
    if isinstance(given, int):
        return as_offset(given)
    if given is None or isinstance(given, Bound | AtTime | Last):
        return given
    raise InvalidRequestError(
        f"{given!r} is not a start position: give an offset, EARLIEST, LATEST, AtTime(ms) or Last(count)", field="start"
    )


def as_offset(given: int) -> Offset:
    """InvalidRequestError."""
    if given < 0:
        raise InvalidRequestError(f"offset {given} is negative: offsets count from 0", field="offset", limit=0)
    return Offset(given)
