"""The topics of a request: Metadata, WatchMetadata, DescribeTopics."""

from __future__ import annotations

from collections.abc import Sequence

from streamlog.api.convert.fields import distinct, each, topic_id, topic_name
from streamlog.api.pb import admin_pb2
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.requests import PARTITIONS_PER_REQUEST_MAX, MetadataQuery
from streamlog.errors import InvalidRequestError
from streamlog.metadata.decision import BATCH_RECORDS
from streamlog.model import TopicId


def metadata_query(message: pb.MetadataRequest) -> MetadataQuery:
    """InvalidRequestError, InvalidTopicError."""
    query = _query(message.topics, message.topic_ids, PARTITIONS_PER_REQUEST_MAX, all_topics=message.all_topics)
    if query.all_topics and (query.topics or query.topic_ids):
        raise InvalidRequestError("all_topics excludes topics and topic_ids: leave those empty", field="all_topics")
    return query


def watched_topics(message: pb.WatchMetadataRequest) -> MetadataQuery:
    """InvalidRequestError, InvalidTopicError. No topic named: all of them."""
    return _query(message.topics, (), PARTITIONS_PER_REQUEST_MAX, all_topics=not message.topics)


def described_topics(message: admin_pb2.DescribeTopicsRequest) -> MetadataQuery:
    """InvalidRequestError, InvalidTopicError. No topic named: all of them."""
    nothing = not (message.topics or message.topic_ids)
    return _query(message.topics, message.topic_ids, BATCH_RECORDS, all_topics=nothing)


def _query(names: Sequence[str], ids: Sequence[bytes], count_max: int, *, all_topics: bool) -> MetadataQuery:
    topics = each(names, "topics", lambda name: topic_name(name, ""), count_max=count_max)
    topic_ids: tuple[TopicId, ...] = each(
        ids, "topic_ids", lambda data: topic_id(data, ""), count_max=count_max - len(topics)
    )
    distinct(topics, "topics")
    distinct([data.hex() for data in topic_ids], "topic_ids")
    return MetadataQuery(topics=topics, topic_ids=topic_ids, all_topics=all_topics)
