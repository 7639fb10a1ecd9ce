"""Topics as requests name them: looked up in the image, or an error that says what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from streamlog.api.requests import MetadataQuery, PartitionRef
from streamlog.errors import StreamlogError, UnknownTopicIdError, UnknownTopicOrPartitionError
from streamlog.metadata.image.image import MetadataImage, Topic, require_partition
from streamlog.services.common.paging import TopicEntry, TopicNames


def unknown_topic(name: str) -> UnknownTopicOrPartitionError:
    return UnknownTopicOrPartitionError(
        f"topic {name!r} does not exist; create it with: streamlogctl topic create {name} --partitions 3, "
        "or list the topics with: streamlogctl topic list",
        field="topic",
        topic=name,
    )


def find_topic(image: MetadataImage, ref: PartitionRef) -> Topic:
    """By name, by id, or by both. UnknownTopicOrPartitionError, UnknownTopicIdError."""
    if ref.topic_id is None:
        topic = image.topic_named(ref.topic)
        if topic is None:
            raise unknown_topic(ref.topic)
        return topic
    topic = image.require_topic_id(ref.topic_id)
    if ref.topic and ref.topic != topic.name:
        raise UnknownTopicIdError(
            f"topic_id is the id of topic {topic.name!r}, not of {ref.topic!r}, which may have been deleted and "
            "created again: refresh the metadata",
            field="topic_id",
        )
    return topic


def explained(error: StreamlogError, image: MetadataImage, ref: PartitionRef) -> StreamlogError:
    """The error of a partition that this node does not serve, more precise if the topic or partition does not exist."""
    if not isinstance(error, UnknownTopicOrPartitionError | UnknownTopicIdError):
        return error
    try:
        require_partition(find_topic(image, ref), ref.partition)
    except (UnknownTopicOrPartitionError, UnknownTopicIdError) as better:
        return better
    return error


def all_entries(image: MetadataImage, names: TopicNames) -> Iterator[TopicEntry]:
    """By rising name."""
    for name, topic_id in names.of(image):
        yield TopicEntry(name, topic_id, image.topics[topic_id])


def entries_of(
    image: MetadataImage, query: MetadataQuery, *, missing: Callable[[str], StreamlogError] = unknown_topic
) -> list[TopicEntry]:
    """The topics that the query names, each once, by rising name and id; an error for those that do not exist."""
    found = [_named(image, name, missing) for name in query.topics]
    known = {entry.topic_id for entry in found}
    for topic_id in query.topic_ids:
        topic = image.topics.get(topic_id)
        if topic is not None and topic_id not in known:
            found.append(TopicEntry(topic.name, topic_id, topic))
        elif topic is None:
            error = UnknownTopicIdError(
                f"no topic has the id {topic_id.hex()}; it may have been deleted", field="topic_id"
            )
            found.append(TopicEntry("", topic_id, error=error))
    return sorted(found, key=lambda entry: (entry.name, entry.topic_id))


def _named(image: MetadataImage, name: str, missing: Callable[[str], StreamlogError]) -> TopicEntry:
    topic = image.topic_named(name)
    return TopicEntry(name, b"", error=missing(name)) if topic is None else TopicEntry(name, topic.topic_id, topic)
