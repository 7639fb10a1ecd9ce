"""How many partitions a request creates or deletes: what it uses of controller_mutation_rate (KIP-599).

Counted before the request is handled, or many at the same time would all be below the limit. What the controller then
refuses is given back: it counts what was asked for, a mistaken number of partitions too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from streamlog.api.calls import Message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.service import REQUEST_BYTES_MAX, parse
from streamlog.errors import StreamlogError
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.topics.creation import PARTITIONS_PER_REQUEST_MAX
from streamlog.model import TopicId

_ADMIN: Final = "/streamlog.v1.Admin/"


def mutations_of(method: str, data: bytes, image: MetadataImage, default_partitions: int) -> list[int]:
    """Of each topic, in the order of the response's results. Of a request that cannot be parsed, none: it is refused
    where it is handled. `default_partitions`: num.partitions.
    """
    request_type, _, count = _METHODS[method]
    try:
        request = parse(request_type, data, REQUEST_BYTES_MAX)
    except StreamlogError:
        return []
    return [] if getattr(request, "validate_only", False) else list(count(request, image, default_partitions))


def refused_of(method: str, counts: Sequence[int], response: bytes) -> int:
    """How many of these were not carried out."""
    _, response_type, _ = _METHODS[method]
    results = response_type.FromString(response).results
    return sum(count for count, result in zip(counts, results, strict=False) if result.HasField("error"))


def _created(request: pb.CreateTopicsRequest, image: MetadataImage, default: int) -> Iterator[int]:
    for topic in request.topics:
        count = topic.partitions if topic.HasField("partitions") else len(topic.assignments) or default
        yield _within_bounds(count) if image.topic_named(topic.name) is None else 0


def _deleted(request: pb.DeleteTopicsRequest, image: MetadataImage, _: int) -> Iterator[int]:
    found = [image.topic_named(name) for name in request.topics]
    found += [image.topics.get(TopicId(topic_id)) for topic_id in request.topic_ids]
    for topic in found:
        yield 0 if topic is None else len(topic.partitions)


def _grown(request: pb.CreatePartitionsRequest, image: MetadataImage, _: int) -> Iterator[int]:
    for growth in request.topics:
        topic = image.topic_named(growth.topic)
        yield 0 if topic is None else _within_bounds(growth.partition_count - len(topic.partitions))


def _within_bounds(count: int) -> int:
    return max(0, min(count, PARTITIONS_PER_REQUEST_MAX))


_METHODS: Final[Mapping[str, tuple[type[Message], Any, Callable[..., Iterator[int]]]]] = {
    _ADMIN + "CreateTopics": (pb.CreateTopicsRequest, pb.CreateTopicsResponse, _created),
    _ADMIN + "DeleteTopics": (pb.DeleteTopicsRequest, pb.DeleteTopicsResponse, _deleted),
    _ADMIN + "CreatePartitions": (pb.CreatePartitionsRequest, pb.CreatePartitionsResponse, _grown),
}
METHODS: Final = frozenset(_METHODS)
