"""The admin client: topics, configs, partitions, nodes; groups and transactions. Any node answers any of these calls.

    AsyncAdmin -> requests -> message -> AnyNode -> a node -> message -> answers -> AsyncAdmin

Methods for several things return a result for each, errors included, and raise only where the call failed as a whole.
Those for one thing (`create_topic`, `describe_topic`, ...) raise its error.

A change is visible on the node that answered when the method returns, and on other nodes shortly after. Lists are
returned whole: the client fetches all their pages.

    async with AsyncAdmin(bootstrap_servers="127.0.0.1:9092") as admin:
        await admin.create_topic("orders", partitions=3)

It has no state but its connections, so any number of tasks may use it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Never, Protocol, Self, TypeVar

from streamlog.api.calls import Message, UnaryCall, unary
from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.pb import cluster_pb2
from streamlog.client import settings as client_config
from streamlog.client.admin import answers, requests, values
from streamlog.client.admin.access import AccessAdmin
from streamlog.client.admin.arguments import checked
from streamlog.client.admin.groups import GroupAdmin
from streamlog.client.admin.loggers import LoggerAdmin
from streamlog.client.admin.paging import next_token
from streamlog.client.admin.quotas import QuotaAdmin
from streamlog.client.admin.records import RecordAdmin
from streamlog.client.admin.transactions import TransactionAdmin
from streamlog.client.connection.any_node import AnyNode, AskTimes
from streamlog.client.connection.client_ports import ClientPorts, RealPorts, real_ports
from streamlog.client.connection.connections import Connections
from streamlog.config import load_admin
from streamlog.config.settings import client_settings, consumer_settings
from streamlog.errors import ClientClosedError, StreamlogError
from streamlog.model import Offset, PartitionId, TopicId, TopicPartition

_ADMIN: Final = "streamlog.v1.Admin"
_CREATE_TOPICS: Final = unary(f"{_ADMIN}/CreateTopics", pb.CreateTopicsResponse)
_DELETE_TOPICS: Final = unary(f"{_ADMIN}/DeleteTopics", pb.DeleteTopicsResponse)
_LIST_TOPICS: Final = unary(f"{_ADMIN}/ListTopics", pb.ListTopicsResponse)
_DESCRIBE_TOPICS: Final = unary(f"{_ADMIN}/DescribeTopics", pb.DescribeTopicsResponse)
_CREATE_PARTITIONS: Final = unary(f"{_ADMIN}/CreatePartitions", pb.CreatePartitionsResponse)
_DESCRIBE_CONFIGS: Final = unary(f"{_ADMIN}/DescribeConfigs", pb.DescribeConfigsResponse)
_ALTER_CONFIGS: Final = unary(f"{_ADMIN}/AlterConfigs", pb.AlterConfigsResponse)
_ELECT_LEADERS: Final = unary(f"{_ADMIN}/ElectLeaders", pb.ElectLeadersResponse)
_ALTER_PARTITION_REASSIGNMENTS: Final = unary(
    f"{_ADMIN}/AlterPartitionReassignments", pb.AlterPartitionReassignmentsResponse
)
_LIST_PARTITION_REASSIGNMENTS: Final = unary(
    f"{_ADMIN}/ListPartitionReassignments", pb.ListPartitionReassignmentsResponse
)
_DIGEST_REPLICAS: Final = unary(f"{_ADMIN}/DigestReplicas", pb.DigestReplicasResponse)
_REPAIR_REPLICAS: Final = unary(f"{_ADMIN}/RepairReplicas", pb.RepairReplicasResponse)
_DESCRIBE_CLUSTER: Final = unary(f"{_ADMIN}/DescribeCluster", pb.DescribeClusterResponse)
_ALTER_REPLICA_LOG_DIRS: Final = unary(f"{_ADMIN}/AlterReplicaLogDirs", pb.AlterReplicaLogDirsResponse)
_DESCRIBE_LOG_DIRS: Final = unary(f"{_ADMIN}/DescribeLogDirs", pb.DescribeLogDirsResponse)
_DRAIN_NODE: Final = unary(f"{_ADMIN}/DrainNode", pb.DrainNodeResponse)
_UNREGISTER_NODE: Final = unary(f"{_ADMIN}/UnregisterNode", pb.UnregisterNodeResponse)
_UPDATE_METADATA_VERSION: Final = unary(f"{_ADMIN}/UpdateMetadataVersion", pb.UpdateMetadataVersionResponse)
_ADD_VOTER: Final = unary(f"{_ADMIN}/AddVoter", pb.AddVoterResponse)
_REMOVE_VOTER: Final = unary(f"{_ADMIN}/RemoveVoter", pb.RemoveVoterResponse)
_DESCRIBE: Final = unary("streamlog.v1.Cluster/Describe", cluster_pb2.ClusterDescribeResponse)
# A bound on the requests of an election in all partitions that need one: each response covers a part of them.
_ELECTION_ROUNDS_MAX: Final = 1_000
_NODES_AT_ONCE: Final = 16
_TOPICS_AT_ONCE: Final = 2_000
"""As many as a node accepts in a request."""
_SET_BY_START: Final = frozenset({"_attempt_s", "_backoff", "_clock", "_connections", "_nodes", "_total_s", "_workers"})


class _Result(Protocol):
    @property
    def error(self) -> StreamlogError | None: ...


Page = TypeVar("Page", pb.ListTopicsResponse, pb.DescribeTopicsResponse, pb.ListPartitionReassignmentsResponse)
Result = TypeVar("Result", bound=_Result)


@checked
class AsyncAdmin(AccessAdmin, GroupAdmin, LoggerAdmin, QuotaAdmin, RecordAdmin, TransactionAdmin):
    """Settings by Kafka's names: `bootstrap_servers="host:port,..."`, or `{"bootstrap.servers": ...}`.

    All methods raise StreamlogError. Open it by `start`, or `async with`; it belongs to one event loop then.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        ports: ClientPorts | None = None,
        unreachable_s: float | None = None,
        client_version: str = "",
        **settings: object,
    ) -> None:
        """InvalidConfigError. `ports`: of a simulation; None: the real ones. `unreachable_s`: timeout while no node at
        all can be reached; None: default.api.timeout.ms, as for any call. `client_version`: for the nodes' logs.
        """
        self._config = client_config.loaded(load_admin, config, settings)
        if self._config[client_settings.TRACING_ENABLE]:
            client_config.tracing("calls")
        self._given_ports = ports
        self._own_ports: RealPorts | None = None
        self._unreachable_s = unreachable_s
        self._client_version = client_version

    async def start(self) -> Self:
        """Does not wait for a connection."""
        ports = self._given_ports
        if ports is None:
            ports = self._own_ports = real_ports(self._config)
        self._clock = ports.clock
        self._workers = ports.workers
        backoff = self._backoff = client_config.backoff(self._config, ports.random)
        network = client_config.calling_network(self._config, ports.network)
        self._connections = Connections(
            network, ports.clock, ports.random, client_config.bootstrap(self._config), backoff=backoff
        )
        total_s = self._total_s = self._config[consumer_settings.DEFAULT_API_TIMEOUT_MS] / 1000
        self._attempt_s = self._config[client_settings.REQUEST_TIMEOUT_MS] / 1000
        times = AskTimes(
            total_s=total_s,
            attempt_s=self._attempt_s,
            unreachable_s=total_s if self._unreachable_s is None else self._unreachable_s,
        )
        self._nodes = AnyNode(self._connections, ports.clock, backoff, times)
        return self

    def __getattr__(self, name: str) -> Never:
        """Only looked up for what `start` sets."""
        if name in _SET_BY_START:
            raise ClientClosedError("the admin client is not started: use `async with`, or await start()")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    async def close(self) -> None:
        """Calls under way fail with ClientClosedError or NetworkError. Does nothing before `start`."""
        if "_connections" in self.__dict__:
            await self._connections.close()
        if self._own_ports is not None:
            await self._own_ports.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- topics

    async def create_topics(
        self, topics: Iterable[values.NewTopic], *, validate_only: bool = False
    ) -> tuple[values.CreatedTopic, ...]:
        """Each is created as a whole or not at all. `validate_only`: check everything, change nothing."""
        request = requests.create_topics(topics, validate_only=validate_only)
        return answers.created(await self._nodes.ask(_CREATE_TOPICS, request))

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        *,
        configs: Mapping[str, str] | None = None,
    ) -> values.CreatedTopic:
        topic = values.NewTopic(
            name=name, partitions=partitions, replication_factor=replication_factor, configs=configs or {}
        )
        return _only(await self.create_topics([topic]))

    async def delete_topics(
        self, names: Iterable[str] = (), *, topic_ids: Iterable[TopicId] = ()
    ) -> tuple[values.DeletedTopic, ...]:
        """Topics and all their records. Results: first those by name, then those by id."""
        request = requests.delete_topics(names, topic_ids)
        return answers.deleted(await self._nodes.ask(_DELETE_TOPICS, request))

    async def delete_topic(self, name: str) -> values.DeletedTopic:
        return _only(await self.delete_topics([name]))

    async def list_topics(self, *, include_internal: bool = False) -> tuple[values.TopicListing, ...]:
        """In ascending order of names."""

        def request(token: str) -> pb.ListTopicsRequest:
            return pb.ListTopicsRequest(include_internal=include_internal, page_token=token)

        pages = self._pages(_LIST_TOPICS, request)
        return tuple([answers.listing(row) async for page in pages for row in page.topics])

    async def describe_topics(
        self, names: Iterable[str] = (), *, topic_ids: Iterable[TopicId] = ()
    ) -> tuple[values.TopicDescription, ...]:
        """In ascending order of names. Without names and ids: all but internal topics."""
        wanted, ids = list(names), list(topic_ids)
        found: list[values.TopicDescription] = []
        for first in range(0, len(wanted) + len(ids) or 1, _TOPICS_AT_ONCE):
            end = first + _TOPICS_AT_ONCE
            some_ids = ids[max(0, first - len(wanted)) : max(0, end - len(wanted))]
            found += await self._described(wanted[first:end], some_ids)
        return tuple(sorted(found, key=lambda one: one.name))

    async def _described(self, names: list[str], ids: list[TopicId]) -> list[values.TopicDescription]:
        def request(token: str) -> pb.DescribeTopicsRequest:
            return pb.DescribeTopicsRequest(topics=names, topic_ids=ids, page_token=token)

        parts: list[list[pb.TopicDescription]] = []
        async for page in self._pages(_DESCRIBE_TOPICS, request):
            for part in page.topics:
                if parts and _continues(parts[-1], part):
                    parts[-1].append(part)
                else:
                    parts.append([part])
        return [answers.topic(topic) for topic in parts]

    async def describe_topic(self, name: str) -> values.TopicDescription:
        return _only(await self.describe_topics([name]))

    async def create_partitions(
        self, growths: Iterable[values.TopicGrowth], *, validate_only: bool = False
    ) -> tuple[values.GrownTopic, ...]:
        """Partition counts can only grow: InvalidPartitionsError."""
        request = requests.create_partitions(growths, validate_only=validate_only)
        return answers.grown(await self._nodes.ask(_CREATE_PARTITIONS, request))

    async def grow_topic(self, topic: str, partition_count: int) -> None:
        """To this number of partitions in all."""
        _only(await self.create_partitions([values.TopicGrowth(topic=topic, partition_count=partition_count)]))

    # -- configs

    async def describe_configs(
        self, resources: Iterable[values.ConfigResource], *, names: Iterable[str] = ()
    ) -> tuple[values.ConfigDescription, ...]:
        """`names`: only these configs; none: all."""
        request = requests.describe_configs(resources, names)
        return answers.configs(await self._nodes.ask(_DESCRIBE_CONFIGS, request))

    async def alter_configs(
        self, alterations: Iterable[values.ConfigAlteration], *, validate_only: bool = False
    ) -> tuple[values.AlteredConfig, ...]:
        """Configs that are not named stay as they are."""
        request = requests.alter_configs(alterations, validate_only=validate_only)
        return answers.altered(await self._nodes.ask(_ALTER_CONFIGS, request))

    async def alter_config(self, resource: values.ConfigResource, changes: Sequence[values.ConfigChange]) -> None:
        _only(await self.alter_configs([values.ConfigAlteration(resource=resource, changes=changes)]))

    # -- partitions

    async def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        kind: values.ElectionType = values.ElectionType.PREFERRED,
    ) -> tuple[values.Election, ...]:
        """None: all partitions that need it; only those that got a leader are returned."""
        if partitions is not None:
            named = list(partitions)
            return await self._elect(kind, named) if named else ()
        elected: list[values.Election] = []
        for _ in range(_ELECTION_ROUNDS_MAX):
            some = await self._elect(kind, [])
            elected += some
            if not any(one.error is None for one in some):
                break
        return tuple(elected)

    async def preview_unclean_election(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> tuple[values.Election, ...]:
        """The candidates of an unclean election, the one that would win now, and the records that each would lose.
        Changes nothing. None: all partitions that have no leader, up to 2,000.
        """
        named = [] if partitions is None else list(partitions)
        if partitions is not None and not named:
            return ()
        request = requests.elect_leaders(values.ElectionType.UNCLEAN, named, dry_run=True)
        return answers.elections(await self._nodes.ask(_ELECT_LEADERS, request))

    async def _elect(self, kind: values.ElectionType, partitions: list[TopicPartition]) -> tuple[values.Election, ...]:
        request = requests.elect_leaders(kind, partitions)
        return answers.elections(await self._nodes.ask(_ELECT_LEADERS, request))

    async def alter_partition_reassignments(
        self, reassignments: Iterable[values.Reassignment]
    ) -> tuple[values.ReassignmentResult, ...]:
        """Start to move replicas, or cancel a move. Returns before the data is copied."""
        request = requests.alter_reassignments(reassignments)
        response = await self._nodes.ask(_ALTER_PARTITION_REASSIGNMENTS, request)
        return answers.reassignments(response)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] = ()
    ) -> tuple[values.OngoingReassignment, ...]:
        """The moves under way, in ascending order of partitions. Without partitions: all."""
        wanted = requests.topic_partitions(partitions)

        def request(token: str) -> pb.ListPartitionReassignmentsRequest:
            return pb.ListPartitionReassignmentsRequest(partitions=wanted, page_token=token)

        pages = self._pages(_LIST_PARTITION_REASSIGNMENTS, request)
        return tuple([answers.ongoing(row) async for page in pages for row in page.reassignments])

    async def digest_replicas(
        self,
        topic: str,
        partition: int,
        *,
        start_offset: int | None = None,
        end_offset: int | None = None,
        timeout_s: float | None = None,
    ) -> values.PartitionDigests:
        """Each replica reads its log from the disk. None: from the highest log start, to the lowest high watermark."""
        at = TopicPartition(topic, PartitionId(partition))
        start = None if start_offset is None else Offset(start_offset)
        end = None if end_offset is None else Offset(end_offset)
        response = await self._nodes.ask(
            _DIGEST_REPLICAS,
            requests.digest_replicas(at, start, end),
            timeout_s=timeout_s,
        )
        return answers.digests(at, response)

    async def repair_replicas(
        self, topic: str, partition: int, *, dry_run: bool = False, timeout_s: float | None = None
    ) -> values.PartitionRepairs:
        """Each replica reads its log from the disk; damaged ranges are fetched from another replica that is in sync.
        `dry_run`: only report them (the nodes then repair them by themselves shortly after).
        """
        at = TopicPartition(topic, PartitionId(partition))
        request = pb.RepairReplicasRequest(topic=topic, partition=partition, dry_run=dry_run)
        return answers.repairs(at, await self._nodes.ask(_REPAIR_REPLICAS, request, timeout_s=timeout_s))

    # -- nodes

    async def describe_cluster(self) -> values.ClusterDescription:
        response = await self._nodes.ask(_DESCRIBE_CLUSTER, pb.DescribeClusterRequest())
        cluster = answers.cluster(response)
        self._nodes.learn(node.address for node in cluster.nodes if node.state is values.NodeState.ACTIVE)
        return cluster

    async def describe_node(self) -> values.NodeRelease:
        """Release, features and limits of the node that answers."""
        request = cluster_pb2.ClusterDescribeRequest(client_version=self._client_version)
        return answers.release(await self._nodes.ask(_DESCRIBE, request))

    async def describe_log_dirs(
        self, node_ids: Iterable[int] = (), *, topics: Iterable[str] = ()
    ) -> tuple[values.NodeLogDirs, ...]:
        """In ascending order of node ids. Without ids: all running nodes; without topics: all replicas.

        Each node has a request of its own, since a response is at most 1 MiB.
        """
        wanted = sorted({requests.int32(node_id, "node_ids") for node_id in node_ids})
        named = list(topics)
        if not wanted:
            nodes = (await self.describe_cluster()).nodes
            wanted = sorted(node.node_id for node in nodes if node.state is not values.NodeState.FENCED)
        found: list[values.NodeLogDirs] = []
        for first in range(0, len(wanted), _NODES_AT_ONCE):
            some = [
                self._nodes.ask(_DESCRIBE_LOG_DIRS, pb.DescribeLogDirsRequest(node_ids=[node], topics=named))
                for node in wanted[first : first + _NODES_AT_ONCE]
            ]
            for response in await asyncio.gather(*some):
                found += answers.log_dirs(response)
        return tuple(found)

    async def alter_replica_log_dirs(
        self, moves: Mapping[values.ReplicaOnNode, str]
    ) -> tuple[values.ReplicaLogDirResult, ...]:
        """Move replicas to other log directories of their nodes, given as in `log.dirs`; for the directory where it is
        already, the move of a replica is cancelled. Copying continues after the response: see `describe_log_dirs`.
        """
        wanted = [
            pb.ReplicaLogDir(topic=at.topic, partition=at.partition, node_id=at.node_id, log_dir=path)
            for at, path in moves.items()
        ]
        request = pb.AlterReplicaLogDirsRequest(replicas=wanted)
        return answers.replica_log_dirs(await self._nodes.ask(_ALTER_REPLICA_LOG_DIRS, request))

    async def drain_node(self, node_id: int) -> values.DrainProgress:
        """Start to move all replicas away from a node, or report the progress. Returns before they have moved."""
        return await self._drain(node_id, pb.DRAIN_ACTION_START)

    async def cancel_drain(self, node_id: int) -> values.DrainProgress:
        """Moved replicas stay, moves under way are cancelled, and the node may be assigned new ones."""
        return await self._drain(node_id, pb.DRAIN_ACTION_CANCEL)

    async def drain_progress(self, node_id: int) -> values.DrainProgress:
        """Changes nothing."""
        return await self._drain(node_id, pb.DRAIN_ACTION_SHOW)

    async def _drain(self, node_id: int, action: pb.DrainAction.ValueType) -> values.DrainProgress:
        request = pb.DrainNodeRequest(node_id=requests.int32(node_id, "node_id"), action=action)
        return answers.drain(await self._nodes.ask(_DRAIN_NODE, request))

    async def unregister_node(self, node_id: int) -> None:
        """Remove the registration of a node that will not return. It must be stopped, and have no replicas."""
        request = pb.UnregisterNodeRequest(node_id=requests.int32(node_id, "node_id"))
        await self._nodes.ask(_UNREGISTER_NODE, request)

    async def add_voter(
        self, node_id: int, *, address: str = "", replaced_node_id: int | None = None
    ) -> tuple[values.VoterDescription, ...]:
        """Returns when the node has caught up with the quorum, with all voters. `address`: of its server, where it is
        not the registered one; `replaced_node_id`: a voter that is permanently lost, which it replaces.
        """
        request = pb.AddVoterRequest(node_id=requests.int32(node_id, "node_id"), address=address)
        if replaced_node_id is not None:
            request.replaced_node_id = requests.int32(replaced_node_id, "replaced_node_id")
        return answers.voters((await self._nodes.ask(_ADD_VOTER, request)).voters)

    async def remove_voter(self, node_id: int) -> tuple[values.VoterDescription, ...]:
        """Returns all voters. The node remains a broker."""
        response = await self._nodes.ask(
            _REMOVE_VOTER, pb.RemoveVoterRequest(node_id=requests.int32(node_id, "node_id"))
        )
        return answers.voters(response.voters)

    async def update_metadata_version(self, level: int = 0) -> int:
        """0: to the highest level that all nodes support. Returns the new level."""
        request = pb.UpdateMetadataVersionRequest(level=requests.int32(level, "level"))
        response = await self._nodes.ask(_UPDATE_METADATA_VERSION, request)
        return response.level

    # -- pages

    async def _pages(self, call: UnaryCall[Page], request: Callable[[str], Message]) -> AsyncIterator[Page]:
        """All pages; `request` makes the request for the page of a token."""
        token = ""
        while True:
            page = await self._nodes.ask(call, request(token))
            yield page
            token = next_token(page, token)
            if not token:
                return


def _only(results: Sequence[Result]) -> Result:
    """The only result. Raises its error, where it has one."""
    result = answers.only(results)
    if result.error is not None:
        raise result.error
    return result


def _continues(parts: Sequence[pb.TopicDescription], part: pb.TopicDescription) -> bool:
    """The same topic on the next page."""
    return parts[0].name == part.name and parts[0].topic_id == part.topic_id and not part.HasField("error")
