"""The metadata quorum, and the cluster, as this node sees them."""

from __future__ import annotations

from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.image.roles import Role
from streamlog.metadata.view import MetadataView
from streamlog.metrics.families import Family, gauge, histogram, single
from streamlog.model import BrokerId
from streamlog.node.quorum_member import QuorumMember

NO_LEADER = -1


def quorum_families(member: QuorumMember, view: MetadataView, me: BrokerId) -> list[Family]:
    leadership = member.leadership()
    held = member.held()
    newest = max(held.values(), default=0)
    latency_s = member.commit_latency_s()
    families = [
        gauge(
            "streamlog_quorum_leader_id",
            "Node id of the quorum's leader, the active controller, as this node knows it; -1: none.",
            single(NO_LEADER if leadership.leader is None else leadership.leader),
        ),
        gauge("streamlog_quorum_term", "Raft term that this node knows; 0 on observers.", single(leadership.term)),
        gauge("streamlog_quorum_voters", "Voters in effect.", single(len(member.voters()))),
        gauge(
            "streamlog_quorum_applied_index",
            "Index of the metadata log up to which this node has applied it.",
            single(member.applied_index),
        ),
        gauge(
            "streamlog_quorum_voter_lag_entries",
            "Entries that a voter has not confirmed yet; known to the quorum's leader only.",
            [((str(voter),), newest - index) for voter, index in held.items()],
            ("voter",),
        ),
        histogram(
            "streamlog_quorum_commit_duration_seconds",
            "From a change's arrival at the active controller to its commit by a majority of the voters.",
            [] if latency_s is None else single(latency_s),
        ),
        gauge(
            "streamlog_active_controller",
            "1 on the node that is the active controller.",
            single(int(leadership.is_self and leadership.is_ready)),
        ),
    ]
    if view.controller != me:
        return families
    waiting = 0 if member.active is None else member.active.recovery.waiting
    recovery = gauge(
        "streamlog_controller_recovery_waiting_partitions",
        "Leaderless partitions for which the active replicas prove no safe leader: other nodes must be started.",
        single(waiting),
    )
    return [*families, *_cluster(view.image), recovery]


def _cluster(image: MetadataImage) -> list[Family]:
    """Of the whole cluster: on the active controller only, so that sums over nodes are right."""
    brokers = [broker for _, broker in image.brokers.items()]
    active = sum(broker.active for broker in brokers)
    return [
        gauge(
            "streamlog_cluster_nodes",
            "Registered nodes, by state.",
            [(("active",), active), (("inactive",), len(brokers) - active)],
            ("state",),
        ),
        gauge("streamlog_cluster_topics", "Topics of the cluster, internal ones included.", single(len(image.topics))),
        gauge("streamlog_cluster_partitions", "Partitions of the cluster.", single(image.partition_count)),
        gauge(
            "streamlog_cluster_offline_partitions",
            "Partitions without a leader: they can be neither written nor read.",
            single(image.roles.count(Role.LEADERLESS)),
        ),
    ]
