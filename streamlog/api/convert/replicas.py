"""Log directories and digests of replicas: requests and responses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from streamlog.api.convert.admin.placement import node_id
from streamlog.api.convert.fields import at_least, distinct, each, partition_id, topic_name
from streamlog.api.errors import to_message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.errors import InvalidRequestError, StreamlogError
from streamlog.metadata.decision import BATCH_RECORDS
from streamlog.model import BrokerId, LeaderEpoch, Offset, PartitionId, TopicPartition

NODES_PER_REQUEST_MAX: Final = 1_000
PATH_LENGTH_MAX: Final = 4_096


def describe_log_dirs(message: pb.DescribeLogDirsRequest) -> tuple[tuple[BrokerId, ...], frozenset[str]]:
    """Which nodes and which topics; empty: all. InvalidRequestError, InvalidTopicError."""
    nodes = each(message.node_ids, "node_ids", lambda node: node_id(node, ""), count_max=NODES_PER_REQUEST_MAX)
    distinct(nodes, "node_ids")
    topics = each(message.topics, "topics", lambda name: topic_name(name, ""), count_max=BATCH_RECORDS)
    return nodes, frozenset(topics)


def set_log_dir(
    row: pb.LogDir,
    *,
    path: str,
    directory_id: bytes,
    total_bytes: int,
    usable_bytes: int,
    error: StreamlogError | None,
) -> None:
    row.path, row.directory_id = path, directory_id
    row.total_bytes, row.usable_bytes = total_bytes, usable_bytes
    if error is not None:
        row.error.CopyFrom(to_message(error))


def set_scrub(
    row: pb.LogDir, *, started_ms: int, ended_ms: int, read_bytes: int, total_bytes: int, damaged_ranges: int
) -> None:
    """-1: not started, not ended."""
    if started_ms < 0:
        return
    row.scrub.started_ms = started_ms
    if ended_ms >= 0:
        row.scrub.ended_ms = ended_ms
    row.scrub.read_bytes, row.scrub.total_bytes = read_bytes, total_bytes
    row.scrub.damaged_ranges = damaged_ranges


def add_replica(
    row: pb.LogDir,
    partition: TopicPartition,
    *,
    size_bytes: int,
    log_start: Offset,
    log_end: Offset,
    damaged_ranges: int,
) -> None:
    row.replicas.add(
        topic=partition.topic,
        partition=partition.partition,
        size_bytes=size_bytes,
        log_start=log_start,
        log_end=log_end,
        damaged_ranges=damaged_ranges,
    )


def add_future_replica(
    row: pb.LogDir, partition: TopicPartition, *, size_bytes: int, offset_lag: int, error: StreamlogError | None
) -> None:
    row.future_replicas.add(
        topic=partition.topic,
        partition=partition.partition,
        size_bytes=size_bytes,
        offset_lag=offset_lag,
        error=None if error is None else to_message(error),
    )


class ReplicaLogDir(Struct, frozen=True, kw_only=True):
    """Where a replica is to be."""

    at: TopicPartition
    node_id: BrokerId
    log_dir: str


def replica_log_dirs(message: pb.AlterReplicaLogDirsRequest) -> tuple[ReplicaLogDir, ...]:
    """InvalidRequestError, InvalidTopicError."""
    wanted = each(message.replicas, "replicas", _replica_log_dir, count_min=1, count_max=BATCH_RECORDS)
    distinct([(one.at.topic, one.at.partition, one.node_id) for one in wanted], "replicas")
    return wanted


def _replica_log_dir(message: pb.ReplicaLogDir) -> ReplicaLogDir:
    if not 0 < len(message.log_dir) <= PATH_LENGTH_MAX:
        raise InvalidRequestError(
            f"log_dir has {len(message.log_dir)} characters, but must have 1 to {PATH_LENGTH_MAX}",
            field="log_dir",
            limit=PATH_LENGTH_MAX,
        )
    return ReplicaLogDir(
        at=TopicPartition(topic_name(message.topic), partition_id(message.partition)),
        node_id=node_id(message.node_id),
        log_dir=message.log_dir,
    )


def to_replica_log_dirs(wanted: Sequence[ReplicaLogDir]) -> pb.AlterReplicaLogDirsRequest:
    return pb.AlterReplicaLogDirsRequest(
        replicas=[
            pb.ReplicaLogDir(topic=one.at.topic, partition=one.at.partition, node_id=one.node_id, log_dir=one.log_dir)
            for one in wanted
        ]
    )


def replica_log_dir_result(wanted: ReplicaLogDir, error: StreamlogError | None) -> pb.ReplicaLogDirResult:
    return pb.ReplicaLogDirResult(
        topic=wanted.at.topic,
        partition=wanted.at.partition,
        node_id=wanted.node_id,
        error=None if error is None else to_message(error),
    )


def not_described(node: BrokerId, error: StreamlogError) -> pb.NodeLogDirs:
    return pb.NodeLogDirs(node_id=node, error=to_message(error))


class DigestQuery(Struct, frozen=True, kw_only=True):
    """start <= end if both are set."""

    topic: str
    partition: PartitionId
    start: Offset | None
    end: Offset | None


def digest_query(message: pb.DigestReplicasRequest) -> DigestQuery:
    """InvalidRequestError, InvalidTopicError."""
    start = at_least(message.start_offset, 0, "start_offset") if message.HasField("start_offset") else None
    end = at_least(message.end_offset, 0, "end_offset") if message.HasField("end_offset") else None
    if start is not None and end is not None and end < start:
        raise InvalidRequestError(
            f"end_offset is {end}, but must be at least start_offset, which is {start}", field="end_offset", limit=start
        )
    return DigestQuery(
        topic=topic_name(message.topic),
        partition=partition_id(message.partition),
        start=None if start is None else Offset(start),
        end=None if end is None else Offset(end),
    )


def digest_request(query: DigestQuery, start: Offset, end: Offset) -> pb.DigestReplicasRequest:
    """Of one node, for its own replica."""
    return pb.DigestReplicasRequest(topic=query.topic, partition=query.partition, start_offset=start, end_offset=end)


def digested(
    node: BrokerId,
    *,
    digest: bytes,
    batch_count: int,
    log_start: Offset,
    high_watermark: Offset,
    log_end: Offset,
    epochs: Iterable[tuple[LeaderEpoch, Offset]],
) -> pb.ReplicaDigest:
    return pb.ReplicaDigest(
        node_id=node,
        digest=digest,
        batch_count=batch_count,
        log_start=log_start,
        high_watermark=high_watermark,
        log_end=log_end,
        epochs=[pb.EpochStart(leader_epoch=epoch, start_offset=start) for epoch, start in epochs],
    )


def not_digested(node: BrokerId, error: StreamlogError) -> pb.ReplicaDigest:
    return pb.ReplicaDigest(node_id=node, error=to_message(error))


def are_identical(replicas: Sequence[pb.ReplicaDigest]) -> bool:
    """All were read, and none differs in bytes or in the epochs of the range."""
    if not replicas or any(one.HasField("error") for one in replicas):
        return False
    first = replicas[0]
    return all(
        (one.digest, one.batch_count, list(one.epochs)) == (first.digest, first.batch_count, list(first.epochs))
        for one in replicas
    )


def not_repaired(node: BrokerId, error: StreamlogError) -> pb.ReplicaRepair:
    return pb.ReplicaRepair(node_id=node, error=to_message(error))
