"""One scrape: all families of a node, gathered on its event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from streamlog.broker.following.follower_links import FollowerLinks
from streamlog.broker.table.replicas import Replicas
from streamlog.coordinator.groups import GroupCoordinator
from streamlog.coordinator.transactions import TransactionCoordinator
from streamlog.metadata.image.roles import PartitionKey
from streamlog.metadata.view import MetadataView
from streamlog.metrics.families import Family, gauge, info, single
from streamlog.model import BrokerId, LeaderEpoch
from streamlog.node.metrics.access import access_families
from streamlog.node.metrics.audit import audit_families
from streamlog.node.metrics.calls import CallMeter
from streamlog.node.metrics.changes import MetadataChanges
from streamlog.node.metrics.client_bounds import client_bound_families
from streamlog.node.metrics.clock import clock_families
from streamlog.node.metrics.disks import disk_families
from streamlog.node.metrics.groups import group_families
from streamlog.node.metrics.integrity import integrity_families
from streamlog.node.metrics.partitions import partition_families
from streamlog.node.metrics.quorum import quorum_families
from streamlog.node.metrics.quotas import quota_families
from streamlog.node.metrics.spans import span_families
from streamlog.node.metrics.transactions import transaction_families
from streamlog.node.quorum_clock import QuorumClock
from streamlog.node.quorum_member import QuorumMember
from streamlog.ports import AuditSink, Ports
from streamlog.release import RELEASE
from streamlog.services.access.authenticator import Authenticator
from streamlog.services.access.authorizer import Authorizer
from streamlog.services.audit.trail import AuditTrail
from streamlog.services.common.client_bounds import ClientBounds
from streamlog.services.quotas.limits import QuotaLimits
from streamlog.storage.directories.directories import LogDirectories

if TYPE_CHECKING:
    from streamlog.services.access.token_logins import TokenLogins


class Sources(Struct, frozen=True, kw_only=True):
    """Owners of state that exist once the node has joined its cluster."""

    member: QuorumMember
    replicas: Replicas
    directories: LogDirectories
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    bounds: ClientBounds
    links: FollowerLinks
    clock: QuorumClock


class NodeMetrics:
    """Owned by the node, from its start: before it is ready there are fewer metrics."""

    def __init__(
        self,
        me: BrokerId,
        view: MetadataView,
        ports: Ports,
        authorizer: Authorizer,
        is_ready: Callable[[], bool],
    ) -> None:
        self._me = me
        self._view = view
        self._ports = ports
        self._authorizer = authorizer
        self._is_ready = is_ready
        self._changes = MetadataChanges(me, view, self._was_proven)
        self.calls = CallMeter(ports.clock, ports.probe, ports.log_levels)
        self.logins: Authenticator | None = None  # None without an authorizer
        self.audit: AuditTrail | None = None  # None: off
        self.audit_topic: AuditSink | None = None
        self.tokens: TokenLogins | None = None  # None without an issuer of tokens
        self.quotas: QuotaLimits | None = None
        self.sources: Sources | None = None

    def _was_proven(self, key: PartitionKey, leader_epoch: LeaderEpoch) -> bool:
        active = None if self.sources is None else self.sources.member.active
        return active is not None and active.recovery.was_proven(key, leader_epoch)

    async def collect(self, *, per_partition: bool = True) -> list[Family]:
        """`per_partition`: whether to include series of single partitions."""
        families = [
            info("streamlog_build_info", "Release of this node.", {"version": RELEASE, "node_id": str(self._me)}),
            gauge("streamlog_ready", "1 while this node serves clients.", single(int(self._is_ready()))),
            *self.calls.families(),
            *self._changes.families(),
            *access_families(self._authorizer, self.logins, self.tokens),
            *quota_families(self.quotas),
            *audit_families(self.audit, self._ports.audit, self.audit_topic),
            *span_families(self._ports.tracing),
        ]
        sources = self.sources
        if sources is None:
            return families
        families += quorum_families(sources.member, self._view, self._me)
        families += clock_families(sources.clock)
        families += disk_families(self._ports.fs, sources.directories)
        families += integrity_families(sources.directories, sources.replicas)
        families += client_bound_families(sources.bounds)
        families += await partition_families(sources.replicas, sources.links, per_partition=per_partition)
        families += await group_families(sources.groups, sources.replicas, per_partition=per_partition)
        families += await transaction_families(sources.transactions, sources.clock.wall_ms())
        return families
