"""States of clusters for the health checks."""

from __future__ import annotations

from typing import Any

from streamlog.client.admin.values import (
    ClusterDescription,
    ConfigEntry,
    ConfigSource,
    NodeDescription,
    NodeState,
    TopicDescription,
    VoterDescription,
)
from streamlog.model import BrokerId, RaftIndex
from streamlog.monitor import ClusterState
from streamlog.monitor.cluster_state import effective_min_isr


def node(node_id: int, state: NodeState = NodeState.ACTIVE, *, clock_skew_ms: int | None = None) -> NodeDescription:
    return NodeDescription(
        node_id=BrokerId(node_id),
        host="h",
        port=9092,
        rack="",
        state=state,
        broker_epoch=1,  # type: ignore[arg-type]
        draining=False,
        replica_count=1,
        leader_count=1,
        metadata_version_min=1,
        metadata_version_max=1,
        clock_skew_ms=clock_skew_ms,
    )


def config_entry(name: str, value: str) -> ConfigEntry:
    return ConfigEntry(
        name=name,
        value=value,
        source=ConfigSource.DYNAMIC_ALL_BROKERS,
        type="long",
        read_only=False,
        sensitive=False,
        default_value=None,
        valid_values="",
        documentation="",
    )


def cluster(*nodes: NodeDescription, controller: int | None = 1, held: tuple[int | None, ...] = (9,)) -> Any:
    return ClusterDescription(
        cluster_id="c",
        controller=None if controller is None else BrokerId(controller),
        nodes=nodes or (node(1), node(2), node(3)),
        voters=tuple(
            VoterDescription(
                node_id=BrokerId(number), address="h:1", match_index=None if index is None else RaftIndex(index)
            )
            for number, index in enumerate(held, 1)
        ),
        quorum_term=1,  # type: ignore[arg-type]
        commit_index=RaftIndex(5000),
        metadata_version=1,
        topic_count=1,
        partition_count=1,
        offline_partition_count=0,
        under_replicated_partition_count=0,
    )


def state(described: ClusterDescription, *topics: TopicDescription, **more: Any) -> ClusterState:
    minima = {one.name: effective_min_isr(None, one.replication_factor) for one in topics}
    return ClusterState(cluster=described, topics=topics, min_insync_replicas=minima, **more)
