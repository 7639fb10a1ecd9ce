"""Messages of streamlog/v1/admin.proto and cluster.proto to values of the admin client. Pure.

A node may be newer than this client: enum values that it does not know become UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from streamlog.api.errors import from_message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.pb import cluster_pb2, common_pb2
from streamlog.client.admin import values as values
from streamlog.client.admin.requests import RESOURCE_TYPES
from streamlog.errors import StreamlogError, UnknownServerError
from streamlog.model import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionId,
    RaftIndex,
    RaftTerm,
    TopicId,
    TopicPartition,
)

_SOURCES: Final[Mapping[int, values.ConfigSource]] = {
    pb.CONFIG_SOURCE_DEFAULT: values.ConfigSource.DEFAULT,
    pb.CONFIG_SOURCE_STATIC_BROKER: values.ConfigSource.STATIC_BROKER,
    pb.CONFIG_SOURCE_DYNAMIC_ALL_BROKERS: values.ConfigSource.DYNAMIC_ALL_BROKERS,
    pb.CONFIG_SOURCE_DYNAMIC_BROKER: values.ConfigSource.DYNAMIC_BROKER,
    pb.CONFIG_SOURCE_TOPIC: values.ConfigSource.TOPIC,
}
_STATES: Final[Mapping[int, values.NodeState]] = {
    pb.NODE_STATE_ACTIVE: values.NodeState.ACTIVE,
    pb.NODE_STATE_FENCED: values.NodeState.FENCED,
    pb.NODE_STATE_STOPPING: values.NodeState.STOPPING,
}
_TYPE_PREFIX: Final = "CONFIG_TYPE_"

Result = TypeVar("Result")


class _MayFail(Protocol):
    """A message with an `error` field."""

    @property
    def error(self) -> common_pb2.StreamlogError: ...


def only(results: Sequence[Result]) -> Result:
    """UnknownServerError where a node has not returned one result, as it was asked for."""
    if len(results) != 1:
        raise UnknownServerError(f"a node returned {len(results)} results of a request for one")
    return results[0]


def _error(message: _MayFail) -> StreamlogError | None:
    return from_message(message.error) if message.error.code else None


def created(response: pb.CreateTopicsResponse) -> tuple[values.CreatedTopic, ...]:
    return tuple(
        values.CreatedTopic(
            name=row.name,
            topic_id=TopicId(row.topic_id),
            partition_count=row.partition_count,
            replication_factor=row.replication_factor,
            warning=row.warning,
            error=_error(row),
        )
        for row in response.results
    )


def deleted(response: pb.DeleteTopicsResponse) -> tuple[values.DeletedTopic, ...]:
    return tuple(
        values.DeletedTopic(name=row.name, topic_id=TopicId(row.topic_id), error=_error(row))
        for row in response.results
    )


def listing(row: pb.TopicListing) -> values.TopicListing:
    return values.TopicListing(
        name=row.name,
        topic_id=TopicId(row.topic_id),
        partition_count=row.partition_count,
        replication_factor=row.replication_factor,
        internal=row.internal,
    )


def partition(message: common_pb2.Partition) -> values.PartitionDescription:
    return values.PartitionDescription(
        partition=PartitionId(message.partition),
        leader=BrokerId(message.leader) if message.HasField("leader") else None,
        leader_epoch=LeaderEpoch(message.leader_epoch),
        partition_epoch=PartitionEpoch(message.partition_epoch),
        replicas=_ids(message.replicas),
        isr=_ids(message.isr),
        elr=_ids(message.elr),
        adding=_ids(message.adding),
        removing=_ids(message.removing),
        offline=_ids(message.offline),
    )


def topic(parts: Sequence[pb.TopicDescription]) -> values.TopicDescription:
    """One topic, whose partitions are in these parts, one a page. At least one part."""
    first = parts[0]
    return values.TopicDescription(
        name=first.name,
        topic_id=TopicId(first.topic_id),
        partition_count=first.partition_count,
        replication_factor=first.replication_factor,
        configs={name: first.configs[name] for name in sorted(first.configs)},
        partitions=tuple(partition(one) for part in parts for one in part.partitions),
        internal=first.internal,
        error=_error(first),
    )


def grown(response: pb.CreatePartitionsResponse) -> tuple[values.GrownTopic, ...]:
    return tuple(values.GrownTopic(topic=row.topic, error=_error(row)) for row in response.results)


def configs(response: pb.DescribeConfigsResponse) -> tuple[values.ConfigDescription, ...]:
    return tuple(
        values.ConfigDescription(
            resource=_resource(row.resource),
            entries=tuple(_entry(entry) for entry in row.entries),
            error=_error(row),
        )
        for row in response.resources
    )


def _entry(entry: pb.ConfigEntry) -> values.ConfigEntry:
    return values.ConfigEntry(
        name=entry.name,
        value=entry.value if entry.HasField("value") else None,
        source=_SOURCES.get(entry.source, values.ConfigSource.UNKNOWN),
        type=_type_name(entry.type),
        read_only=entry.read_only,
        sensitive=entry.sensitive,
        default_value=entry.default_value if entry.HasField("default_value") else None,
        valid_values=entry.valid_values,
        documentation=entry.documentation,
    )


def _type_name(number: pb.ConfigType.ValueType) -> str:
    if number == pb.CONFIG_TYPE_UNSPECIFIED or number not in pb.ConfigType.values():
        return ""
    return pb.ConfigType.Name(number).removeprefix(_TYPE_PREFIX).lower()


def _resource(message: pb.ConfigResource) -> values.ConfigResource:
    """Nodes return the resources of the request, so another type is a node's error."""
    kind = RESOURCE_TYPES.get(message.type)
    if kind is None:
        raise UnknownServerError(
            f"a node returned configs of a resource of type {message.type}, which was not requested"
        )
    return values.ConfigResource(kind, message.name)


def altered(response: pb.AlterConfigsResponse) -> tuple[values.AlteredConfig, ...]:
    return tuple(values.AlteredConfig(resource=_resource(row.resource), error=_error(row)) for row in response.results)


def elections(response: pb.ElectLeadersResponse) -> tuple[values.Election, ...]:
    return tuple(
        values.Election(
            at=TopicPartition(row.topic, PartitionId(row.partition)),
            leader=BrokerId(row.leader) if row.HasField("leader") else None,
            error=_error(row),
            candidates=tuple(_candidate(one) for one in row.candidates),
        )
        for row in response.results
    )


def _candidate(row: pb.ElectionCandidate) -> values.ElectionCandidate:
    return values.ElectionCandidate(
        node_id=BrokerId(row.node_id),
        state=row.state,
        known=row.known,
        last_epoch=row.last_epoch if row.HasField("last_epoch") else None,
        log_end=Offset(row.log_end) if row.HasField("log_end") else None,
        lost_records=row.lost_records if row.HasField("lost_records") else None,
        would_lead=row.would_lead,
    )


def reassignments(response: pb.AlterPartitionReassignmentsResponse) -> tuple[values.ReassignmentResult, ...]:
    return tuple(
        values.ReassignmentResult(at=TopicPartition(row.topic, PartitionId(row.partition)), error=_error(row))
        for row in response.results
    )


def ongoing(row: pb.OngoingReassignment) -> values.OngoingReassignment:
    return values.OngoingReassignment(topic=row.topic, partition=partition(row.partition))


def cluster(response: pb.DescribeClusterResponse) -> values.ClusterDescription:
    return values.ClusterDescription(
        cluster_id=response.cluster_id,
        controller=BrokerId(response.controller) if response.HasField("controller") else None,
        nodes=tuple(_node(node) for node in response.nodes),
        voters=voters(response.voters),
        quorum_term=RaftTerm(response.quorum_term),
        commit_index=RaftIndex(response.commit_index),
        metadata_version=response.metadata_version,
        topic_count=response.topic_count,
        partition_count=response.partition_count,
        offline_partition_count=response.offline_partition_count,
        under_replicated_partition_count=response.under_replicated_partition_count,
    )


def _node(message: pb.NodeDescription) -> values.NodeDescription:
    return values.NodeDescription(
        node_id=BrokerId(message.node.node_id),
        host=message.node.host,
        port=message.node.port,
        rack=message.node.rack,
        state=_STATES.get(message.state, values.NodeState.UNKNOWN),
        broker_epoch=BrokerEpoch(message.broker_epoch),
        draining=message.draining,
        replica_count=message.replica_count,
        leader_count=message.leader_count,
        metadata_version_min=message.metadata_version_min,
        metadata_version_max=message.metadata_version_max,
        clock_skew_ms=message.clock_skew_ms if message.HasField("clock_skew_ms") else None,
    )


def voters(messages: Iterable[pb.VoterDescription]) -> tuple[values.VoterDescription, ...]:
    return tuple(_voter(message) for message in messages)


def _voter(message: pb.VoterDescription) -> values.VoterDescription:
    return values.VoterDescription(
        node_id=BrokerId(message.node_id),
        address=message.address,
        match_index=RaftIndex(message.match_index) if message.match_index >= 0 else None,
        without_vote=message.without_vote,
    )


def drain(response: pb.DrainNodeResponse) -> values.DrainProgress:
    return values.DrainProgress(
        draining=response.draining, remaining_count=response.remaining_count, moving_count=response.moving_count
    )


def log_dirs(response: pb.DescribeLogDirsResponse) -> tuple[values.NodeLogDirs, ...]:
    return tuple(
        values.NodeLogDirs(
            node_id=BrokerId(node.node_id),
            log_dirs=tuple(_log_dir(directory) for directory in node.log_dirs),
            error=_error(node),
        )
        for node in response.nodes
    )


def _log_dir(message: pb.LogDir) -> values.LogDir:
    return values.LogDir(
        path=message.path,
        directory_id=message.directory_id,
        total_bytes=message.total_bytes if message.total_bytes >= 0 else None,
        usable_bytes=message.usable_bytes if message.usable_bytes >= 0 else None,
        replicas=tuple(
            values.LogDirReplica(
                at=TopicPartition(replica.topic, PartitionId(replica.partition)),
                size_bytes=replica.size_bytes,
                log_start=Offset(replica.log_start),
                log_end=Offset(replica.log_end),
                damaged_ranges=replica.damaged_ranges,
            )
            for replica in message.replicas
        ),
        error=_error(message),
        scrub=_scrub(message.scrub) if message.HasField("scrub") else None,
        future_replicas=tuple(
            values.FutureReplica(
                at=TopicPartition(replica.topic, PartitionId(replica.partition)),
                size_bytes=replica.size_bytes,
                offset_lag=replica.offset_lag,
                error=_error(replica),
            )
            for replica in message.future_replicas
        ),
    )


def replica_log_dirs(response: pb.AlterReplicaLogDirsResponse) -> tuple[values.ReplicaLogDirResult, ...]:
    return tuple(
        values.ReplicaLogDirResult(at=values.ReplicaOnNode(row.topic, row.partition, row.node_id), error=_error(row))
        for row in response.replicas
    )


def _scrub(message: pb.ScrubProgress) -> values.Scrub:
    return values.Scrub(
        started_ms=message.started_ms,
        ended_ms=message.ended_ms if message.HasField("ended_ms") else None,
        read_bytes=message.read_bytes,
        total_bytes=message.total_bytes,
        damaged_ranges=message.damaged_ranges,
    )


def repairs(at: TopicPartition, response: pb.RepairReplicasResponse) -> values.PartitionRepairs:
    return values.PartitionRepairs(at=at, replicas=tuple(_repair(replica) for replica in response.replicas))


def _repair(message: pb.ReplicaRepair) -> values.ReplicaRepair:
    return values.ReplicaRepair(
        node_id=BrokerId(message.node_id),
        read_bytes=message.read_bytes,
        damages=tuple(
            values.DamagedRange(
                path=one.path,
                position=one.position,
                begin_offset=Offset(one.begin_offset),
                end_offset=Offset(one.end_offset),
                reason=one.reason,
                repaired_from=BrokerId(one.repaired_from) if one.HasField("repaired_from") else None,
                failure=one.failure,
            )
            for one in message.damages
        ),
        error=_error(message),
    )


def digests(at: TopicPartition, response: pb.DigestReplicasResponse) -> values.PartitionDigests:
    return values.PartitionDigests(
        at=at,
        start_offset=Offset(response.start_offset),
        end_offset=Offset(response.end_offset),
        replicas=tuple(_digest(replica) for replica in response.replicas),
        identical=response.identical,
    )


def _digest(message: pb.ReplicaDigest) -> values.ReplicaDigest:
    return values.ReplicaDigest(
        node_id=BrokerId(message.node_id),
        digest=message.digest,
        batch_count=message.batch_count,
        log_start=Offset(message.log_start),
        high_watermark=Offset(message.high_watermark),
        log_end=Offset(message.log_end),
        epochs=tuple(
            values.EpochStart(leader_epoch=LeaderEpoch(one.leader_epoch), start_offset=Offset(one.start_offset))
            for one in message.epochs
        ),
        error=_error(message),
    )


def release(response: cluster_pb2.ClusterDescribeResponse) -> values.NodeRelease:
    limits = response.limits
    return values.NodeRelease(
        version=response.version,
        cluster_id=response.cluster_id,
        node_id=BrokerId(response.node_id),
        features=tuple(
            values.Feature(name=one.name, level_min=one.level_min, level_max=one.level_max, level=one.level)
            for one in response.features
        ),
        limits=values.Limits(
            request_bytes_max=limits.request_bytes_max,
            response_bytes=limits.response_bytes,
            response_bytes_max=limits.response_bytes_max,
            batch_bytes_max=limits.batch_bytes_max,
            partitions_per_request_max=limits.partitions_per_request_max,
            new_partitions_per_request_max=limits.new_partitions_per_request_max,
            publish_request_bytes_max=limits.publish_request_bytes_max,
            other_request_bytes_max=limits.other_request_bytes_max,
            records_per_request_max=limits.records_per_request_max,
            subscribe_response_bytes_max=limits.subscribe_response_bytes_max,
            consume_response_bytes_max=limits.consume_response_bytes_max,
        ),
    )


def _ids(numbers: Sequence[int]) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)
