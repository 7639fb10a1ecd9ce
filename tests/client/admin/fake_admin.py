"""The Admin and Cluster services over a cluster in memory: the controller's real decisions, without quorum and nodes.

Tests set what no decision produces: log directories, digests, the values of configs.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import message_factory
from msgspec import structs

from streamlog.api.convert import view
from streamlog.api.convert.admin import configs, loggers, placement, topics
from streamlog.api.convert.admin.placement import DrainAction
from streamlog.api.errors import to_message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.pb import cluster_pb2
from streamlog.api.service import Call, Service, unary
from streamlog.errors import InvalidRequestError, StreamlogError, UnsupportedVersionError, VoterNotFoundError
from streamlog.metadata.brokers.drain import DrainBroker
from streamlog.metadata.cluster import UpdateMetadataVersion
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.partitions.drain_moves import progress
from streamlog.metadata.records import MetadataVersion
from streamlog.metadata.topics.internal_topics import INTERNAL_TOPICS
from streamlog.model import PartitionId
from streamlog.ports import Clock, LogLevels
from tests.metadata.rig import Rig

CLUSTER_ID = "cluster-of-tests"
_class = message_factory.GetMessageClass


class FakeAdmin:
    """Nodes 1, 2, 3 of it are up from the start."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.rig.start_all(1, 2, 3)
        self.page_size = 1_000  # of topics and moves in a list
        self.partitions_per_page = 1_000
        self.asked: list[str] = []  # names of methods
        self.fails_with: list[StreamlogError] = []  # the next calls fail so, whatever they ask for
        self.entries: dict[tuple[int, str], list[pb.ConfigEntry]] = {}
        self.log_dirs: list[pb.NodeLogDirs] = []
        self.levels = LogLevels()
        self.digests: dict[tuple[str, int], pb.DigestReplicasResponse] = {}
        self.repairs: dict[tuple[str, int], pb.RepairReplicasResponse] = {}
        self.voters = {1: "node1:9092", 2: "node2:9092"}
        self.last: Any = None  # the last request

    def services(self, clock: Clock) -> list[Service]:
        methods = [
            unary("CreateTopics", pb.CreateTopicsRequest, pb.CreateTopicsResponse, self._create_topics),
            unary("DeleteTopics", pb.DeleteTopicsRequest, pb.DeleteTopicsResponse, self._delete_topics),
            unary("ListTopics", pb.ListTopicsRequest, pb.ListTopicsResponse, self._list_topics),
            unary("DescribeTopics", pb.DescribeTopicsRequest, pb.DescribeTopicsResponse, self._describe_topics),
            unary("CreatePartitions", pb.CreatePartitionsRequest, pb.CreatePartitionsResponse, self._grow),
            unary("DescribeConfigs", pb.DescribeConfigsRequest, pb.DescribeConfigsResponse, self._describe_configs),
            unary("AlterConfigs", pb.AlterConfigsRequest, pb.AlterConfigsResponse, self._alter_configs),
            unary("ElectLeaders", pb.ElectLeadersRequest, pb.ElectLeadersResponse, self._elect),
            unary(
                "AlterPartitionReassignments",
                pb.AlterPartitionReassignmentsRequest,
                pb.AlterPartitionReassignmentsResponse,
                self._reassign,
            ),
            unary(
                "ListPartitionReassignments",
                pb.ListPartitionReassignmentsRequest,
                pb.ListPartitionReassignmentsResponse,
                self._list_moves,
            ),
            unary("DescribeCluster", pb.DescribeClusterRequest, pb.DescribeClusterResponse, self._describe_cluster),
            unary("DrainNode", pb.DrainNodeRequest, pb.DrainNodeResponse, self._drain),
            unary("UnregisterNode", pb.UnregisterNodeRequest, pb.UnregisterNodeResponse, self._unregister),
            unary(
                "UpdateMetadataVersion",
                pb.UpdateMetadataVersionRequest,
                pb.UpdateMetadataVersionResponse,
                self._update_version,
            ),
            unary("AddVoter", pb.AddVoterRequest, pb.AddVoterResponse, self._add_voter),
            unary("RemoveVoter", pb.RemoveVoterRequest, pb.RemoveVoterResponse, self._remove_voter),
            unary("DescribeLogDirs", pb.DescribeLogDirsRequest, pb.DescribeLogDirsResponse, self._describe_log_dirs),
            unary(
                "AlterReplicaLogDirs",
                pb.AlterReplicaLogDirsRequest,
                pb.AlterReplicaLogDirsResponse,
                self._alter_replica_log_dirs,
            ),
            unary("DigestReplicas", pb.DigestReplicasRequest, pb.DigestReplicasResponse, self._digest),
            unary("RepairReplicas", pb.RepairReplicasRequest, pb.RepairReplicasResponse, self._repair),
            unary(
                "DescribeBrokerLoggers",
                pb.DescribeBrokerLoggersRequest,
                pb.DescribeBrokerLoggersResponse,
                self._describe_loggers,
            ),
            unary(
                "AlterBrokerLoggers", pb.AlterBrokerLoggersRequest, pb.AlterBrokerLoggersResponse, self._alter_loggers
            ),
        ]
        admin = pb.DESCRIPTOR.services_by_name["Admin"]
        served = {method.name for method in methods}
        methods += [
            unary(method.name, _class(method.input_type), _class(method.output_type), self._not_here)
            for method in admin.methods
            if method.name not in served
        ]
        describe = unary(
            "Describe",
            cluster_pb2.ClusterDescribeRequest,
            cluster_pb2.ClusterDescribeResponse,
            self._describe_node,
        )
        return [
            Service(admin, clock, methods),
            Service(cluster_pb2.DESCRIPTOR.services_by_name["Cluster"], clock, [describe]),
        ]

    def _began(self, method: str, request: Any) -> None:
        self.asked.append(method)
        self.last = request
        if self.fails_with:
            raise self.fails_with.pop(0)

    async def _create_topics(self, request: pb.CreateTopicsRequest, call: Call) -> pb.CreateTopicsResponse:
        self._began("CreateTopics", request)
        return topics.created(self.rig.do(topics.create_topics(request)))

    async def _delete_topics(self, request: pb.DeleteTopicsRequest, call: Call) -> pb.DeleteTopicsResponse:
        self._began("DeleteTopics", request)
        return topics.deleted(self.rig.do(topics.delete_topics(request)))

    async def _list_topics(self, request: pb.ListTopicsRequest, call: Call) -> pb.ListTopicsResponse:
        self._began("ListTopics", request)
        known = [view.topic_listing(topic) for topic in self._topics()]
        rows = sorted((row for row in known if request.include_internal or not row.internal), key=lambda row: row.name)
        start = int(request.page_token or 0)
        end = start + self.page_size
        token = str(end) if end < len(rows) else ""
        return pb.ListTopicsResponse(topics=rows[start:end], next_page_token=token)

    async def _describe_topics(self, request: pb.DescribeTopicsRequest, call: Call) -> pb.DescribeTopicsResponse:
        """A page holds partitions of one topic alone; its token is topic and partition."""
        self._began("DescribeTopics", request)
        names = sorted(request.topics) or sorted(
            topic.name for topic in self._topics() if topic.name not in INTERNAL_TOPICS
        )
        at, _, first = (request.page_token or "0/0").partition("/")
        response = pb.DescribeTopicsResponse()
        if not names:
            return response
        name = names[int(at)]
        following = f"{int(at) + 1}/0" if int(at) + 1 < len(names) else ""
        try:
            topic = self.rig.image.require_topic(name)
        except StreamlogError as error:
            response.topics.add(name=name, error=to_message(error))
            response.next_page_token = following
            return response
        end = min(int(first) + self.partitions_per_page, len(topic.partitions))
        response.topics.append(view.topic_description(topic, self.rig.image, range(int(first), end)))
        response.next_page_token = following if end == len(topic.partitions) else f"{at}/{end}"
        return response

    async def _grow(self, request: pb.CreatePartitionsRequest, call: Call) -> pb.CreatePartitionsResponse:
        self._began("CreatePartitions", request)
        return topics.grown(self.rig.do(topics.create_partitions(request)))

    async def _describe_configs(self, request: pb.DescribeConfigsRequest, call: Call) -> pb.DescribeConfigsResponse:
        self._began("DescribeConfigs", request)
        response = pb.DescribeConfigsResponse()
        for resource in request.resources:
            entries = self.entries.get((resource.type, resource.name), [])
            named = [entry for entry in entries if not request.names or entry.name in request.names]
            response.resources.add(resource=resource, entries=named)
        return response

    async def _alter_configs(self, request: pb.AlterConfigsRequest, call: Call) -> pb.AlterConfigsResponse:
        self._began("AlterConfigs", request)
        return configs.altered(self.rig.do(configs.alter_configs(request)))

    async def _elect(self, request: pb.ElectLeadersRequest, call: Call) -> pb.ElectLeadersResponse:
        self._began("ElectLeaders", request)
        command = structs.replace(placement.elect_leaders(request), answers=self.rig.equal_answers())
        return placement.elected(self.rig.do(command))

    async def _reassign(
        self, request: pb.AlterPartitionReassignmentsRequest, call: Call
    ) -> pb.AlterPartitionReassignmentsResponse:
        self._began("AlterPartitionReassignments", request)
        return placement.reassigned(self.rig.do(placement.alter_reassignments(request)))

    async def _list_moves(
        self, request: pb.ListPartitionReassignmentsRequest, call: Call
    ) -> pb.ListPartitionReassignmentsResponse:
        self._began("ListPartitionReassignments", request)
        image = self.rig.image
        rows = [
            pb.OngoingReassignment(topic=topic.name, partition=view.partition(PartitionId(index), state, image))
            for topic in sorted(self._topics(), key=lambda topic: topic.name)
            for index, state in enumerate(topic.partitions)
            if state.adding or state.removing
        ]
        start = int(request.page_token or 0)
        end = start + self.page_size
        token = str(end) if end < len(rows) else ""
        return pb.ListPartitionReassignmentsResponse(reassignments=rows[start:end], next_page_token=token)

    async def _describe_cluster(self, request: pb.DescribeClusterRequest, call: Call) -> pb.DescribeClusterResponse:
        self._began("DescribeCluster", request)
        image = self.rig.image
        partitions = [state for topic in self._topics() for state in topic.partitions]
        return pb.DescribeClusterResponse(
            cluster_id=CLUSTER_ID,
            controller=1,
            nodes=[view.node_description(broker, image, "") for broker in image.brokers.values()],
            voters=self._voters(),
            quorum_term=3,
            commit_index=image.index,
            metadata_version=image.metadata_version,
            topic_count=len(self._topics()),
            partition_count=len(partitions),
            offline_partition_count=sum(state.leader < 0 for state in partitions),
            under_replicated_partition_count=sum(len(state.isr) < len(state.replicas) for state in partitions),
        )

    async def _drain(self, request: pb.DrainNodeRequest, call: Call) -> pb.DrainNodeResponse:
        self._began("DrainNode", request)
        node_id, action = placement.drain(request)
        if action is not DrainAction.SHOW:
            self.rig.do(DrainBroker(broker_id=node_id, cancel=action is DrainAction.CANCEL))
        broker = self.rig.image.require_broker(node_id)
        return placement.drained(progress(self.rig.image, node_id), draining=broker.draining)

    async def _unregister(self, request: pb.UnregisterNodeRequest, call: Call) -> pb.UnregisterNodeResponse:
        self._began("UnregisterNode", request)
        self.rig.do(placement.unregister(request))
        return pb.UnregisterNodeResponse()

    async def _update_version(
        self, request: pb.UpdateMetadataVersionRequest, call: Call
    ) -> pb.UpdateMetadataVersionResponse:
        self._began("UpdateMetadataVersion", request)
        self.rig.do(UpdateMetadataVersion(level=MetadataVersion(request.level or METADATA_VERSION_MAX)))
        return pb.UpdateMetadataVersionResponse(level=self.rig.image.metadata_version)

    async def _add_voter(self, request: pb.AddVoterRequest, call: Call) -> pb.AddVoterResponse:
        self._began("AddVoter", request)
        if request.HasField("replaced_node_id"):
            self._take_vote(request.replaced_node_id)
        self.voters[request.node_id] = request.address or f"node{request.node_id}:9092"
        return pb.AddVoterResponse(voters=self._voters())

    async def _remove_voter(self, request: pb.RemoveVoterRequest, call: Call) -> pb.RemoveVoterResponse:
        self._began("RemoveVoter", request)
        self._take_vote(request.node_id)
        return pb.RemoveVoterResponse(voters=self._voters())

    def _take_vote(self, node_id: int) -> None:
        if self.voters.pop(node_id, None) is None:
            raise VoterNotFoundError(f"node {node_id} does not vote", voter=node_id)

    def _voters(self) -> list[pb.VoterDescription]:
        """Only node 1's place in the log is known."""
        return [
            pb.VoterDescription(node_id=node_id, address=address, match_index=7 if node_id == 1 else -1)
            for node_id, address in sorted(self.voters.items())
        ]

    async def _alter_replica_log_dirs(
        self, request: pb.AlterReplicaLogDirsRequest, call: Call
    ) -> pb.AlterReplicaLogDirsResponse:
        self._began("AlterReplicaLogDirs", request)
        rows = [
            pb.ReplicaLogDirResult(
                topic=one.topic,
                partition=one.partition,
                node_id=one.node_id,
                error=None if one.log_dir == "/b" else to_message(InvalidRequestError("no such directory")),
            )
            for one in request.replicas
        ]
        return pb.AlterReplicaLogDirsResponse(replicas=rows)

    async def _describe_log_dirs(self, request: pb.DescribeLogDirsRequest, call: Call) -> pb.DescribeLogDirsResponse:
        self._began("DescribeLogDirs", request)
        if len(request.node_ids) != 1:
            raise InvalidRequestError("the replicas of 3 nodes exceed 1048576 bytes: request fewer nodes or topics")
        nodes = [node for node in self.log_dirs if node.node_id in request.node_ids]
        return pb.DescribeLogDirsResponse(nodes=nodes)

    async def _digest(self, request: pb.DigestReplicasRequest, call: Call) -> pb.DigestReplicasResponse:
        self._began("DigestReplicas", request)
        return self.digests[request.topic, request.partition]

    async def _repair(self, request: pb.RepairReplicasRequest, call: Call) -> pb.RepairReplicasResponse:
        self._began("RepairReplicas", request)
        return self.repairs[request.topic, request.partition]

    async def _describe_loggers(
        self, request: pb.DescribeBrokerLoggersRequest, call: Call
    ) -> pb.DescribeBrokerLoggersResponse:
        self._began("DescribeBrokerLoggers", request)
        return pb.DescribeBrokerLoggersResponse(loggers=loggers.described(self.levels.loggers()))

    async def _alter_loggers(self, request: pb.AlterBrokerLoggersRequest, call: Call) -> pb.AlterBrokerLoggersResponse:
        self._began("AlterBrokerLoggers", request)
        self.levels.alter(loggers.alterations(request))
        return pb.AlterBrokerLoggersResponse(loggers=loggers.described(self.levels.loggers()))

    async def _not_here(self, request: Any, call: Call) -> Any:
        raise UnsupportedVersionError("this cluster has no groups, no transactions and no users")

    async def _describe_node(
        self, request: cluster_pb2.ClusterDescribeRequest, call: Call
    ) -> cluster_pb2.ClusterDescribeResponse:
        self._began("Describe", request)
        return cluster_pb2.ClusterDescribeResponse(
            version="0.1.0",
            cluster_id=CLUSTER_ID,
            node_id=1,
            features=[cluster_pb2.Feature(name="idempotence", level_min=1, level_max=2, level=1)],
            limits=cluster_pb2.Limits(request_bytes_max=4 << 20, batch_bytes_max=1 << 20),
        )

    def _topics(self) -> list[Any]:
        return list(self.rig.image.topics.values())


def entry(name: str, value: str, source: pb.ConfigSource.ValueType, **fields: Any) -> pb.ConfigEntry:
    return pb.ConfigEntry(name=name, value=value, source=source, type=pb.CONFIG_TYPE_LONG, **fields)
