"""Produce and InitProducerId. Batches are passed on unchanged: the log validates them."""

from __future__ import annotations

from streamlog.api.convert.admin.partitions import (
    acks,
    known_epoch,
    partition_key,
    partition_ref,
    set_partition,
)
from streamlog.api.convert.fields import (
    amount,
    at_least,
    distinct,
    each,
    producer_epoch,
    text,
)
from streamlog.api.errors import to_message
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.requests import (
    PARTITIONS_PER_REQUEST_MAX,
    PRODUCE_TIMEOUT_MS,
    PRODUCE_TIMEOUT_MS_MAX,
    TRANSACTION_TIMEOUT_MS,
    TRANSACTIONAL_ID_LENGTH_MAX,
    InitProducerIdRequest,
    PartitionAppend,
    ProduceRequest,
)
from streamlog.errors import InvalidRequestError, StreamlogError
from streamlog.model import (
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    ProducerId,
)
from streamlog.ports.tracing import LINKS_MAX
from streamlog.transactions.records import TIMEOUT_MS_MAX


def produce_request(message: pb.ProduceRequest) -> ProduceRequest:
    """InvalidRequestError, InvalidTopicError."""
    request = _produce(message)
    distinct([partition_key(append.ref) for append in request.appends], "partitions")
    return request


def produce_stream_request(message: pb.ProduceStreamRequest) -> ProduceRequest:
    """InvalidRequestError, InvalidTopicError. A partition may occur several times."""
    return _produce(message)


def _produce(message: pb.ProduceRequest | pb.ProduceStreamRequest) -> ProduceRequest:
    return ProduceRequest(
        acks=acks(message.acks),
        timeout_ms=amount(message.timeout_ms, "timeout_ms", default=PRODUCE_TIMEOUT_MS, high=PRODUCE_TIMEOUT_MS_MAX),
        transactional_id=_transactional_id(message.transactional_id),
        appends=each(message.partitions, "partitions", _append, count_min=1, count_max=PARTITIONS_PER_REQUEST_MAX),
    )


def _append(message: pb.PartitionBatches) -> PartitionAppend:
    if not message.batches:
        raise InvalidRequestError("batches is required for each partition", field="batches")
    epoch = known_epoch(message)
    given = message.traceparent
    return PartitionAppend(
        ref=partition_ref(message, epoch),
        correlation_id=message.correlation_id,
        batches=message.batches,
        traceparents=(given, *message.linked_traceparents[: LINKS_MAX - 1]) if given else (),
    )


def appended(
    append: PartitionAppend,
    *,
    base_offset: Offset = NO_OFFSET,
    leader_epoch: LeaderEpoch,
    log_append_time_ms: int = NO_TIMESTAMP,
    log_start: Offset,
) -> pb.ProduceResult:
    """`base_offset` is NO_OFFSET only with acks=0."""
    result = pb.ProduceResult(
        leader_epoch=leader_epoch,
        correlation_id=append.correlation_id,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start=log_start,
    )
    set_partition(result, append.ref)
    return result


def not_appended(append: PartitionAppend, error: StreamlogError) -> pb.ProduceResult:
    result = pb.ProduceResult(
        correlation_id=append.correlation_id,
        base_offset=NO_OFFSET,
        log_append_time_ms=NO_TIMESTAMP,
        error=to_message(error),
    )
    set_partition(result, append.ref)
    return result


def init_producer_id_request(message: pb.InitProducerIdRequest) -> InitProducerIdRequest:
    """InvalidRequestError."""
    has_id, has_epoch = message.HasField("producer_id"), message.HasField("producer_epoch")
    if has_id != has_epoch:
        raise InvalidRequestError("set both producer_id and producer_epoch, or neither", field="producer_epoch")
    producer_id, epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
    if has_id:
        producer_id = ProducerId(at_least(message.producer_id, 0, "producer_id"))
        epoch = producer_epoch(message.producer_epoch)
    return InitProducerIdRequest(
        transactional_id=_transactional_id(message.transactional_id),
        transaction_timeout_ms=amount(
            message.transaction_timeout_ms,
            "transaction_timeout_ms",
            default=TRANSACTION_TIMEOUT_MS,
            high=TIMEOUT_MS_MAX,
        ),
        producer_id=producer_id,
        producer_epoch=epoch,
        two_phase=message.enable_two_phase_commit,
        keep_prepared=_keep_prepared(message),
    )


def _keep_prepared(message: pb.InitProducerIdRequest) -> bool:
    if message.keep_prepared_transaction and not message.enable_two_phase_commit:
        raise InvalidRequestError(
            "keep_prepared_transaction requires enable_two_phase_commit",
            field="keep_prepared_transaction",
        )
    return message.keep_prepared_transaction


def _transactional_id(value: str) -> str:
    return value and text(value, "transactional_id", length_max=TRANSACTIONAL_ID_LENGTH_MAX)
