"""Topic deletion, by name or by id. One record removes a topic; the nodes then delete its logs."""

from __future__ import annotations

from msgspec import Struct

from streamlog.errors import InvalidTopicError, StreamlogError, TopicDeletionDisabledError
from streamlog.metadata.decision import ControllerContext, MetadataDecision, Then
from streamlog.metadata.image.image import MetadataImage, Topic
from streamlog.metadata.records import RemoveTopicRecord
from streamlog.metadata.topics.internal_topics import INTERNAL_TOPICS
from streamlog.model import TopicId


class DeleteTopics(Struct, frozen=True, kw_only=True):
    names: tuple[str, ...] = ()
    topic_ids: tuple[TopicId, ...] = ()


class DeletionResult(Struct, frozen=True, kw_only=True):
    name: str | None
    topic_id: TopicId | None
    error: StreamlogError | None = None


def delete_topics(
    command: DeleteTopics, image: MetadataImage, context: ControllerContext
) -> MetadataDecision[tuple[DeletionResult, ...]]:
    """TopicDeletionDisabledError for the whole request; in each result UnknownTopicOrPartitionError,
    UnknownTopicIdError, InvalidTopicError. Results are in the order names, ids.
    """
    if not context.settings.delete_topic_enable:
        raise TopicDeletionDisabledError(
            "topic deletion is disabled in this cluster (delete.topic.enable=false)", field="delete.topic.enable"
        )
    results = []
    removals: dict[TopicId, RemoveTopicRecord] = {}  # a topic may be named twice but is removed once
    everything: list[str | TopicId] = [*command.names, *command.topic_ids]
    for asked in everything:
        try:
            topic = image.require_topic(asked) if isinstance(asked, str) else image.require_topic_id(asked)
            _check_deletable(topic)
        except StreamlogError as error:
            name, topic_id = (asked, None) if isinstance(asked, str) else (None, asked)
            results.append(DeletionResult(name=name, topic_id=topic_id, error=error))
            continue
        removals[topic.topic_id] = RemoveTopicRecord(topic_id=topic.topic_id)
        results.append(DeletionResult(name=topic.name, topic_id=topic.topic_id))
    # A deleted partition that was moving off a drained node lets another one start.
    then = Then.SETTLE if removals else Then.NOTHING
    return MetadataDecision(response=tuple(results), records=tuple(removals.values()), then=then)


def _check_deletable(topic: Topic) -> None:
    if topic.name in INTERNAL_TOPICS:
        raise InvalidTopicError(f"topic {topic.name!r} is internal: it cannot be deleted", field="name")
