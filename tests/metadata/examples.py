"""One record of each kind, and of each kind that has optional fields one with all and one with none of them."""

from __future__ import annotations

from typing import Final

from streamlog.access.acl import Acl, AclOperation, AclPermission, AclResourceType, PatternType
from streamlog.access.passwords import SaltedPassword
from streamlog.access.quotas import QuotaEntity
from streamlog.metadata.records import (
    ALL_BROKERS,
    AclRecord,
    Broker,
    BrokerChangeRecord,
    BrokerRecord,
    ClientQuotaRecord,
    ClusterRecord,
    ConfigRecord,
    ConfigTarget,
    ConfigTargetType,
    MetadataRecord,
    MetadataVersion,
    MetadataVersionRecord,
    Partition,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveAclRecord,
    RemoveTopicRecord,
    RemoveUserRecord,
    Replicas,
    TopicRecord,
    UnregisterBrokerRecord,
    UserRecord,
)
from streamlog.model import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    ProducerId,
    TopicId,
)

TOPIC: Final = TopicId(bytes(range(16)))
NODE: Final = Broker(
    broker_id=BrokerId(300),
    epoch=BrokerEpoch(7),
    incarnation_id=bytes(range(16, 32)),
    host="host",
    port=9092,
    rack="r",
    metadata_version_min=MetadataVersion(1),
    metadata_version_max=MetadataVersion(2),
    directory_ids=(bytes(range(32, 48)),),
    fenced=True,
    stopping=True,
    draining=True,
)


ACL: Final = Acl(
    resource_type=AclResourceType.TOPIC,
    name="t",
    pattern_type=PatternType.PREFIXED,
    principal="User:a",
    operation=AclOperation.READ,
    permission=AclPermission.DENY,
    host="10.0.0.1",
)


def ids(*broker_ids: int) -> Replicas:
    return tuple(BrokerId(broker_id) for broker_id in broker_ids)


EXAMPLES: Final[dict[str, MetadataRecord]] = {
    "metadata_version": MetadataVersionRecord(level=MetadataVersion(1)),
    "cluster": ClusterRecord(cluster_id="c"),
    "broker": BrokerRecord(broker=NODE),
    "broker_change": BrokerChangeRecord(
        broker_id=BrokerId(0), broker_epoch=BrokerEpoch(7), fenced=False, stopping=True, draining=False
    ),
    "broker_change, of nothing": BrokerChangeRecord(broker_id=BrokerId(0), broker_epoch=BrokerEpoch(7)),
    "unregister_broker": UnregisterBrokerRecord(broker_id=BrokerId(0), broker_epoch=BrokerEpoch(7)),
    "topic": TopicRecord(topic_id=TOPIC, name="t"),
    "remove_topic": RemoveTopicRecord(topic_id=TOPIC),
    "partition": PartitionRecord(
        topic_id=TOPIC,
        partition_id=PartitionId(1),
        partition=Partition(
            replicas=ids(1, 2, 3, 4),
            isr=ids(1, 2),
            elr=ids(3),
            adding=ids(1),
            removing=ids(4),
            offline=ids(4),
            leader=BrokerId(2),
            last_leader=BrokerId(2),
            leader_epoch=LeaderEpoch(5),
            partition_epoch=PartitionEpoch(200),
        ),
    ),
    "partition, at rest": PartitionRecord(
        topic_id=TOPIC,
        partition_id=PartitionId(0),
        partition=Partition(replicas=ids(0), isr=(), leader=NO_BROKER, last_leader=BrokerId(0)),
    ),
    "partition_change": PartitionChangeRecord(
        topic_id=TOPIC,
        partition_id=PartitionId(1),
        replicas=ids(1, 2),
        isr=ids(1),
        elr=ids(2),
        adding=ids(2),
        removing=ids(1),
        offline=ids(2),
        leader=BrokerId(1),
        last_leader=NO_BROKER,
    ),
    "partition_change, to nothing": PartitionChangeRecord(
        topic_id=TOPIC,
        partition_id=PartitionId(0),
        isr=(),
        elr=(),
        adding=(),
        removing=(),
        offline=(),
        leader=NO_BROKER,
    ),
    "partition_change, of nothing": PartitionChangeRecord(topic_id=TOPIC, partition_id=PartitionId(0)),
    "config": ConfigRecord(resource=ConfigTarget(ConfigTargetType.TOPIC, "t"), name="n", value=""),
    "config, removed": ConfigRecord(resource=ALL_BROKERS, name="n", value=None),
    "acl": AclRecord(acl=ACL),
    "remove_acl": RemoveAclRecord(acl=ACL),
    "user": UserRecord(name="u", password=SaltedPassword(salt=bytes(range(16)), hash=bytes(range(32)), cost=15)),
    "remove_user": RemoveUserRecord(name="u"),
    "client_quota": ClientQuotaRecord(entity=QuotaEntity(user="u", client_id=""), key="k", value=1.5),
    "client_quota, address": ClientQuotaRecord(entity=QuotaEntity(ip="10.0.0.7"), key="k", value=1.5),
    "client_quota, removed": ClientQuotaRecord(entity=QuotaEntity(client_id="c"), key="k", value=None),
    "producer_ids": ProducerIdsRecord(next_producer_id=ProducerId(1 << 40)),
}
