"""The replicas of a node, the streams between nodes, and the services for clients.

    open      opens and recovers the logs; no metadata is needed
    run       replicas follow the metadata, streams are served and kept open, ISR changes go to the controller
    close     syncs and closes the logs

A failure of any of them stops the node, except that of one log directory among several.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from streamlog.api.service import Service
from streamlog.broker.following.follower_links import FollowerLinks
from streamlog.broker.leading.isr_changes import IsrChanges
from streamlog.broker.leading.replication_service import ReplicationService
from streamlog.broker.producer_id_blocks import ProducerIdBlocks
from streamlog.broker.table.replicas import Replicas
from streamlog.broker.throttle import Throttle
from streamlog.config.settings import node_settings as settings
from streamlog.controller import ControllerLink
from streamlog.coordinator.groups import GroupCoordinator
from streamlog.coordinator.transactions import TransactionCoordinator
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerEpoch, BrokerId
from streamlog.node.metrics import Sources
from streamlog.node.quorum_clock import QuorumClock
from streamlog.node.quorum_member import QuorumMember
from streamlog.node.suspicions import Suspicions
from streamlog.ports import Ports
from streamlog.release import RELEASE
from streamlog.services.access.authorizer import Authorizer
from streamlog.services.all_services import NodeParts, all_services
from streamlog.services.common.client_bounds import ClientBounds
from streamlog.services.common.forwarding import Peers
from streamlog.services.quotas.limits import QuotaLimits
from streamlog.services.quotas.shares import QuotaShares
from streamlog.services.transactions.markers import LocalMarkers, MarkerLinks
from streamlog.storage.directories.directories import LogDirectories


class DataPlane:
    def __init__(
        self,
        node_id: BrokerId,
        cluster_id: str,
        directories: LogDirectories,
        *,
        view: MetadataView,
        configs: NodeConfigs,
        link: ControllerLink,
        ports: Ports,
        clock: QuorumClock,
        authorizer: Authorizer,
        limits: QuotaLimits,
    ) -> None:
        self._node_id = node_id
        self._directories = directories
        self._view = view
        self._configs = configs
        self._link = link
        self._clock = clock
        self._authorizer = authorizer
        ports = replace(ports, clock=clock)
        self._ports = ports
        config = configs.node
        self._sending = Throttle(ports.clock, config[settings.LEADER_REPLICATION_THROTTLED_RATE])
        self._receiving = Throttle(ports.clock, config[settings.FOLLOWER_REPLICATION_THROTTLED_RATE])
        self._suspicions = Suspicions(link, view, ports.probe)
        self._links = FollowerLinks(
            node_id,
            cluster_id,
            view,
            broker_epoch=lambda: link.broker_epoch,
            throttle=self._receiving,
            on_broken=self._suspicions.suspect,
            network=ports.network,
            clock=ports.clock,
            random=ports.random,
            probe=ports.probe,
            tracing=ports.tracing,
        )
        self._isr_changes = IsrChanges(link, view, node_id, clock=ports.clock, random=ports.random, probe=ports.probe)
        self.replicas = Replicas(
            node_id,
            directories,
            view,
            configs,
            self._links,
            self._isr_changes,
            link,
            ports,
            lambda: clock.may_delete_by_time,
        )
        self._bounds = ClientBounds.of(config)
        self._peers = Peers(view, ports.network)  # for clients' calls that go on to other nodes
        self._quotas = QuotaShares(node_id, view, limits, self._peers, ports.clock)
        self._groups = GroupCoordinator(self.replicas, view, configs, ports.clock, ports.probe)
        self._producer_ids = ProducerIdBlocks(link)
        self._local_markers = LocalMarkers(self.replicas, self._groups)
        markers = MarkerLinks(node_id, self._local_markers, self._peers)
        self._transactions = TransactionCoordinator(self.replicas, view, configs, self._producer_ids, markers, ports)
        self._replication = ReplicationService(
            node_id,
            cluster_id,
            view,
            self.replicas,
            self._isr_changes,
            throttle=self._sending,
            fetch_bytes_max=lambda: configs.node[settings.REPLICA_FETCH_MAX_BYTES],
            broker_epoch=lambda: link.broker_epoch,
            on_broken=self._suspicions.suspect,
            clock=ports.clock,
            probe=ports.probe,
        )

    def _clock_skews(self) -> Mapping[BrokerId, int]:
        own = self._clock.skew_ms
        return {**self._clock.skews, **({} if own is None else {self._node_id: own})}

    async def open(self) -> None:
        """InconsistentClusterError, StorageError."""
        await self.replicas.open()

    @property
    def clean_epoch(self) -> BrokerEpoch | None:
        """After `open`: the broker epoch of the clean stop before this start; None: the stop was not clean."""
        return self.replicas.clean_epoch

    async def run(self) -> None:
        """Runs until cancelled; StorageError when the last log directory has failed."""
        stop = self._configs.listen(self._on_configs)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._links.run())
                tasks.create_task(self._isr_changes.run(self.replicas.leaders))
                tasks.create_task(self._suspicions.run())
                tasks.create_task(self.replicas.run())
                tasks.create_task(self._groups.run())
                tasks.create_task(self._transactions.run())
                tasks.create_task(self._quotas.run())
        finally:
            stop()

    def services(self, member: QuorumMember) -> Sequence[Service]:
        parts = NodeParts(
            node_id=self._node_id,
            release=RELEASE,
            ports=self._ports,
            clock_skews=self._clock_skews,
            view=self._view,
            configs=self._configs,
            bounds=self._bounds,
            traffic=self.replicas.traffic,
            partitions=self.replicas,
            disks=self.replicas,
            deleting=self.replicas,
            controller=member,
            link=self._link,
            quorum=member,
            producer_ids=self._producer_ids,
            groups=self._groups,
            transactions=self._transactions,
            local_markers=self._local_markers,
            internal_topics=self._link,
            authorizer=self._authorizer,
            peers=self._peers,
            quotas=self._quotas,
        )
        return [self._replication.service(), *all_services(parts)]

    def metric_sources(self, member: QuorumMember) -> Sources:
        return Sources(
            member=member,
            replicas=self.replicas,
            directories=self._directories,
            groups=self._groups,
            transactions=self._transactions,
            bounds=self._bounds,
            links=self._links,
            clock=self._clock,
        )

    async def close(self, broker_epoch: BrokerEpoch | None) -> None:
        """After `run` has ended. With a broker epoch the log directories are marked as cleanly stopped."""
        await self._peers.close()
        await self.replicas.close(broker_epoch)

    def _on_configs(self, topics: Sequence[str] | None) -> None:
        if topics is None:
            config = self._configs.node
            self._sending.set_rate(config[settings.LEADER_REPLICATION_THROTTLED_RATE])
            self._receiving.set_rate(config[settings.FOLLOWER_REPLICATION_THROTTLED_RATE])
            self._links.on_rate_changed()


def directory_ids(directories: LogDirectories) -> tuple[bytes, ...]:
    """In the form of the metadata: 16 bytes each, ascending."""
    texts = [directory.meta.directory_id for directory in directories]
    return tuple(sorted(base64.urlsafe_b64decode(f"{text}==") for text in texts))
