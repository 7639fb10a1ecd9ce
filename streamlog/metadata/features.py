"""Feature levels: which records may be in the log of a cluster.

`metadata.version` is the cluster's level, kept in the image. A record type is written only once the level has reached
the one that introduced it, and the level is raised only when every registered node supports it
(streamlog.metadata.cluster). So an old node finds a new record only if it was not registered then, and stops.

To add a record type, or a format version of an old one: raise METADATA_VERSION_MAX, give the type its level here, and
say in the list below what the level brings.

    1   the first: nodes, topics, partitions with eligible leader replicas, configs, producer ids
    2   partitions remember the eligible replicas that stopped uncleanly (last_known_elr)
    3   access control lists; users with passwords
    4   nodes with several listeners
    5   client quotas
    6   quotas of addresses
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from streamlog.errors import InvariantError, UnsupportedVersionError
from streamlog.metadata.records import (
    AclRecord,
    BrokerChangeRecord,
    BrokerRecord,
    ClientQuotaRecord,
    ClusterRecord,
    ConfigRecord,
    MetadataRecord,
    MetadataVersion,
    MetadataVersionRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveAclRecord,
    RemoveTopicRecord,
    RemoveUserRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserRecord,
)

METADATA_VERSION_MIN: Final = MetadataVersion(1)
METADATA_VERSION_MAX: Final = MetadataVersion(6)

LAST_KNOWN_ELR: Final = MetadataVersion(2)
"""The level since which records of partitions have `last_known_elr`."""
ACCESS: Final = MetadataVersion(3)
"""The level since which there are access control lists and users."""
LISTENERS: Final = MetadataVersion(4)
"""The level since which nodes may have several listeners."""
QUOTAS: Final = MetadataVersion(5)
"""The level since which there are client quotas."""
ADDRESS_QUOTAS: Final = MetadataVersion(6)
"""The level since which addresses may have quotas."""

# The level that introduced a record's type. 0: allowed in an empty log.
LEVEL_OF_RECORD: Final[Mapping[type[MetadataRecord], MetadataVersion]] = {
    MetadataVersionRecord: MetadataVersion(0),
    ClusterRecord: MetadataVersion(1),
    BrokerRecord: MetadataVersion(1),
    BrokerChangeRecord: MetadataVersion(1),
    UnregisterBrokerRecord: MetadataVersion(1),
    TopicRecord: MetadataVersion(1),
    RemoveTopicRecord: MetadataVersion(1),
    PartitionRecord: MetadataVersion(1),
    PartitionChangeRecord: MetadataVersion(1),
    ConfigRecord: MetadataVersion(1),
    ProducerIdsRecord: MetadataVersion(1),
    AclRecord: ACCESS,
    RemoveAclRecord: ACCESS,
    UserRecord: ACCESS,
    RemoveUserRecord: ACCESS,
    ClientQuotaRecord: QUOTAS,
}


def require_allowed(record: MetadataRecord, level: MetadataVersion) -> None:
    """InvariantError if a record is above the log's level: no controller may have written it."""
    needed = _level_of(record)
    if needed > level:
        raise InvariantError(f"{type(record).__name__} needs metadata.version {needed}, the log is at {level}")


def _level_of(record: MetadataRecord) -> MetadataVersion:
    match record:
        case PartitionChangeRecord() if record.last_known_elr is not None:
            return LAST_KNOWN_ELR
        case PartitionRecord() if record.partition.last_known_elr:
            return LAST_KNOWN_ELR
        case BrokerRecord() if record.broker.listeners:
            return LISTENERS
        case ClientQuotaRecord() if record.entity.ip is not None:
            return ADDRESS_QUOTAS
        case _:
            return LEVEL_OF_RECORD[type(record)]


def require_all_allowed(records: Iterable[MetadataRecord], level: MetadataVersion) -> None:
    """The same for the records of a decision before it is committed: then one controller stops, not every node."""
    for record in records:
        require_allowed(record, level)
        if isinstance(record, MetadataVersionRecord):
            level = record.level


def require_supported(level: MetadataVersion) -> None:
    """UnsupportedVersionError if the cluster's level is unknown to this node."""
    if not METADATA_VERSION_MIN <= level <= METADATA_VERSION_MAX:
        raise UnsupportedVersionError(
            f"the cluster is at metadata.version {level}, this node supports {METADATA_VERSION_MIN} to "
            f"{METADATA_VERSION_MAX}: install the release of streamlog that the other nodes run, then restart it",
            field="metadata.version",
            limit=METADATA_VERSION_MAX,
        )
