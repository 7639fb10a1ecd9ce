"""The admin client's values about transactions, and their conversion from messages. Pure.

A node may be newer than this client: a state that it does not know becomes UNKNOWN.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from streamlog.api.errors import from_message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.errors import StreamlogError
from streamlog.model import BrokerId, Offset, PartitionId, ProducerEpoch, ProducerId, TopicPartition


class TransactionState(enum.Enum):
    EMPTY = "empty"  # it has a producer, and no transaction yet
    ONGOING = "ongoing"
    PREPARE_COMMIT = "prepare-commit"  # decided: markers are being written
    PREPARE_ABORT = "prepare-abort"
    COMPLETE_COMMIT = "complete-commit"
    COMPLETE_ABORT = "complete-abort"
    UNKNOWN = "unknown"


STATE_NUMBERS: Final[Mapping[TransactionState, pb.TransactionState.ValueType]] = {
    TransactionState.EMPTY: pb.TRANSACTION_STATE_EMPTY,
    TransactionState.ONGOING: pb.TRANSACTION_STATE_ONGOING,
    TransactionState.PREPARE_COMMIT: pb.TRANSACTION_STATE_PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT: pb.TRANSACTION_STATE_PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT: pb.TRANSACTION_STATE_COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT: pb.TRANSACTION_STATE_COMPLETE_ABORT,
}
_STATES: Final[Mapping[int, TransactionState]] = {number: state for state, number in STATE_NUMBERS.items()}


class TransactionListing(Struct, frozen=True, kw_only=True):
    transactional_id: str
    producer_id: ProducerId
    state: TransactionState
    coordinator: BrokerId


class TransactionList(Struct, frozen=True, kw_only=True):
    transactions: tuple[TransactionListing, ...]  # in ascending order of ids
    errors: Mapping[BrokerId, StreamlogError]  # of nodes that did not answer: their ids are missing


class TransactionDescription(Struct, frozen=True, kw_only=True):
    transactional_id: str
    coordinator: BrokerId
    state: TransactionState
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: int | None  # None: an external coordinator ends it
    started_ms: int | None  # None: no transaction is open
    updated_ms: int
    partitions: tuple[TopicPartition, ...]  # that the open one may have records in
    error: StreamlogError | None  # then the other fields are empty


class OpenTransaction(Struct, frozen=True, kw_only=True):
    """As the leader of a partition knows it."""

    partition: TopicPartition
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    first_offset: Offset
    since_ms: int
    transactional_id: str | None  # None: no coordinator knows the transaction
    hanging: bool  # no coordinator will end it


class OpenTransactions(Struct, frozen=True, kw_only=True):
    transactions: tuple[OpenTransaction, ...]  # by partition and first offset
    errors: Mapping[BrokerId, StreamlogError]  # with any, no transaction is reported as hanging


def listing(row: pb.TransactionListing) -> TransactionListing:
    return TransactionListing(
        transactional_id=row.transactional_id,
        producer_id=ProducerId(row.producer_id),
        state=_STATES.get(row.state, TransactionState.UNKNOWN),
        coordinator=BrokerId(row.coordinator),
    )


def description(row: pb.TransactionDescription) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=row.transactional_id,
        coordinator=BrokerId(row.coordinator),
        state=_STATES.get(row.state, TransactionState.UNKNOWN),
        producer_id=ProducerId(row.producer_id),
        producer_epoch=ProducerEpoch(row.producer_epoch),
        timeout_ms=None if row.timeout_ms < 0 else row.timeout_ms,
        started_ms=None if row.started_ms < 0 else row.started_ms,
        updated_ms=row.updated_ms,
        partitions=tuple(TopicPartition(one.topic, PartitionId(one.partition)) for one in row.partitions),
        error=from_message(row.error) if row.HasField("error") else None,
    )


def open_transaction(row: pb.OpenTransaction) -> OpenTransaction:
    return OpenTransaction(
        partition=TopicPartition(row.topic, PartitionId(row.partition)),
        producer_id=ProducerId(row.producer_id),
        producer_epoch=ProducerEpoch(row.producer_epoch),
        first_offset=Offset(row.first_offset),
        since_ms=row.since_ms,
        transactional_id=row.transactional_id or None,
        hanging=row.hanging,
    )
