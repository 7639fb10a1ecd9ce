"""The table: which kind of event each method for clients makes. A method without a row counts as a change.

Refusals are events of any method, those between nodes too.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class AuditKind(enum.Enum):
    """The values of audit.log.events."""

    CHANGES = "changes"  # administrative
    REFUSALS = "refusals"
    WRITES = "writes"
    READS = "reads"  # of records and of metadata


_CHANGES: Final = (
    "CreateTopics",
    "DeleteTopics",
    "DeleteRecords",
    "CreatePartitions",
    "AlterConfigs",
    "ElectLeaders",
    "AlterPartitionReassignments",
    "AlterReplicaLogDirs",
    "DrainNode",
    "UnregisterNode",
    "UpdateMetadataVersion",
    "AddVoter",
    "RemoveVoter",
    "RepairReplicas",
    "DeleteGroups",
    "DeleteGroupOffsets",
    "AbortTransaction",
    "AlterBrokerLoggers",
    "CreateAcls",
    "DeleteAcls",
    "CreateUser",
    "AlterUser",
    "DeleteUser",
    "AlterClientQuotas",
)
_LOOKS: Final = (
    "ListTopics",
    "DescribeTopics",
    "DescribeConfigs",
    "ListPartitionReassignments",
    "DescribeCluster",
    "DescribeLogDirs",
    "DigestReplicas",
    "ListGroups",
    "DescribeGroups",
    "ListTransactions",
    "DescribeTransactions",
    "FindHangingTransactions",
    "DescribeBrokerLoggers",
    "DescribeAcls",
    "TestAccess",
    "ListUsers",
    "DescribeClientQuotas",
)
_WRITES: Final = (
    "Batches/Produce",
    "Batches/ProduceStream",
    "Batches/InitProducerId",
    "Records/Publish",
    "Records/PublishStream",
    "Groups/CommitOffsets",
    "Transactions/EndTransaction",
    "Transactions/CommitTransactionOffsets",
)
_READS: Final = (
    "Batches/Metadata",
    "Batches/WatchMetadata",
    "Batches/Fetch",
    "Batches/FetchStream",
    "Batches/ListOffsets",
    "Batches/OffsetForLeaderEpoch",
    "Records/Subscribe",
    "Records/Consume",
    "Groups/FindCoordinator",
    "Groups/GroupHeartbeat",
    "Groups/GroupMembership",
    "Groups/FetchOffsets",
)
_UNNAMED: Final = (
    "/streamlog.v1.Cluster/Describe",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/List",
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
)

AUDITED_METHODS: Final[Mapping[str, AuditKind | None]] = {
    **{f"/streamlog.v1.Admin/{name}": AuditKind.CHANGES for name in _CHANGES},
    **{f"/streamlog.v1.Admin/{name}": AuditKind.READS for name in _LOOKS},
    **{f"/streamlog.v1.{name}": AuditKind.WRITES for name in _WRITES},
    **{f"/streamlog.v1.{name}": AuditKind.READS for name in _READS},
    **dict.fromkeys(_UNNAMED),  # they show nothing of what clients keep here
}
