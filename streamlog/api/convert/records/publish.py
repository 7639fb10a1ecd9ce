"""Publish and PublishStream: records of clients that do not encode batches.

A request is validated completely before any of it is written: a refused call has changed nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from streamlog.api.convert.admin.partitions import acks
from streamlog.api.convert.fields import amount, enum_value, inside, topic_name
from streamlog.api.errors import to_message
from streamlog.api.pb import common_pb2
from streamlog.api.pb import records_pb2 as pb
from streamlog.api.requests import PRODUCE_TIMEOUT_MS, PRODUCE_TIMEOUT_MS_MAX
from streamlog.errors import InvalidRequestError, InvalidTopicError, StreamlogError
from streamlog.metadata.topics.internal_topics import INTERNAL_TOPICS
from streamlog.model import NO_OFFSET, Acks, Offset

RECORDS_PER_REQUEST_MAX: Final = 10_000
# Batches of the records, with the rest of the message, must fit the message limit of another node.
_FREE_BYTES: Final = 1 << 20
HEADERS_PER_REQUEST_MAX: Final = 50_000
"""Of all records together. Each is converted and encoded by itself, in some microseconds of the event loop."""
HEADERS_MAX: Final = 1_000
HEADER_KEY_BYTES_MAX: Final = 32_767


class RecordPartitioner(enum.Enum):
    KEY_HASH = 1
    ROUND_ROBIN = 2
    RANDOM = 3
    INTEGER_MODULO = 4


_PARTITIONERS: Final[Mapping[int, RecordPartitioner]] = {
    pb.PARTITIONER_KEY_HASH: RecordPartitioner.KEY_HASH,
    pb.PARTITIONER_ROUND_ROBIN: RecordPartitioner.ROUND_ROBIN,
    pb.PARTITIONER_RANDOM: RecordPartitioner.RANDOM,
    pb.PARTITIONER_INTEGER_MODULO: RecordPartitioner.INTEGER_MODULO,
}
# By Kafka's names for the codecs.
_COMPRESSIONS: Final[Mapping[int, str]] = {
    common_pb2.COMPRESSION_NONE: "none",
    common_pb2.COMPRESSION_GZIP: "gzip",
    common_pb2.COMPRESSION_SNAPPY: "snappy",
    common_pb2.COMPRESSION_LZ4: "lz4",
    common_pb2.COMPRESSION_ZSTD: "zstd",
}
_TOPIC_DEFAULT: Final = ""
_BRIEFLY: Final = "not written, as the first record of the request with this error says"


class PublishOptions(Struct, frozen=True, kw_only=True):
    acks: Acks
    timeout_ms: int  # 1 to PRODUCE_TIMEOUT_MS_MAX
    compression: str  # empty: as the topic says
    partitioner: RecordPartitioner


class NewRecord(Struct, frozen=True):
    """A record to write."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    partition: int | None  # None: the partitioner chooses

    @property
    def size_bytes(self) -> int:
        size = len(self.key or b"") + len(self.value or b"")
        if self.headers:  # most records have none, and summing nothing takes longer than the rest
            size += sum(len(key.encode()) + len(value or b"") for key, value in self.headers)
        return size


def publish_bytes_max(request_bytes_max: int) -> int:
    """Of a request with records, where the node's messages have at most so many bytes (`socket.request.max.bytes`)."""
    return max(request_bytes_max - _FREE_BYTES, request_bytes_max // 2)


def user_topic(name: str) -> str:
    """InvalidTopicError for an invalid name, and for internal topics, which clients must not write."""
    topic_name(name)
    if name in INTERNAL_TOPICS:
        raise InvalidTopicError(f"topic {name!r} is internal: only the cluster writes to it", field="topic")
    return name


def publish_options(message: pb.PublishOptions) -> PublishOptions:
    """InvalidRequestError."""
    with inside("options"):
        return PublishOptions(
            acks=acks(message.acks),
            timeout_ms=amount(
                message.timeout_ms, "timeout_ms", default=PRODUCE_TIMEOUT_MS, high=PRODUCE_TIMEOUT_MS_MAX
            ),
            compression=enum_value(
                message.compression, _COMPRESSIONS, common_pb2.Compression, "compression", _TOPIC_DEFAULT
            ),
            partitioner=enum_value(
                message.partitioner, _PARTITIONERS, pb.Partitioner, "partitioner", RecordPartitioner.KEY_HASH
            ),
        )


def check_record_count(messages: Sequence[pb.PublishRecord]) -> None:
    """InvalidRequestError."""
    if not 1 <= len(messages) <= RECORDS_PER_REQUEST_MAX:
        raise InvalidRequestError(
            f"the request has {len(messages)} records, but 1 to {RECORDS_PER_REQUEST_MAX} are allowed",
            field="records",
            limit=RECORDS_PER_REQUEST_MAX,
        )
    headers = sum(len(message.headers) for message in messages)
    if headers > HEADERS_PER_REQUEST_MAX:
        raise InvalidRequestError(too_many_headers(f"{headers}"), field="records", limit=HEADERS_PER_REQUEST_MAX)


def too_many_headers(count: str) -> str:
    return (
        f"the records of the request have {count} headers, but at most {HEADERS_PER_REQUEST_MAX} in all are allowed:"
        " send fewer records at a time"
    )


def new_record(message: pb.PublishRecord, index: int, now_ms: int) -> NewRecord:
    """InvalidRequestError. `now_ms`: for records without a timestamp."""
    timestamp_ms = message.timestamp_ms if message.HasField("timestamp_ms") else now_ms
    partition = message.partition if message.HasField("partition") else None
    if timestamp_ms < 0:
        raise _refused(index, "timestamp_ms", f"timestamp_ms is {timestamp_ms}, but must not be negative", 0)
    if partition is not None and partition < 0:
        raise _refused(index, "partition", f"partition is {partition}, but must not be negative", 0)
    return NewRecord(
        message.key if message.HasField("key") else None,
        message.value if message.HasField("value") else None,
        _headers(message, index) if message.headers else (),
        timestamp_ms,
        partition,
    )


def _headers(message: pb.PublishRecord, index: int) -> tuple[tuple[str, bytes | None], ...]:
    count = len(message.headers)
    if count > HEADERS_MAX:
        raise _refused(index, "headers", f"it has {count} headers, but at most {HEADERS_MAX} are allowed", HEADERS_MAX)
    headers = tuple((header.key, header.value if header.HasField("value") else None) for header in message.headers)
    if max(len(key.encode()) for key, _ in headers) > HEADER_KEY_BYTES_MAX:
        reason = f"the key of a header has more than {HEADER_KEY_BYTES_MAX} bytes"
        raise _refused(index, "headers", reason, HEADER_KEY_BYTES_MAX)
    return headers


def _refused(index: int, field: str, reason: str, limit: int) -> InvalidRequestError:
    return InvalidRequestError(f"record {index}: {reason}", field=f"records[{index}].{field}", limit=limit)


def published(partition: int, offset: Offset, timestamp_ms: int) -> pb.PublishResult:
    return pb.PublishResult(partition=partition, offset=offset, timestamp_ms=timestamp_ms)


def not_published(partition: int, timestamp_ms: int, error: StreamlogError, *, briefly: bool) -> pb.PublishResult:
    """`briefly`: a previous record of the request has the whole error, which together would exceed a message."""
    message = to_message(error)
    if briefly:
        message = common_pb2.StreamlogError(code=message.code, message=_BRIEFLY, retriable=message.retriable)
    return pb.PublishResult(partition=partition, offset=NO_OFFSET, timestamp_ms=timestamp_ms, error=message)


def none_published(messages: Sequence[pb.PublishRecord], error: StreamlogError) -> list[pb.PublishResult]:
    """The results of a refused request."""
    return [
        not_published(record.partition, record.timestamp_ms, error, briefly=place > 0)
        for place, record in enumerate(messages)
    ]


def check_in_stream(message: pb.PublishStreamRequest, *, is_first: bool, is_transactional: bool) -> None:
    """Fields that only the first request of a stream, or only a transactional stream, may have. InvalidRequestError."""
    if message.producer_token and not is_first:
        raise InvalidRequestError(
            "producer_token is allowed in the first request of a stream only", field="producer_token"
        )
    if message.HasField("transactional") and not is_first:
        raise InvalidRequestError(
            "transactional is allowed in the first request of a stream only", field="transactional"
        )
    if not is_transactional and (message.offsets or message.end):
        raise InvalidRequestError(
            "this stream is not transactional: set transactional in its first request",
            field="offsets" if message.offsets else "end",
        )
