"""How many partitions a request creates or deletes: what it uses of controller_mutation_rate (KIP-599)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from streamlog.api.calls import Message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.service import REQUEST_BYTES_MAX, parse
from streamlog.errors import StreamlogError
from streamlog.metadata.image.image import MetadataImage
from streamlog.model import TopicId

_ADMIN: Final = "/streamlog.v1.Admin/"


def mutations_of(method: str, data: bytes, image: MetadataImage, default_partitions: int) -> int:
    """Of one that cannot be parsed, 0: it is refused where it is handled. `default_partitions`: num.partitions."""
    request_type, count = _COUNTS[method]
    try:
        request = parse(request_type, data, REQUEST_BYTES_MAX)
    except StreamlogError:
        return 0
    return count(request, image, default_partitions)


def _created(request: pb.CreateTopicsRequest, image: MetadataImage, default: int) -> int:
    if request.validate_only:
        return 0
    return sum(
        max(0, topic.partitions) if topic.HasField("partitions") else len(topic.assignments) or default
        for topic in request.topics
        if image.topic_named(topic.name) is None
    )


def _deleted(request: pb.DeleteTopicsRequest, image: MetadataImage, _: int) -> int:
    found = [image.topic_named(name) for name in request.topics]
    found += [image.topics.get(TopicId(topic_id)) for topic_id in request.topic_ids]
    return sum(len(topic.partitions) for topic in found if topic is not None)


def _grown(request: pb.CreatePartitionsRequest, image: MetadataImage, _: int) -> int:
    if request.validate_only:
        return 0
    count = 0
    for growth in request.topics:
        topic = image.topic_named(growth.topic)
        if topic is not None:
            count += max(0, growth.partition_count - len(topic.partitions))
    return count


_COUNTS: Final[Mapping[str, tuple[type[Message], Callable[..., int]]]] = {
    _ADMIN + "CreateTopics": (pb.CreateTopicsRequest, _created),
    _ADMIN + "DeleteTopics": (pb.DeleteTopicsRequest, _deleted),
    _ADMIN + "CreatePartitions": (pb.CreatePartitionsRequest, _grown),
}
METHODS: Final = frozenset(_COUNTS)
