"""How far replicas reach: streamlog/internal/v1/replication.proto to the controller's values and back. Both ends are
nodes, so both directions of each message are here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from streamlog.api.convert.fields import distinct, each, inside, partition_id, topic_id
from streamlog.api.pb import controller_pb2
from streamlog.api.pb import replication_pb2 as pb
from streamlog.errors import InvalidRequestError
from streamlog.metadata.decision import BATCH_RECORDS
from streamlog.metadata.image.roles import PartitionKey
from streamlog.metadata.partitions.replica_states import ReplicaState
from streamlog.model import INT32_MAX, BrokerEpoch, BrokerId, LeaderEpoch, Offset

EPOCHS_MAX: Final = 32
"""Of one replica."""
NO_EPOCH: Final = LeaderEpoch(-1)
INT64_MAX: Final = 2**63 - 1


def to_request(cluster_id: str, partitions: Iterable[PartitionKey]) -> pb.DescribeReplicasRequest:
    request = pb.DescribeReplicasRequest(cluster_id=cluster_id)
    for topic, partition in partitions:
        request.partitions.add(topic_id=topic, partition=partition)
    return request


def request(message: pb.DescribeReplicasRequest) -> tuple[PartitionKey, ...]:
    """InvalidRequestError."""
    found = each(message.partitions, "partitions", _key, count_max=BATCH_RECORDS)
    distinct(found, "partitions")
    return found


def to_response(broker_epoch: BrokerEpoch, states: Mapping[PartitionKey, ReplicaState]) -> pb.DescribeReplicasResponse:
    response = pb.DescribeReplicasResponse(broker_epoch=broker_epoch)
    for (topic, partition), state in states.items():
        row = response.replicas.add(
            log_start=state.log_start,
            log_end=state.log_end,
            durable=state.durable,
            damaged=state.damaged,
            incomplete=state.incomplete,
        )
        row.partition.topic_id, row.partition.partition = topic, partition
        if state.last_epoch != NO_EPOCH:
            row.last_epoch = state.last_epoch
        for epoch, start in state.epochs[-EPOCHS_MAX:]:
            row.epochs.add(leader_epoch=epoch, start_offset=start)
    return response


def response(
    broker_id: BrokerId, message: pb.DescribeReplicasResponse, asked: Sequence[PartitionKey]
) -> dict[PartitionKey, ReplicaState]:
    """Only of the requested replicas. InvalidRequestError for an invalid response."""
    wanted = frozenset(asked)
    epoch = BrokerEpoch(_bounded(message.broker_epoch, "broker_epoch", INT64_MAX))
    rows = each(message.replicas, "replicas", lambda row: _state(broker_id, epoch, row), count_max=len(asked))
    return {key: state for key, state in rows if key in wanted}


def _state(broker_id: BrokerId, broker_epoch: BrokerEpoch, row: pb.ReplicaState) -> tuple[PartitionKey, ReplicaState]:
    with inside("partition"):
        key = _key(row.partition)
    start, end = _bounded(row.log_start, "log_start", INT64_MAX), _bounded(row.log_end, "log_end", INT64_MAX)
    last = _bounded(row.last_epoch, "last_epoch", INT32_MAX) if row.HasField("last_epoch") else NO_EPOCH
    epochs = each(row.epochs, "epochs", _epoch, count_max=EPOCHS_MAX)
    if start > end or any(a >= b for a, b in pairwise(epochs)):
        raise InvalidRequestError("a log ends before it starts, or its epochs do not rise", field="replicas")
    state = ReplicaState(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        log_start=Offset(start),
        log_end=Offset(end),
        last_epoch=LeaderEpoch(last),
        epochs=epochs,
        durable=row.durable,
        damaged=row.damaged,
        incomplete=row.incomplete,
    )
    return key, state


def _epoch(row: pb.EpochStart) -> tuple[LeaderEpoch, Offset]:
    epoch = _bounded(row.leader_epoch, "leader_epoch", INT32_MAX)
    return LeaderEpoch(epoch), Offset(_bounded(row.start_offset, "start_offset", INT64_MAX))


def _key(message: controller_pb2.PartitionKey) -> PartitionKey:
    number = _bounded(message.partition, "partition", INT32_MAX)
    return topic_id(message.topic_id), partition_id(number)


def _bounded(number: int, field: str, high: int) -> int:
    if number > high:
        raise InvalidRequestError(f"{field} is {number}, at most {high} is possible", field=field, limit=high)
    return number
