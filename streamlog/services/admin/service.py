"""The Admin service: which of its methods is served where.

by the active controller             create, delete, alter, elect, reassign, drain, unregister, metadata version,
                                     access control lists, users, quotas
by the leader of the quorum          voters (the same node)
from this node's image               lists and descriptions, the progress of a drain; once the image has every change
                                     that any node had acknowledged before the call
by the nodes concerned               log directories, digests, configs of another node, loggers
by the leaders of partitions         deletion of records
by the coordinators                  groups, transactions
"""

from __future__ import annotations

from msgspec import Struct

from streamlog.api.convert import cluster
from streamlog.api.convert.admin import configs, placement, topics
from streamlog.api.convert.admin.placement import DrainAction
from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.service import Call, Method, Request, Response, UnaryMethod, unary
from streamlog.metadata.brokers.drain import DrainBroker
from streamlog.metadata.cluster import UpdateMetadataVersion
from streamlog.metadata.partitions.drain_moves import progress
from streamlog.metadata.view import MetadataView
from streamlog.services.admin.access import AccessCommands
from streamlog.services.admin.configs import ConfigDescriptions
from streamlog.services.admin.controller_commands import ControllerDispatch
from streamlog.services.admin.groups import GroupQueries
from streamlog.services.admin.loggers import LoggerCommands
from streamlog.services.admin.nodes import NodeQueries
from streamlog.services.admin.quotas import QuotaCommands
from streamlog.services.admin.reads import ClusterReads
from streamlog.services.admin.record_deletion import RecordDeletions
from streamlog.services.admin.transactions import TransactionQueries
from streamlog.services.admin.voters import VoterCommands
from streamlog.services.common.collaborators import ControllerAccess
from streamlog.services.common.forwarding import is_forwarded, timeout_of


class ControllerCalls:
    """Requests that are commands of the active controller."""

    def __init__(self, dispatch: ControllerDispatch, view: MetadataView) -> None:
        self._decide = dispatch.decide
        self._view = view

    async def create_topics(self, request: pb.CreateTopicsRequest, call: Call) -> pb.CreateTopicsResponse:
        command = topics.create_topics(request)
        return await self._decide("CreateTopics", command, request, pb.CreateTopicsResponse, topics.created, call)

    async def delete_topics(self, request: pb.DeleteTopicsRequest, call: Call) -> pb.DeleteTopicsResponse:
        command = topics.delete_topics(request)
        return await self._decide("DeleteTopics", command, request, pb.DeleteTopicsResponse, topics.deleted, call)

    async def create_partitions(self, request: pb.CreatePartitionsRequest, call: Call) -> pb.CreatePartitionsResponse:
        command = topics.create_partitions(request)
        return await self._decide("CreatePartitions", command, request, pb.CreatePartitionsResponse, topics.grown, call)

    async def alter_configs(self, request: pb.AlterConfigsRequest, call: Call) -> pb.AlterConfigsResponse:
        command = configs.alter_configs(request)
        return await self._decide("AlterConfigs", command, request, pb.AlterConfigsResponse, configs.altered, call)

    async def elect_leaders(self, request: pb.ElectLeadersRequest, call: Call) -> pb.ElectLeadersResponse:
        command = placement.elect_leaders(request)
        return await self._decide("ElectLeaders", command, request, pb.ElectLeadersResponse, placement.elected, call)

    async def alter_reassignments(
        self, request: pb.AlterPartitionReassignmentsRequest, call: Call
    ) -> pb.AlterPartitionReassignmentsResponse:
        command = placement.alter_reassignments(request)
        response_type = pb.AlterPartitionReassignmentsResponse
        return await self._decide(
            "AlterPartitionReassignments", command, request, response_type, placement.reassigned, call
        )

    async def drain_node(self, request: pb.DrainNodeRequest, call: Call) -> pb.DrainNodeResponse:
        node, action = placement.drain(request)
        if action is DrainAction.SHOW:
            broker = self._view.image.require_broker(node)
            return placement.drained(progress(self._view.image, node), draining=broker.draining)
        starts = action is DrainAction.START
        command = DrainBroker(broker_id=node, cancel=not starts)
        return await self._decide(
            "DrainNode",
            command,
            request,
            pb.DrainNodeResponse,
            lambda decided: placement.drained(decided, draining=starts),
            call,
        )

    async def unregister_node(self, request: pb.UnregisterNodeRequest, call: Call) -> pb.UnregisterNodeResponse:
        command = placement.unregister(request)
        response = pb.UnregisterNodeResponse()
        return await self._decide(
            "UnregisterNode", command, request, pb.UnregisterNodeResponse, lambda _: response, call
        )

    async def update_metadata_version(
        self, request: pb.UpdateMetadataVersionRequest, call: Call
    ) -> pb.UpdateMetadataVersionResponse:
        level = cluster.metadata_level(request, self._view.image)
        response = pb.UpdateMetadataVersionResponse(level=level)
        return await self._decide(
            "UpdateMetadataVersion",
            UpdateMetadataVersion(level=level),
            request,
            pb.UpdateMetadataVersionResponse,
            lambda _: response,
            call,
        )


class AdminService(Struct, frozen=True, kw_only=True):
    """Its parts."""

    link: ControllerAccess
    commands: ControllerCalls
    reads: ClusterReads
    configs: ConfigDescriptions
    voters: VoterCommands
    nodes: NodeQueries
    deletions: RecordDeletions
    loggers: LoggerCommands
    groups: GroupQueries
    transactions: TransactionQueries
    access: AccessCommands
    quotas: QuotaCommands

    def _fresh(self, read: UnaryMethod[Request, Response]) -> UnaryMethod[Request, Response]:
        """`read`, from an image with every change acknowledged before: the calls of one client may be served by
        different nodes.
        """

        async def caught_up(request: Request, call: Call) -> Response:
            await self.link.catch_up(timeout_of(call) / 2)
            return await read(request, call)

        return caught_up

    def _fresh_first(self, read: UnaryMethod[Request, Response]) -> UnaryMethod[Request, Response]:
        """The same for a method whose forwarded calls read only what this node has, such as its disks: the metadata
        decides which nodes are called, and nothing of what they answer.
        """
        fresh = self._fresh(read)

        async def caught_up(request: Request, call: Call) -> Response:
            return await (read if is_forwarded(call) else fresh)(request, call)

        return caught_up

    def methods(self) -> list[Method]:
        commands, reads, nodes, groups = self.commands, self.reads, self.nodes, self.groups
        transactions, access, fresh = self.transactions, self.access, self._fresh
        return [
            unary("CreateTopics", pb.CreateTopicsRequest, pb.CreateTopicsResponse, commands.create_topics),
            unary("DeleteTopics", pb.DeleteTopicsRequest, pb.DeleteTopicsResponse, commands.delete_topics),
            unary("ListTopics", pb.ListTopicsRequest, pb.ListTopicsResponse, fresh(reads.list_topics)),
            unary("DescribeTopics", pb.DescribeTopicsRequest, pb.DescribeTopicsResponse, fresh(reads.describe_topics)),
            unary(
                "CreatePartitions",
                pb.CreatePartitionsRequest,
                pb.CreatePartitionsResponse,
                commands.create_partitions,
            ),
            unary(
                "DescribeConfigs", pb.DescribeConfigsRequest, pb.DescribeConfigsResponse, fresh(self.configs.describe)
            ),
            unary("AlterConfigs", pb.AlterConfigsRequest, pb.AlterConfigsResponse, commands.alter_configs),
            unary("ElectLeaders", pb.ElectLeadersRequest, pb.ElectLeadersResponse, commands.elect_leaders),
            unary(
                "AlterPartitionReassignments",
                pb.AlterPartitionReassignmentsRequest,
                pb.AlterPartitionReassignmentsResponse,
                commands.alter_reassignments,
            ),
            unary(
                "ListPartitionReassignments",
                pb.ListPartitionReassignmentsRequest,
                pb.ListPartitionReassignmentsResponse,
                fresh(reads.list_reassignments),
            ),
            unary(
                "DescribeCluster", pb.DescribeClusterRequest, pb.DescribeClusterResponse, fresh(reads.describe_cluster)
            ),
            unary("DrainNode", pb.DrainNodeRequest, pb.DrainNodeResponse, fresh(commands.drain_node)),
            unary("UnregisterNode", pb.UnregisterNodeRequest, pb.UnregisterNodeResponse, commands.unregister_node),
            unary(
                "UpdateMetadataVersion",
                pb.UpdateMetadataVersionRequest,
                pb.UpdateMetadataVersionResponse,
                commands.update_metadata_version,
            ),
            unary("AddVoter", pb.AddVoterRequest, pb.AddVoterResponse, self.voters.add),
            unary("RemoveVoter", pb.RemoveVoterRequest, pb.RemoveVoterResponse, self.voters.remove),
            unary("ListGroups", pb.ListGroupsRequest, pb.ListGroupsResponse, groups.list_groups),
            unary("DescribeGroups", pb.DescribeGroupsRequest, pb.DescribeGroupsResponse, groups.describe_groups),
            unary("DeleteGroups", pb.DeleteGroupsRequest, pb.DeleteGroupsResponse, groups.delete_groups),
            unary(
                "DeleteGroupOffsets",
                pb.DeleteGroupOffsetsRequest,
                pb.DeleteGroupOffsetsResponse,
                groups.delete_offsets,
            ),
            unary(
                "ListTransactions",
                pb.ListTransactionsRequest,
                pb.ListTransactionsResponse,
                transactions.list_transactions,
            ),
            unary(
                "DescribeTransactions",
                pb.DescribeTransactionsRequest,
                pb.DescribeTransactionsResponse,
                transactions.describe_transactions,
            ),
            unary(
                "AbortTransaction",
                pb.AbortTransactionRequest,
                pb.AbortTransactionResponse,
                transactions.abort_transaction,
            ),
            unary(
                "FindHangingTransactions",
                pb.FindHangingTransactionsRequest,
                pb.FindHangingTransactionsResponse,
                transactions.find_hanging,
            ),
            unary(
                "DescribeLogDirs",
                pb.DescribeLogDirsRequest,
                pb.DescribeLogDirsResponse,
                self._fresh_first(nodes.describe_log_dirs),
            ),
            unary(
                "AlterReplicaLogDirs",
                pb.AlterReplicaLogDirsRequest,
                pb.AlterReplicaLogDirsResponse,
                fresh(nodes.alter_replica_log_dirs),
            ),
            unary("DigestReplicas", pb.DigestReplicasRequest, pb.DigestReplicasResponse, fresh(nodes.digest_replicas)),
            unary(
                "DeleteRecords",
                pb.DeleteRecordsRequest,
                pb.DeleteRecordsResponse,
                fresh(self.deletions.delete_records),
            ),
            unary("RepairReplicas", pb.RepairReplicasRequest, pb.RepairReplicasResponse, fresh(nodes.repair_replicas)),
            unary(
                "DescribeBrokerLoggers",
                pb.DescribeBrokerLoggersRequest,
                pb.DescribeBrokerLoggersResponse,
                self.loggers.describe,
            ),
            unary(
                "AlterBrokerLoggers", pb.AlterBrokerLoggersRequest, pb.AlterBrokerLoggersResponse, self.loggers.alter
            ),
            unary("CreateAcls", pb.CreateAclsRequest, pb.CreateAclsResponse, access.create_acls),
            unary("DeleteAcls", pb.DeleteAclsRequest, pb.DeleteAclsResponse, access.delete_acls),
            unary("DescribeAcls", pb.DescribeAclsRequest, pb.DescribeAclsResponse, fresh(access.describe_acls)),
            unary("TestAccess", pb.TestAccessRequest, pb.TestAccessResponse, fresh(access.test_access)),
            unary("CreateUser", pb.CreateUserRequest, pb.CreateUserResponse, access.create_user),
            unary("AlterUser", pb.AlterUserRequest, pb.AlterUserResponse, access.alter_user),
            unary("DeleteUser", pb.DeleteUserRequest, pb.DeleteUserResponse, access.delete_user),
            unary("ListUsers", pb.ListUsersRequest, pb.ListUsersResponse, fresh(access.list_users)),
            unary("AlterClientQuotas", pb.AlterClientQuotasRequest, pb.AlterClientQuotasResponse, self.quotas.alter),
            unary(
                "DescribeClientQuotas",
                pb.DescribeClientQuotasRequest,
                pb.DescribeClientQuotasResponse,
                fresh(self.quotas.describe),
            ),
        ]
