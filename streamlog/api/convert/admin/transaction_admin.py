"""Transactions for operators: requests and responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamlog.api.convert.fields import at_least, distinct, each, enum_value, inside, topic_name
from streamlog.api.convert.groups import topic_partition
from streamlog.api.convert.transactions import transactional_id
from streamlog.api.errors import to_message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.errors import InvalidRequestError, StreamlogError
from streamlog.model import NO_PRODUCER_ID, BrokerId, ProducerId, TopicPartition
from streamlog.transactions.records import TransactionStatus, TransactionValue

IDS_PER_REQUEST_MAX: Final = 1_000
_STATES: Final[Mapping[TransactionStatus, pb.TransactionState.ValueType]] = {
    TransactionStatus.EMPTY: pb.TRANSACTION_STATE_EMPTY,
    TransactionStatus.ONGOING: pb.TRANSACTION_STATE_ONGOING,
    TransactionStatus.PREPARE_COMMIT: pb.TRANSACTION_STATE_PREPARE_COMMIT,
    TransactionStatus.PREPARE_ABORT: pb.TRANSACTION_STATE_PREPARE_ABORT,
    TransactionStatus.COMPLETE_COMMIT: pb.TRANSACTION_STATE_COMPLETE_COMMIT,
    TransactionStatus.COMPLETE_ABORT: pb.TRANSACTION_STATE_COMPLETE_ABORT,
}
_BY_NUMBER: Final[Mapping[int, TransactionStatus]] = {number: state for state, number in _STATES.items()}


def number_of(state: TransactionStatus) -> pb.TransactionState.ValueType:
    return _STATES[state]


def states(message: pb.ListTransactionsRequest) -> frozenset[pb.TransactionState.ValueType]:
    """InvalidRequestError."""
    wanted = each(
        message.states,
        "states",
        lambda number: enum_value(number, _BY_NUMBER, pb.TransactionState, ""),
        count_max=len(_STATES),
    )
    return frozenset(_STATES[state] for state in wanted)


def ids(message: pb.DescribeTransactionsRequest) -> tuple[str, ...]:
    """InvalidRequestError."""
    wanted = each(
        message.transactional_ids,
        "transactional_ids",
        lambda name: transactional_id(name, ""),
        count_min=1,
        count_max=IDS_PER_REQUEST_MAX,
    )
    distinct(wanted, "transactional_ids")
    return wanted


def listing(name: str, value: TransactionValue, coordinator: BrokerId) -> pb.TransactionListing:
    row = pb.TransactionListing(
        transactional_id=name, producer_id=value.producer_id, state=_STATES[value.state], coordinator=coordinator
    )
    if value.previous_producer_id != NO_PRODUCER_ID:
        row.previous_producer_id = value.previous_producer_id
    return row


def producer_ids(row: pb.TransactionListing) -> list[int]:
    return [row.producer_id, *([row.previous_producer_id] if row.HasField("previous_producer_id") else [])]


def description(name: str, value: TransactionValue, coordinator: BrokerId) -> pb.TransactionDescription:
    row = pb.TransactionDescription(
        transactional_id=name,
        coordinator=coordinator,
        state=_STATES[value.state],
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.timeout_ms,
        started_ms=value.started_ms,
        updated_ms=value.updated_ms,
    )
    for partition in sorted(value.partitions | value.next_partitions):
        row.partitions.add(topic=partition.topic, partition=partition.partition)
    return row


def not_described(name: str, error: StreamlogError) -> pb.TransactionDescription:
    return pb.TransactionDescription(transactional_id=name, error=to_message(error))


def abort_request(message: pb.AbortTransactionRequest) -> str | tuple[TopicPartition, ProducerId]:
    """InvalidRequestError, InvalidTopicError."""
    if message.HasField("partition") == bool(message.transactional_id):
        raise InvalidRequestError("set either transactional_id, or partition and producer_id", field="transactional_id")
    if message.transactional_id:
        return transactional_id(message.transactional_id)
    with inside("partition"):
        partition = topic_partition(message.partition)
    return partition, ProducerId(at_least(message.producer_id, 0, "producer_id"))


def topics(message: pb.FindHangingTransactionsRequest) -> frozenset[str]:
    """Empty: all. InvalidTopicError."""
    return frozenset(each(message.topics, "topics", lambda name: topic_name(name, ""), count_max=10_000))
