"""Consume: the requests of a client, to join and later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from streamlog.api.convert import groups
from streamlog.api.convert.admin.partitions import isolation_level
from streamlog.api.convert.fields import amount, at_least, each, enum_value, inside, partition_id, text, topic_name
from streamlog.api.convert.records.subscribe import heartbeat_interval_ms, skips_corrupt
from streamlog.api.pb import common_pb2
from streamlog.api.pb import records_pb2 as pb
from streamlog.api.requests import RESPONSE_BYTES
from streamlog.errors import InvalidRequestError, UnsupportedAssignorError
from streamlog.groups.assignors import ASSIGNORS
from streamlog.model import INT32_MAX, IsolationLevel, Offset, TopicPartition

CREDITS_MAX: Final = 1_000_000
RESPONSE_BYTES_MAX: Final = 3 << 20
"""Below gRPC's default message limit."""

_RESETS: Final[Mapping[int, str]] = {
    pb.OFFSET_RESET_NONE: "none",
    pb.OFFSET_RESET_EARLIEST: "earliest",
    pb.OFFSET_RESET_LATEST: "latest",
}
_BY_CREDIT: Final[Mapping[int, bool]] = {pb.CONSUME_MODE_EXPLICIT: False, pb.CONSUME_MODE_BY_CREDIT: True}

_FAIL_UNKNOWN: Final[Mapping[int, bool]] = {
    pb.UNKNOWN_TOPIC_POLICY_WAIT: False,
    pb.UNKNOWN_TOPIC_POLICY_FAIL: True,
}


class ConsumeJoin(Struct, frozen=True, kw_only=True):
    group: str
    topics: tuple[str, ...]
    pattern: str
    instance_id: str  # empty: none
    offset_reset: str  # as auto.offset.reset
    by_credit: bool
    isolation_level: IsolationLevel
    processing_timeout_ms: int
    session_timeout_ms: int  # 0: the nodes' default
    assignor: str
    rack: str
    client_id: str
    response_bytes_max: int
    heartbeat_interval_ms: int
    fail_unknown: bool  # topics
    skip_corrupt: bool  # batches that cannot be decoded


class ConsumeUp(Struct, frozen=True, kw_only=True):
    """A request of a client, without its join."""

    credits: int
    acknowledged: tuple[tuple[TopicPartition, Offset], ...]  # offset of the last processed record
    released: tuple[TopicPartition, ...]


def join(message: pb.ConsumeRequest) -> ConsumeJoin:
    """InvalidRequestError, InvalidGroupIdError, InvalidTopicError."""
    if not message.HasField("join"):
        raise InvalidRequestError("join is required in the first request of a stream", field="join")
    with inside("join"):
        return _join(message.join)


def _join(wanted: pb.ConsumeJoin) -> ConsumeJoin:
    topics = each(wanted.topics, "topics", lambda name: topic_name(name, ""), count_max=groups.TOPICS_MAX)
    if not topics and not wanted.pattern:
        raise InvalidRequestError("a join needs topics, a pattern, or both", field="topics")
    return ConsumeJoin(
        group=groups.group_id(wanted.group),
        topics=topics,
        pattern=text(wanted.pattern, "pattern", length_max=groups.PATTERN_LENGTH_MAX),
        instance_id=text(wanted.instance_id, "instance_id", length_max=groups.INSTANCE_ID_LENGTH_MAX),
        offset_reset=enum_value(wanted.offset_reset, _RESETS, pb.OffsetReset, "offset_reset", "latest"),
        by_credit=enum_value(wanted.mode, _BY_CREDIT, pb.ConsumeMode, "mode", default=False),
        isolation_level=isolation_level(wanted.isolation_level),
        processing_timeout_ms=amount(
            wanted.processing_timeout_ms,
            "processing_timeout_ms",
            default=groups.REBALANCE_TIMEOUT_MS,
            high=INT32_MAX,
        ),
        session_timeout_ms=at_least(wanted.session_timeout_ms, 0, "session_timeout_ms"),
        assignor=_assignor(wanted.assignor),
        rack=text(wanted.rack, "rack", length_max=groups.RACK_LENGTH_MAX),
        client_id=text(wanted.client_id, "client_id", length_max=groups.CLIENT_ID_LENGTH_MAX),
        response_bytes_max=amount(
            wanted.response_bytes_max, "response_bytes_max", default=RESPONSE_BYTES, high=RESPONSE_BYTES_MAX
        ),
        skip_corrupt=skips_corrupt(wanted.on_corrupt_batch),
        heartbeat_interval_ms=heartbeat_interval_ms(wanted.heartbeat_interval_ms),
        fail_unknown=enum_value(
            wanted.on_unknown_topic, _FAIL_UNKNOWN, pb.UnknownTopicPolicy, "on_unknown_topic", default=False
        ),
    )


def _assignor(name: str) -> str:
    """Of this release; the coordinator knows which of them the cluster allows."""
    if name and name not in ASSIGNORS:
        known = ", ".join(ASSIGNORS)
        shown = text(name, "assignor", length_max=groups.ASSIGNOR_LENGTH_MAX)
        raise UnsupportedAssignorError(
            f"unknown assignor {shown!r}; use one of {known}, or none for the nodes' default",
            field="assignor",
            limit=known,
        )
    return name


def up(message: pb.ConsumeRequest, *, by_credit: bool, first: bool) -> ConsumeUp:
    """InvalidRequestError, InvalidTopicError."""
    if not first and message.HasField("join"):
        raise InvalidRequestError(
            "join is allowed in the first request of a stream only: open another stream for another member",
            field="join",
        )
    if at_least(message.credits, 0, "credits") > CREDITS_MAX:
        raise InvalidRequestError(
            f"credits is {message.credits}, but must be at most {CREDITS_MAX}", field="credits", limit=CREDITS_MAX
        )
    if by_credit and message.acknowledgements:
        raise InvalidRequestError(
            "acknowledgements are not allowed with CONSUME_MODE_BY_CREDIT", field="acknowledgements"
        )
    limit = groups.PARTITIONS_MAX
    return ConsumeUp(
        credits=message.credits,
        acknowledged=each(message.acknowledgements, "acknowledgements", _acknowledged, count_max=limit),
        released=each(message.released, "released", _partition, count_max=limit),
    )


def _acknowledged(message: pb.ConsumeAcknowledgement) -> tuple[TopicPartition, Offset]:
    partition = TopicPartition(topic_name(message.topic), partition_id(message.partition))
    return partition, Offset(at_least(message.offset, 0, "offset"))


def _partition(message: common_pb2.TopicPartition) -> TopicPartition:
    return TopicPartition(topic_name(message.topic), partition_id(message.partition))
