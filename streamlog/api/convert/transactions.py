"""Transactions, both ways: for clients, and between nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from typing import Final

from streamlog.api.convert.fields import (
    at_least,
    distinct,
    each,
    partition_id,
    producer_epoch,
    together,
    topic_name,
    without_controls,
)
from streamlog.api.convert.groups import PARTITIONS_MAX, committed, committer, group_id, to_commit
from streamlog.api.errors import from_message, to_message
from streamlog.api.pb import common_pb2
from streamlog.api.pb import coordination_pb2 as internal_pb
from streamlog.api.pb import transactions_pb2 as pb
from streamlog.api.requests import TRANSACTIONAL_ID_LENGTH_MAX
from streamlog.errors import InvalidRequestError, StreamlogError
from streamlog.groups.committing import CommitOffsets
from streamlog.model import ProducerId, TopicPartition
from streamlog.records import EndTransactionMarker
from streamlog.transactions.lifecycle import AddPartitions, Ended, EndTransaction
from streamlog.transactions.markers import Grant, MarkerOutcome, PartitionMarker

MARKERS_MAX: Final = 10_000


def transactional_id(value: str, field: str = "transactional_id") -> str:
    """InvalidRequestError."""
    if not 0 < len(value) <= TRANSACTIONAL_ID_LENGTH_MAX:
        raise InvalidRequestError(
            f"the transactional id has {len(value)} characters, but must have 1 to {TRANSACTIONAL_ID_LENGTH_MAX}",
            field=field,
            limit=TRANSACTIONAL_ID_LENGTH_MAX,
        )
    return without_controls(value, field)


def _producer_id(number: int) -> ProducerId:
    return ProducerId(at_least(number, 0, "producer_id"))


# -- for clients


def end_request(message: pb.EndTransactionRequest) -> EndTransaction:
    """InvalidRequestError."""
    return EndTransaction(
        transactional_id=transactional_id(message.transactional_id),
        producer_id=_producer_id(message.producer_id),
        producer_epoch=producer_epoch(message.producer_epoch),
        commit=message.commit,
    )


def ended(answer: Ended, coordinator: common_pb2.Node | None) -> pb.EndTransactionResponse:
    return pb.EndTransactionResponse(
        producer_id=answer.producer.producer_id,
        producer_epoch=answer.producer.producer_epoch,
        coordinator=coordinator,
    )


def offsets_request(message: pb.CommitTransactionOffsetsRequest) -> tuple[AddPartitions, CommitOffsets]:
    """The transaction, without a partition, and the offsets. InvalidRequestError, InvalidGroupIdError,
    InvalidTopicError.
    """
    offsets = each(message.offsets, "offsets", to_commit, count_min=1, count_max=PARTITIONS_MAX)
    distinct([offset.partition for offset in offsets], "offsets")
    transaction = AddPartitions(
        transactional_id=transactional_id(message.transactional_id),
        producer_id=_producer_id(message.producer_id),
        producer_epoch=producer_epoch(message.producer_epoch),
        partitions=frozenset(),
    )
    return transaction, CommitOffsets(group=group_id(message.group), member=committer(message), offsets=offsets)


def offsets_committed(
    command: CommitOffsets, errors: Iterable[StreamlogError | None]
) -> pb.CommitTransactionOffsetsResponse:
    return pb.CommitTransactionOffsetsResponse(results=committed(command, errors).results)


# -- between nodes


def adding(command: AddPartitions) -> internal_pb.AddPartitionsRequest:
    return internal_pb.AddPartitionsRequest(
        transactional_id=command.transactional_id,
        producer_id=command.producer_id,
        producer_epoch=command.producer_epoch,
        partitions=[_partition_message(partition) for partition in sorted(command.partitions)],
    )


def add_request(message: internal_pb.AddPartitionsRequest) -> AddPartitions:
    return AddPartitions(
        transactional_id=transactional_id(message.transactional_id),
        producer_id=_producer_id(message.producer_id),
        producer_epoch=producer_epoch(message.producer_epoch),
        partitions=frozenset(each(message.partitions, "partitions", _partition, count_min=1, count_max=PARTITIONS_MAX)),
    )


def markers_request(markers: Sequence[PartitionMarker]) -> internal_pb.WriteMarkersRequest:
    """Adjacent markers of one producer share a message; the results have the same order."""
    request = internal_pb.WriteMarkersRequest()
    for (producer_id, epoch, marker, opens_next), some in groupby(
        markers, lambda one: (one.producer_id, one.producer_epoch, one.marker, one.opens_next)
    ):
        request.markers.add(
            producer_id=producer_id,
            producer_epoch=epoch,
            commit=marker.commit,
            coordinator_epoch=marker.coordinator_epoch,
            opens_next=opens_next,
            partitions=[_partition_message(one.partition) for one in some],
        )
    return request


def markers(message: internal_pb.WriteMarkersRequest) -> tuple[PartitionMarker, ...]:
    """InvalidRequestError, InvalidTopicError."""
    together((one.partitions for one in message.markers), "markers", count_max=MARKERS_MAX)
    return tuple(chain.from_iterable(each(message.markers, "markers", _markers, count_max=MARKERS_MAX)))


def _markers(message: internal_pb.Marker) -> list[PartitionMarker]:
    marker = EndTransactionMarker(
        commit=message.commit, coordinator_epoch=at_least(message.coordinator_epoch, 0, "coordinator_epoch")
    )
    producer_id, epoch = _producer_id(message.producer_id), producer_epoch(message.producer_epoch)
    return [
        PartitionMarker(
            partition=partition,
            producer_id=producer_id,
            producer_epoch=epoch,
            marker=marker,
            opens_next=message.opens_next,
        )
        for partition in each(message.partitions, "partitions", _partition, count_max=MARKERS_MAX)
    ]


def markers_written(outcomes: Iterable[MarkerOutcome]) -> internal_pb.WriteMarkersResponse:
    response = internal_pb.WriteMarkersResponse()
    for outcome in outcomes:
        result = response.results.add(ended=outcome.ended)
        if outcome.error is not None:
            result.error.CopyFrom(to_message(outcome.error))
    return response


def marker_outcomes(message: internal_pb.WriteMarkersResponse) -> list[MarkerOutcome]:
    return [
        MarkerOutcome(from_message(result.error) if result.HasField("error") else None, result.ended)
        for result in message.results
    ]


def take_back_request(grant: Grant) -> internal_pb.TakeBackRequest:
    return internal_pb.TakeBackRequest(
        producer_id=grant.producer_id,
        producer_epoch=grant.producer_epoch,
        partitions=[_partition_message(partition) for partition in grant.partitions],
    )


def grant(message: internal_pb.TakeBackRequest) -> Grant:
    """InvalidRequestError, InvalidTopicError."""
    return Grant(
        producer_id=_producer_id(message.producer_id),
        producer_epoch=producer_epoch(message.producer_epoch),
        partitions=each(message.partitions, "partitions", _partition, count_min=1, count_max=MARKERS_MAX),
    )


def _partition_message(partition: TopicPartition) -> common_pb2.TopicPartition:
    return common_pb2.TopicPartition(topic=partition.topic, partition=partition.partition)


def _partition(message: common_pb2.TopicPartition) -> TopicPartition:
    return TopicPartition(topic_name(message.topic), partition_id(message.partition))
