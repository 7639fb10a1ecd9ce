"""What this release can do, as `Cluster.Describe` lists it: each method for clients belongs to one feature.

A client looks a feature up before it calls one of its methods. A feature whose level is 0 is there, and off: by a
setting of the node, or since the cluster's metadata.version is too low. A new method needs a row here, or a place in
one (tests/services/admin/test_features.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamlog.api.pb import cluster_pb2 as pb
from streamlog.metadata.features import ACCESS, METADATA_VERSION_MAX, METADATA_VERSION_MIN, QUOTAS
from streamlog.metadata.records import MetadataVersion

ACCESS_CONTROL: Final = "access-control"
USERS: Final = "users"
CLIENT_QUOTAS: Final = "client-quotas"
TWO_PHASE_COMMIT: Final = "two-phase-commit"
METADATA_VERSION: Final = "metadata.version"

# Methods of `streamlog.v1`. Each feature has one level so far.
METHODS_OF_FEATURE: Final[Mapping[str, tuple[str, ...]]] = {
    ACCESS_CONTROL: ("Admin/CreateAcls", "Admin/DeleteAcls", "Admin/DescribeAcls", "Admin/TestAccess"),
    "batches": (
        "Batches/Fetch",
        "Batches/FetchStream",
        "Batches/ListOffsets",
        "Batches/Metadata",
        "Batches/OffsetForLeaderEpoch",
        "Batches/Produce",
        "Batches/ProduceStream",
    ),
    "broker-loggers": ("Admin/AlterBrokerLoggers", "Admin/DescribeBrokerLoggers"),
    CLIENT_QUOTAS: ("Admin/AlterClientQuotas", "Admin/DescribeClientQuotas"),
    "cluster": (
        "Admin/AddVoter",
        "Admin/AlterReplicaLogDirs",
        "Admin/DescribeCluster",
        "Admin/DescribeLogDirs",
        "Admin/DrainNode",
        "Admin/RemoveVoter",
        "Admin/UnregisterNode",
        "Admin/UpdateMetadataVersion",
        "Cluster/Describe",
    ),
    "configs": ("Admin/AlterConfigs", "Admin/DescribeConfigs"),
    "consume": ("Records/Consume",),  # a group without a client library
    "groups": (
        "Admin/DeleteGroupOffsets",
        "Admin/DeleteGroups",
        "Admin/DescribeGroups",
        "Admin/ListGroups",
        "Groups/CommitOffsets",
        "Groups/FetchOffsets",
        "Groups/FindCoordinator",
        "Groups/GroupHeartbeat",
        "Groups/GroupMembership",
    ),
    "idempotence": ("Batches/InitProducerId",),
    "legacy-batches": (),  # messages of formats 0 and 1 are read
    "records": ("Records/Publish", "Records/PublishStream", "Records/Subscribe"),
    "record-deletion": ("Admin/DeleteRecords",),
    "replica-repair": ("Admin/DigestReplicas", "Admin/RepairReplicas"),
    "topics": (
        "Admin/AlterPartitionReassignments",
        "Admin/CreatePartitions",
        "Admin/CreateTopics",
        "Admin/DeleteTopics",
        "Admin/DescribeTopics",
        "Admin/ElectLeaders",
        "Admin/ListPartitionReassignments",
        "Admin/ListTopics",
    ),
    "transactions": (  # and PublishStream with `transactional`
        "Admin/AbortTransaction",
        "Admin/DescribeTransactions",
        "Admin/FindHangingTransactions",
        "Admin/ListTransactions",
        "Transactions/CommitTransactionOffsets",
        "Transactions/EndTransaction",
    ),
    TWO_PHASE_COMMIT: (),  # InitProducerId with `enable_two_phase_commit`
    USERS: ("Admin/AlterUser", "Admin/CreateUser", "Admin/DeleteUser", "Admin/ListUsers"),
    "watch-metadata": ("Batches/WatchMetadata",),
}


def features(version: MetadataVersion, *, authorizes: bool, two_phase_commit: bool) -> list[pb.Feature]:
    """By rising name. `version`: the cluster's metadata.version; `authorizes`: the node has an authorizer."""
    has_access = version >= ACCESS
    is_on = {
        ACCESS_CONTROL: has_access and authorizes,
        USERS: has_access,
        CLIENT_QUOTAS: version >= QUOTAS,
        TWO_PHASE_COMMIT: two_phase_commit,
    }
    found = [
        pb.Feature(name=name, level_min=1, level_max=1, level=int(is_on.get(name, True))) for name in METHODS_OF_FEATURE
    ]
    found.append(
        pb.Feature(name=METADATA_VERSION, level_min=METADATA_VERSION_MIN, level_max=METADATA_VERSION_MAX, level=version)
    )
    return sorted(found, key=lambda feature: feature.name)
