"""Offsets of a stream as values, and as the JSON that Spark keeps in its checkpoint. Pure.

    {"orders": {"0": 23, "1": 7}}                                 partition -> the next offset to be read
    {"@begin": {"orders": {"0": 20}}, "orders": {"0": 23, ...}}   an end offset: also the start of partitions that the
                                                                  start offset lacks

Spark compares offsets as text, so keys are sorted. Topic names cannot contain "@".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from streamlog.model import Offset, PartitionId, TopicPartition
from streamlog.spark.failures import StreamlogSparkError

Offsets: TypeAlias = Mapping[TopicPartition, Offset]

_BEGIN: Final = "@begin"


def to_json(offsets: Offsets, begin: Offsets | None = None) -> dict[str, Any]:
    """`begin`: start offsets of partitions that the range's start lacks."""
    found: dict[str, Any] = {}
    if begin:
        found[_BEGIN] = to_json(begin)
    for partition in sorted(offsets):
        # Partitions in the order of their numbers, as texts for JSON.
        found.setdefault(partition.topic, {})[str(partition.partition)] = int(offsets[partition])
    return found


def from_json(found: Mapping[str, Any]) -> dict[TopicPartition, Offset]:
    """The offsets, without the begins of an end. StreamlogSparkError for a checkpoint of another source."""
    return _parsed({topic: partitions for topic, partitions in found.items() if topic != _BEGIN})


def begin_of(end: Mapping[str, Any]) -> dict[TopicPartition, Offset]:
    """The start offsets of partitions that the range's start lacks."""
    return _parsed(end.get(_BEGIN, {}))


def _parsed(found: Mapping[str, Any]) -> dict[TopicPartition, Offset]:
    try:
        return {
            TopicPartition(topic, PartitionId(int(partition))): Offset(int(offset))
            for topic, partitions in found.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise StreamlogSparkError(f"the checkpoint has offsets of another source: {dict(found)!r:.200}") from None
