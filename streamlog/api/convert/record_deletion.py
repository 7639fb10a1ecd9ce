"""Deletion of records by offset: requests and responses, of clients and between nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamlog.api.convert.fields import TOPIC_ID_BYTES, at_least, distinct, each, partition_id, topic_name
from streamlog.api.errors import to_message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.pb import replication_pb2
from streamlog.errors import InvalidRequestError, StreamlogError
from streamlog.metadata.decision import BATCH_RECORDS
from streamlog.model import INT64_MAX, NO_OFFSET, Offset, PartitionId, TopicId, TopicPartition

_HIGH_WATERMARK: Final = -1


def deletions(message: pb.DeleteRecordsRequest) -> dict[TopicPartition, Offset | None]:
    """Before which offset, in the order of the request; None: the high watermark. InvalidRequestError,
    InvalidTopicError.
    """
    rows = each(message.partitions, "partitions", _deletion, count_min=1, count_max=BATCH_RECORDS)
    distinct([at for at, _ in rows], "partitions")
    return dict(rows)


def _deletion(row: pb.RecordDeletion) -> tuple[TopicPartition, Offset | None]:
    at = TopicPartition(topic_name(row.topic), partition_id(row.partition))
    before = at_least(row.before_offset, _HIGH_WATERMARK, "before_offset")
    return at, None if before == _HIGH_WATERMARK else Offset(before)


def request(wanted: Mapping[TopicPartition, Offset | None]) -> pb.DeleteRecordsRequest:
    return pb.DeleteRecordsRequest(
        partitions=[
            pb.RecordDeletion(
                topic=at.topic, partition=at.partition, before_offset=_HIGH_WATERMARK if before is None else before
            )
            for at, before in wanted.items()
        ]
    )


def result(at: TopicPartition, log_start: Offset) -> pb.DeleteRecordsResult:
    return pb.DeleteRecordsResult(topic=at.topic, partition=at.partition, log_start=log_start)


def refused(at: TopicPartition, error: StreamlogError) -> pb.DeleteRecordsResult:
    return pb.DeleteRecordsResult(topic=at.topic, partition=at.partition, log_start=NO_OFFSET, error=to_message(error))


def log_start(message: replication_pb2.ConfirmLogStartRequest) -> tuple[TopicId, PartitionId, Offset]:
    """InvalidRequestError."""
    if len(message.topic_id) != TOPIC_ID_BYTES:
        raise InvalidRequestError(f"a topic id has {TOPIC_ID_BYTES} bytes", field="topic_id", limit=TOPIC_ID_BYTES)
    if message.log_start > INT64_MAX:
        raise InvalidRequestError(
            f"log_start is {message.log_start}, but must be at most {INT64_MAX}", field="log_start", limit=INT64_MAX
        )
    return TopicId(message.topic_id), PartitionId(message.partition), Offset(message.log_start)
