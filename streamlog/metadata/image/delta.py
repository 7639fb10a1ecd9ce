"""Replay: the one way from an image to the next.

A `MetadataDelta` starts at an image, replays records in the order of the log, and gives the image after them. It holds
only the changes against the base image, so a batch costs as much as it changes, and a node reads from it what it has to
act upon.

Replay decides nothing. A record that does not fit the image (a change of an unknown partition, a stale broker epoch)
is a broken invariant: the log or this code is wrong, and the node stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, assert_never

from msgspec.structs import replace

from streamlog.access.acl import Acl
from streamlog.access.passwords import SaltedPassword
from streamlog.access.quotas import QuotaEntity
from streamlog.errors import InvariantError
from streamlog.metadata.features import require_allowed, require_supported
from streamlog.metadata.image.image import NO_LIMITS, MetadataImage, Topic, collision_key
from streamlog.metadata.image.pages import PagedSequence
from streamlog.metadata.image.roles import PartitionDifference
from streamlog.metadata.image.sorted_map import REMOVED, Removed, SortedMap
from streamlog.metadata.records import (
    EPOCH_FROM_INDEX,
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
    MetadataVersionRecord,
    Partition,
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
from streamlog.model import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    RaftIndex,
    TopicId,
)

NO_PARTITIONS: Final[PagedSequence[Partition]] = PagedSequence()


def replay(image: MetadataImage, records: Iterable[MetadataRecord], index: RaftIndex) -> MetadataImage:
    """The image after the command at `index`."""
    delta = MetadataDelta(image)
    delta.replay(records, index)
    return delta.apply()


def look_ahead(image: MetadataImage, records: Iterable[MetadataRecord]) -> MetadataImage:
    """The image as it will be once these records are committed, before their index is known. Not for registrations:
    their broker epoch is that index.
    """
    return replay(image, records, image.index)


class MetadataDelta:
    """The changes of some commands to an image. One owner, one use: `replay` any number of times, then `apply`."""

    def __init__(self, base: MetadataImage) -> None:
        self._base = base
        self._index = base.index
        self._metadata_version = base.metadata_version
        self._cluster_id = base.cluster_id
        self._next_producer_id = base.next_producer_id
        self._brokers: dict[BrokerId, Broker | Removed] = {}
        self._topics: dict[TopicId, _TopicDelta] = {}
        self._removed_topics: dict[TopicId, Topic] = {}  # only topics of the base
        self._topic_ids: dict[str, TopicId | Removed] = {}  # by collision key
        self._configs: dict[ConfigTarget, dict[str, str | Removed]] = {}
        self._acls: dict[Acl, bool | Removed] = {}
        self._users: dict[str, SaltedPassword | Removed] = {}
        self._quotas: dict[QuotaEntity, dict[str, float | Removed]] = {}

    def replay(self, records: Iterable[MetadataRecord], index: RaftIndex) -> None:
        """Replay the records of the command at `index`. After an error the delta must be discarded."""
        if index < self._index:
            raise InvariantError(f"command {index} follows command {self._index}")
        self._index = index
        for record in records:
            require_allowed(record, self._metadata_version)
            self._replay(record)

    def changed_brokers(self) -> Iterator[tuple[BrokerId, Broker | None]]:
        """In the order of their first change; None: unregistered."""
        return ((broker_id, None if isinstance(b, Removed) else b) for broker_id, b in self._brokers.items())

    def changed_topics(self) -> Iterator[tuple[TopicId, Iterator[PartitionDifference]]]:
        """The changed topics, including removed and new ones, each once, with their changed partitions."""
        for topic_id, topic in self._removed_topics.items():
            yield topic_id, ((PartitionId(i), partition, None) for i, partition in enumerate(topic.partitions))
        for topic_id, changed in self._topics.items():
            yield topic_id, changed.differences()

    def removed_topics(self) -> Iterator[Topic]:
        """As they were."""
        return iter(self._removed_topics.values())

    def changed_acls(self) -> Iterator[Acl]:
        """Added or removed."""
        return iter(self._acls)

    @property
    def changes_access(self) -> bool:
        """Access control lists, or users."""
        return bool(self._acls or self._users)

    def changed_configs(self) -> Iterator[ConfigTarget]:
        return iter(self._configs)

    def apply(self) -> MetadataImage:
        base = self._base
        topics: dict[TopicId, Topic | Removed] = dict.fromkeys(self._removed_topics, REMOVED)
        growth = -sum(len(topic.partitions) for topic in self._removed_topics.values())
        for topic_id, changed in self._topics.items():
            topics[topic_id] = topic = changed.apply()
            growth += len(topic.partitions) - len(changed.base.partitions)
        return MetadataImage(
            index=self._index,
            metadata_version=self._metadata_version,
            cluster_id=self._cluster_id,
            brokers=base.brokers.updated(self._brokers),
            topics=base.topics.updated(topics),
            topic_ids=base.topic_ids.updated(self._topic_ids),
            configs=base.configs.updated(self._changed_configs()),
            acls=base.acls.updated(self._acls),
            users=base.users.updated(self._users),
            quotas=base.quotas.updated(self._changed_quotas()),
            next_producer_id=self._next_producer_id,
            partition_count=base.partition_count + growth,
            roles=base.roles.updated(self.changed_topics()),
        )

    def _replay(self, record: MetadataRecord) -> None:
        match record:
            case PartitionChangeRecord():
                self._topic(record.topic_id).change(record)
            case PartitionRecord():
                self._topic(record.topic_id).add(record)
            case TopicRecord():
                self._add_topic(record)
            case RemoveTopicRecord():
                self._remove_topic(record.topic_id)
            case ConfigRecord():
                values = self._configs.setdefault(record.resource, {})
                values[record.name] = REMOVED if record.value is None else record.value
            case BrokerChangeRecord():
                self._change_broker(record)
            case BrokerRecord():
                broker = record.broker
                if broker.epoch == EPOCH_FROM_INDEX:
                    broker = replace(broker, epoch=self._registration_epoch())
                self._brokers[broker.broker_id] = broker
            case UnregisterBrokerRecord():
                self._registered(record.broker_id, record.broker_epoch)
                self._brokers[record.broker_id] = REMOVED
            case ProducerIdsRecord():
                if record.next_producer_id < self._next_producer_id:
                    raise InvariantError(f"producer ids go back from {self._next_producer_id}")
                self._next_producer_id = record.next_producer_id
            case AclRecord():
                self._acls[record.acl] = True
            case RemoveAclRecord():
                self._acls[record.acl] = REMOVED
            case UserRecord():
                self._users[record.name] = record.password
            case RemoveUserRecord():
                self._users[record.name] = REMOVED
            case ClientQuotaRecord():
                limits = self._quotas.setdefault(record.entity, {})
                limits[record.key] = REMOVED if record.value is None else record.value
            case MetadataVersionRecord():
                require_supported(record.level)
                self._metadata_version = record.level
            case ClusterRecord():
                if self._cluster_id:
                    raise InvariantError(f"cluster {self._cluster_id} is given another id, {record.cluster_id}")
                self._cluster_id = record.cluster_id
            case _:
                assert_never(record)

    def _registration_epoch(self) -> BrokerEpoch:
        if self._index == self._base.index:
            raise InvariantError("a registration's epoch is the index of its command, which is not known yet")
        return BrokerEpoch(self._index)

    def _registered(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> Broker:
        broker = self._brokers.get(broker_id) or self._base.brokers.get(broker_id)
        if broker is None or isinstance(broker, Removed) or broker.epoch != broker_epoch:
            raise InvariantError(f"a change of broker {broker_id}, epoch {broker_epoch}, which is not registered")
        return broker

    def _change_broker(self, record: BrokerChangeRecord) -> None:
        broker = self._registered(record.broker_id, record.broker_epoch)
        self._brokers[record.broker_id] = replace(
            broker,
            fenced=broker.fenced if record.fenced is None else record.fenced,
            stopping=broker.stopping if record.stopping is None else record.stopping,
            draining=broker.draining if record.draining is None else record.draining,
        )

    def _topic(self, topic_id: TopicId) -> _TopicDelta:
        changed = self._topics.get(topic_id)
        if changed is None:
            base = self._base.topics.get(topic_id)
            if base is None or topic_id in self._removed_topics:
                raise InvariantError(f"a change of topic {topic_id.hex()}, which does not exist")
            changed = self._topics[topic_id] = _TopicDelta(base)
        return changed

    def _add_topic(self, record: TopicRecord) -> None:
        if record.topic_id in self._topics or record.topic_id in self._base.topics:
            raise InvariantError(f"topic id {record.topic_id.hex()} is given twice")
        key = collision_key(record.name)
        if not isinstance(self._topic_ids.get(key, self._base.topic_ids.get(key, REMOVED)), Removed):
            raise InvariantError(f"topic {record.name!r} collides with another one")
        self._topic_ids[key] = record.topic_id
        self._topics[record.topic_id] = _TopicDelta(
            Topic(topic_id=record.topic_id, name=record.name, partitions=NO_PARTITIONS)
        )

    def _remove_topic(self, topic_id: TopicId) -> None:
        name = self._topic(topic_id).base.name
        del self._topics[topic_id]
        self._topic_ids[collision_key(name)] = REMOVED
        base = self._base.topics.get(topic_id)
        if base is not None:
            self._removed_topics[topic_id] = base
        resource = ConfigTarget(ConfigTargetType.TOPIC, name)
        self._configs[resource] = dict.fromkeys(self._base.config(resource), REMOVED)

    def _changed_configs(self) -> dict[ConfigTarget, SortedMap[str, str] | Removed]:
        changed: dict[ConfigTarget, SortedMap[str, str] | Removed] = {}
        for resource, values in self._configs.items():
            configs = self._base.config(resource).updated(values)
            changed[resource] = configs if len(configs) else REMOVED
        return changed

    def _changed_quotas(self) -> dict[QuotaEntity, SortedMap[str, float] | Removed]:
        changed: dict[QuotaEntity, SortedMap[str, float] | Removed] = {}
        for entity, values in self._quotas.items():
            limits = self._base.quotas.get(entity, NO_LIMITS).updated(values)
            changed[entity] = limits if len(limits) else REMOVED
        return changed


class _TopicDelta:
    """A topic of the base, or a new one without partitions, and the changes of its partitions."""

    def __init__(self, base: Topic) -> None:
        self.base = base
        self.partitions: dict[int, Partition] = {}

    def apply(self) -> Topic:
        partitions = self.base.partitions.updated(self.partitions)
        return Topic(topic_id=self.base.topic_id, name=self.base.name, partitions=partitions)

    def differences(self) -> Iterator[PartitionDifference]:
        before = self.base.partitions
        return ((PartitionId(i), before.get(i), partition) for i, partition in self.partitions.items())

    def add(self, record: PartitionRecord) -> None:
        if record.partition_id in self.partitions or self.base.partitions.get(record.partition_id) is not None:
            raise InvariantError(f"partition {self.base.name}-{record.partition_id} is created twice")
        self.partitions[record.partition_id] = record.partition

    def change(self, record: PartitionChangeRecord) -> None:
        partition = self.partitions.get(record.partition_id) or self.base.partitions.get(record.partition_id)
        if partition is None:
            raise InvariantError(f"a change of partition {self.base.name}-{record.partition_id}, which does not exist")
        self.partitions[record.partition_id] = changed(partition, record)


def changed(partition: Partition, record: PartitionChangeRecord) -> Partition:
    """The partition after the record (SEMANTICS 3: a leader change raises both epochs, any change its own)."""
    leader, last_leader, leader_epoch = partition.leader, partition.last_leader, partition.leader_epoch
    if record.leader is not None:
        leader = record.leader
        leader_epoch = LeaderEpoch(leader_epoch + 1)
        last_leader = leader if leader != NO_BROKER else last_leader
    return Partition(
        replicas=partition.replicas if record.replicas is None else record.replicas,
        isr=partition.isr if record.isr is None else record.isr,
        elr=partition.elr if record.elr is None else record.elr,
        adding=partition.adding if record.adding is None else record.adding,
        removing=partition.removing if record.removing is None else record.removing,
        last_known_elr=partition.last_known_elr if record.last_known_elr is None else record.last_known_elr,
        offline=partition.offline if record.offline is None else record.offline,
        leader=leader,
        last_leader=last_leader if record.last_leader is None else record.last_leader,
        leader_epoch=leader_epoch,
        partition_epoch=PartitionEpoch(partition.partition_epoch + 1),
    )
