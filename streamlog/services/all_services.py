"""Constructs all services of a node for clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from streamlog.api.pb import (
    admin_pb2,
    batches_pb2,
    cluster_pb2,
    coordination_pb2,
    groups_pb2,
    records_pb2,
    transactions_pb2,
)
from streamlog.api.service import Method, Service
from streamlog.broker.append.admission import QueuedBytes
from streamlog.client.connection.backoff import Backoff
from streamlog.config.settings.node_settings import (
    SOCKET_REQUEST_MAX_BYTES,
)
from streamlog.coordinator.groups import GroupCoordinator
from streamlog.coordinator.transaction_shard import ProducerIdSequence
from streamlog.coordinator.transactions import TransactionCoordinator
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.metadata.view import MetadataView
from streamlog.metrics import Traffic
from streamlog.model import BrokerId
from streamlog.ports import Ports
from streamlog.services.admin.access import AccessCommands, AccessTest
from streamlog.services.admin.cluster import ClusterService
from streamlog.services.admin.configs import ConfigDescriptions
from streamlog.services.admin.controller_commands import ControllerDispatch
from streamlog.services.admin.groups import GroupQueries
from streamlog.services.admin.loggers import LoggerCommands
from streamlog.services.admin.nodes import Disks, NodeQueries
from streamlog.services.admin.quotas import QuotaCommands
from streamlog.services.admin.reads import ClusterReads
from streamlog.services.admin.record_deletion import DeletingReplicas, RecordDeletions
from streamlog.services.admin.service import AdminService, ControllerCalls
from streamlog.services.admin.transactions import OpenPartitions, TransactionQueries
from streamlog.services.admin.voters import VoterCommands
from streamlog.services.batches.fetch import FetchHandler
from streamlog.services.batches.fetch_stream import FetchStreams
from streamlog.services.batches.metadata import MetadataHandler
from streamlog.services.batches.offsets import OffsetsHandler
from streamlog.services.batches.partition_leader import PartitionLeaders
from streamlog.services.batches.produce import ProduceHandler
from streamlog.services.batches.produce_stream import ProduceStreams
from streamlog.services.batches.producer_ids import InitProducerId
from streamlog.services.batches.service import BatchesService
from streamlog.services.batches.transaction_verification import Openings, Verifier
from streamlog.services.batches.watch_metadata import WatchMetadata
from streamlog.services.common.auto_create import AutoCreate
from streamlog.services.common.client_bounds import ClientBounds
from streamlog.services.common.collaborators import (
    CommandSubmitter,
    ControllerAccess,
    InternalTopics,
    QuorumVoters,
)
from streamlog.services.common.forwarding import Peers
from streamlog.services.common.outgoing import OutgoingBytes
from streamlog.services.common.own_node import OwnNode
from streamlog.services.common.paging import TopicNames
from streamlog.services.groups.service import GroupsService
from streamlog.services.quotas.shares import QuotaShares
from streamlog.services.records.consuming.consume import ConsumeHandler
from streamlog.services.records.feeds import FeedSource
from streamlog.services.records.publish import Preparation, PublishHandler
from streamlog.services.records.publish_stream import PublishStreams
from streamlog.services.records.publish_transactions import TransactionalStreams
from streamlog.services.records.routed_writes import RoutedWriter
from streamlog.services.records.service import RecordsService
from streamlog.services.records.subscribe import SubscribeHandler
from streamlog.services.transactions.coordination import CoordinationService
from streamlog.services.transactions.markers import LocalMarkers
from streamlog.services.transactions.service import TransactionsService


class NodeParts(Struct, frozen=True, kw_only=True):
    """What a node passes to its services."""

    node_id: BrokerId
    release: str  # such as `0.1.0`
    ports: Ports
    view: MetadataView
    configs: NodeConfigs
    bounds: ClientBounds
    traffic: Traffic
    partitions: OpenPartitions
    disks: Disks
    deleting: DeletingReplicas
    controller: CommandSubmitter
    link: ControllerAccess
    quorum: QuorumVoters
    producer_ids: ProducerIdSequence
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    local_markers: LocalMarkers
    internal_topics: InternalTopics
    clock_skews: Callable[[], Mapping[BrokerId, int]] = dict  # by how much nodes' clocks are ahead, in ms
    authorizer: AccessTest
    peers: Peers  # closed by the node, after its services
    quotas: QuotaShares


def all_services(parts: NodeParts) -> list[Service]:
    """For `Network.listen`, through streamlog.api.service."""
    node = parts.configs.node
    slots, queued, outgoing = parts.bounds.slots, parts.bounds.queued, parts.bounds.outgoing
    names = TopicNames()
    peers = parts.peers
    admin = _admin(parts, names, peers)
    auto_create = AutoCreate(parts.view, parts.configs, admin.commands.create_topics)
    verifier = Verifier(parts.node_id, parts.transactions, peers)
    batches = _batches(parts, names, queued, outgoing, auto_create, verifier)
    cluster = ClusterService(
        parts.node_id,
        parts.release,
        parts.view,
        parts.configs,
        parts.ports.probe,
        authorizes=parts.authorizer.enabled,
    )

    groups = GroupsService(parts.node_id, parts.groups, parts.view, parts.link, parts.internal_topics, peers)
    transactions = TransactionsService(
        parts.node_id, parts.transactions, parts.groups, verifier, parts.view, parts.link, parts.internal_topics, peers
    )
    records = _records(parts, batches, transactions, auto_create, queued, outgoing, verifier)
    coordination = CoordinationService(parts.transactions, parts.local_markers, parts.quotas)

    def bounded(methods: list[Method]) -> list[Method]:
        return [slots.bounded(method) for method in methods]

    clock, request_bytes_max = parts.ports.clock, node[SOCKET_REQUEST_MAX_BYTES]
    return [
        Service(admin_pb2.DESCRIPTOR.services_by_name["Admin"], clock, bounded(admin.methods())),
        Service(batches_pb2.DESCRIPTOR.services_by_name["Batches"], clock, bounded(batches.methods(request_bytes_max))),
        Service(cluster_pb2.DESCRIPTOR.services_by_name["Cluster"], clock, bounded(cluster.methods())),
        Service(records_pb2.DESCRIPTOR.services_by_name["Records"], clock, bounded(records.methods(request_bytes_max))),
        Service(groups_pb2.DESCRIPTOR.services_by_name["Groups"], clock, bounded(groups.methods())),
        Service(transactions_pb2.DESCRIPTOR.services_by_name["Transactions"], clock, bounded(transactions.methods())),
        # Not bounded: transactions that clients have begun wait for these calls.
        Service(coordination_pb2.DESCRIPTOR.services_by_name["Coordination"], clock, coordination.methods()),
    ]


def _admin(parts: NodeParts, names: TopicNames, peers: Peers) -> AdminService:
    view, deciding = parts.view, ControllerDispatch(parts.controller, parts.link)
    return AdminService(
        link=parts.link,
        commands=ControllerCalls(deciding, view),
        reads=ClusterReads(view, names, parts.quorum, peers, parts.clock_skews),
        configs=ConfigDescriptions(parts.node_id, view, parts.configs, peers),
        voters=VoterCommands(deciding, parts.quorum, view, parts.ports.network),
        nodes=NodeQueries(parts.node_id, view, parts.disks, peers),
        deletions=RecordDeletions(parts.node_id, view, parts.deleting, peers),
        access=AccessCommands(deciding, view, parts.authorizer),
        quotas=QuotaCommands(deciding, view),
        loggers=LoggerCommands(parts.node_id, view, parts.ports.log_levels, peers),
        groups=GroupQueries(parts.node_id, parts.groups, view, parts.configs, peers),
        transactions=TransactionQueries(
            parts.node_id,
            parts.transactions,
            parts.partitions,
            parts.local_markers,
            view,
            parts.configs,
            parts.ports.clock,
            peers,
        ),
    )


def _batches(
    parts: NodeParts,
    names: TopicNames,
    queued: QueuedBytes,
    outgoing: OutgoingBytes,
    auto_create: AutoCreate,
    verifier: Verifier,
) -> BatchesService:
    view, leaders = parts.view, PartitionLeaders(parts.partitions, parts.view)
    openings = Openings(verifier)
    return BatchesService(
        metadata=MetadataHandler(view, names, auto_create),
        watch=WatchMetadata(view, names),
        produce=ProduceHandler(leaders, queued, openings, parts.ports.tracing),
        produce_streams=ProduceStreams(leaders, queued, openings, parts.ports.tracing),
        fetch=FetchHandler(leaders, parts.configs, outgoing, parts.ports.random),
        fetch_streams=FetchStreams(leaders, view, parts.configs, outgoing),
        offsets=OffsetsHandler(leaders),
        producer_ids=InitProducerId(
            parts.node_id, parts.producer_ids, parts.transactions, view, parts.internal_topics, parts.peers
        ),
    )


def _records(
    parts: NodeParts,
    batches: BatchesService,
    transactions: TransactionsService,
    auto_create: AutoCreate,
    queued: QueuedBytes,
    outgoing: OutgoingBytes,
    verifier: Verifier,
) -> RecordsService:
    view, ports, peers = parts.view, parts.ports, parts.peers
    backoff = Backoff(ports.random, first_s=0.02, longest_s=0.5)  # a fail-over takes less than a second
    preparation = Preparation(
        view,
        parts.configs,
        auto_create,
        ports.clock,
        ports.random,
        ports.workers,
        traced=ports.tracing is not None,
    )
    writer = RoutedWriter(
        parts.node_id, parts.partitions, view, peers, queued, Openings(verifier), ports.clock, backoff, ports.tracing
    )
    own_node = OwnNode(
        {
            "streamlog.v1.Batches/InitProducerId": batches.producer_ids.init_producer_id,
            "streamlog.v1.Transactions/EndTransaction": transactions.end_transaction,
            "streamlog.v1.Transactions/CommitTransactionOffsets": transactions.commit_offsets,
        },
        ports.clock,
    )
    transactional_streams = TransactionalStreams(
        preparation=preparation, writer=writer, own_node=own_node, clock=ports.clock, backoff=backoff
    )
    feeds = FeedSource(parts.node_id, batches.fetch_streams, peers)
    return RecordsService(
        publish=PublishHandler(preparation, writer, ports.clock),
        publish_streams=PublishStreams(
            preparation, writer, parts.producer_ids, ports.clock, transactional_streams.stream
        ),
        subscribe=SubscribeHandler(
            parts.node_id,
            view,
            auto_create,
            feeds,
            batches.offsets,
            peers,
            ports.workers,
            backoff,
            outgoing,
            parts.traffic,
        ),
        consume=ConsumeHandler(parts.node_id, view, ports, backoff, parts.traffic),
    )
