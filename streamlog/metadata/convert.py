"""Protobuf to records and back: the only module here, beside the generated code, that imports protobuf.

The bytes depend only on the records: no maps, no unknown fields, deterministic serialization. So equal images have
equal snapshots, and a command is the same on every voter.

Decoding is strict, for an older node with a newer log. An unknown record, or a known one in an unknown format version,
raises UnsupportedVersionError with the number and the remedy, and stops the node that applies the log. Skipping it
would let the image silently differ from the other nodes'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar, assert_never

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet
from msgspec.structs import replace

from streamlog.access.acl import Acl, AclOperation, AclPermission, AclResourceType, PatternType
from streamlog.access.passwords import SaltedPassword
from streamlog.access.quotas import QuotaEntity
from streamlog.errors import CorruptMessageError, InvalidRequestError, InvariantError, UnsupportedVersionError
from streamlog.metadata.pb import metadata_pb2 as pb
from streamlog.metadata.records import (
    AclRecord,
    Broker,
    BrokerChangeRecord,
    BrokerListener,
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
from streamlog.model import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, PartitionId, ProducerId, TopicId

M = TypeVar("M", bound=Message)

# A command above this is refused before it is proposed: the quorum would refuse it (its command_bytes_max).
BATCH_BYTES_MAX: Final = 1 << 20

# The newest format version of each record that this release reads, and writes; by the name of its field.
VERSION_MAX: Final[Mapping[str, int]] = {
    "metadata_version": 0,
    "cluster": 0,
    "broker": 0,
    "broker_change": 0,
    "unregister_broker": 0,
    "topic": 0,
    "remove_topic": 0,
    "partition": 1,  # last_known_elr
    "partition_change": 1,  # last_known_elr
    "config": 0,
    "producer_ids": 0,
    "acl": 0,
    "remove_acl": 0,
    "user": 0,
    "remove_user": 0,
    "client_quota": 1,  # ip
}

_RESOURCE_TYPES: Final = frozenset(int(resource_type) for resource_type in ConfigTargetType)


def encode_batch(records: Iterable[MetadataRecord]) -> bytes:
    """The bytes of one command. InvalidRequestError if they exceed BATCH_BYTES_MAX."""
    data = _bytes(_batch(records))
    if len(data) > BATCH_BYTES_MAX:
        raise InvalidRequestError(
            f"the request needs {len(data)} bytes of metadata, but a command has at most {BATCH_BYTES_MAX}: split it",
            field="request",
            limit=BATCH_BYTES_MAX,
        )
    return data


def decode_batch(data: bytes) -> list[MetadataRecord]:
    """The records of one command.

    CorruptMessageError if the bytes are no command; UnsupportedVersionError if they are from a newer release.
    """
    return _records(_parsed(pb.MetadataBatch(), data))


def encode_snapshot_head(index: int, metadata_version: MetadataVersion, snapshot_format: int) -> bytes:
    head = pb.MetadataSnapshotHead(format=snapshot_format, index=index, metadata_version=metadata_version)
    return _bytes(pb.MetadataSnapshotChunk(head=head))


def encode_snapshot_batch(records: Iterable[MetadataRecord]) -> bytes:
    return _bytes(pb.MetadataSnapshotChunk(batch=_batch(records)))


def encode_snapshot_tail(record_count: int) -> bytes:
    return _bytes(pb.MetadataSnapshotChunk(tail=pb.MetadataSnapshotTail(record_count=record_count)))


def decode_snapshot_chunk(data: bytes) -> tuple[int, int, MetadataVersion] | list[MetadataRecord] | int:
    """A head as (format, index, metadata.version); a batch as its records; the tail as the count of all records."""
    chunk = _parsed(pb.MetadataSnapshotChunk(), data)
    match chunk.WhichOneof("chunk"):
        case "head":
            return chunk.head.format, chunk.head.index, MetadataVersion(chunk.head.metadata_version)
        case "batch":
            return _records(chunk.batch)
        case "tail":
            return chunk.tail.record_count
        case _:
            raise UnsupportedVersionError("a chunk of a metadata snapshot that this release does not know")


def _bytes(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)


def _batch(records: Iterable[MetadataRecord]) -> pb.MetadataBatch:
    batch = pb.MetadataBatch()
    add = batch.records.add
    for record in records:
        _fill(add(), record)
    return batch


def _records(batch: pb.MetadataBatch) -> list[MetadataRecord]:
    return [_record(message) for message in batch.records]


def _record(message: pb.MetadataRecord) -> MetadataRecord:
    kind = message.WhichOneof("record")
    if kind is None:
        unknown: Any = UnknownFieldSet(message)  # Any: its stub has no iteration
        raise _from_a_newer_release(f"a record of kind {unknown[0].field_number if len(unknown) else 0}")
    if message.version > VERSION_MAX[kind]:
        raise _from_a_newer_release(f"a {kind} record of version {message.version} (known: {VERSION_MAX[kind]})")
    return _decoded(message, kind)


def _from_a_newer_release(what: str) -> UnsupportedVersionError:
    return UnsupportedVersionError(
        f"the metadata log contains {what}, written by a newer release of streamlog: install that release on this "
        "node and restart it; nothing is lost"
    )


def _parsed(message: M, data: bytes) -> M:
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise CorruptMessageError(f"not a metadata command or snapshot: {error}") from error
    return message


# --- records to messages


def _fill(message: pb.MetadataRecord, record: MetadataRecord) -> None:
    match record:
        case PartitionChangeRecord():
            message.version = int(record.last_known_elr is not None)
            _encode_partition_change(message.partition_change, record)
        case PartitionRecord():
            message.version = int(bool(record.partition.last_known_elr))
            _encode_partition(message.partition, record)
        case TopicRecord(topic_id=topic_id, name=name):
            message.topic.MergeFrom(pb.TopicRecord(topic_id=topic_id, name=name))
        case RemoveTopicRecord(topic_id=topic_id):
            message.remove_topic.MergeFrom(pb.RemoveTopicRecord(topic_id=topic_id))
        case ConfigRecord():
            _encode_config(message.config, record)
        case BrokerRecord():
            message.broker.MergeFrom(_broker_message(record.broker))
        case BrokerChangeRecord():
            message.broker_change.MergeFrom(
                pb.BrokerChangeRecord(
                    broker_id=record.broker_id,
                    broker_epoch=record.broker_epoch,
                    fenced=record.fenced,
                    stopping=record.stopping,
                    draining=record.draining,
                )
            )
        case UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch):
            message.unregister_broker.MergeFrom(pb.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch))
        case ProducerIdsRecord(next_producer_id=next_id):
            message.producer_ids.MergeFrom(pb.ProducerIdsRecord(next_producer_id=next_id))
        case MetadataVersionRecord(level=level):
            message.metadata_version.MergeFrom(pb.MetadataVersionRecord(level=level))
        case ClusterRecord(cluster_id=cluster_id):
            message.cluster.MergeFrom(pb.ClusterRecord(cluster_id=cluster_id))
        case AclRecord(acl=acl):
            message.acl.MergeFrom(_acl_message(acl))
        case RemoveAclRecord(acl=acl):
            message.remove_acl.MergeFrom(_acl_message(acl))
        case UserRecord(name=name, password=password):
            message.user.MergeFrom(pb.UserRecord(name=name, salt=password.salt, hash=password.hash, cost=password.cost))
        case RemoveUserRecord(name=name):
            message.remove_user.MergeFrom(pb.RemoveUserRecord(name=name))
        case ClientQuotaRecord(entity=entity, key=key, value=value):
            message.client_quota.MergeFrom(
                pb.ClientQuotaRecord(user=entity.user, client_id=entity.client_id, ip=entity.ip, key=key, value=value)
            )
            message.version = int(entity.ip is not None)
        case _:
            assert_never(record)


def _acl_message(acl: Acl) -> pb.AclRecord:
    return pb.AclRecord(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        operation=acl.operation,
        permission=acl.permission,
        host=acl.host,
    )


def _broker_message(broker: Broker) -> pb.BrokerRecord:
    return pb.BrokerRecord(
        broker_id=broker.broker_id,
        broker_epoch=broker.epoch,
        incarnation_id=broker.incarnation_id,
        host=broker.host,
        port=broker.port,
        rack=broker.rack,
        metadata_version_min=broker.metadata_version_min,
        metadata_version_max=broker.metadata_version_max,
        directory_ids=broker.directory_ids,
        fenced=broker.fenced,
        stopping=broker.stopping,
        draining=broker.draining,
        listeners=[pb.BrokerListener(name=one.name, host=one.host, port=one.port) for one in broker.listeners],
    )


def _encode_partition(partition: pb.PartitionRecord, record: PartitionRecord) -> None:
    state = record.partition
    partition.topic_id = record.topic_id
    partition.partition_id = record.partition_id
    partition.leader = state.leader
    partition.last_leader = state.last_leader
    partition.leader_epoch = state.leader_epoch
    partition.partition_epoch = state.partition_epoch
    partition.replicas.extend(state.replicas)
    partition.isr.extend(state.isr)
    if state.elr or state.last_known_elr or state.adding or state.removing or state.offline:
        partition.unsettled.elr.extend(state.elr)
        partition.unsettled.last_known_elr.extend(state.last_known_elr)
        partition.unsettled.adding.extend(state.adding)
        partition.unsettled.removing.extend(state.removing)
        partition.unsettled.offline.extend(state.offline)


def _encode_partition_change(change: pb.PartitionChangeRecord, record: PartitionChangeRecord) -> None:
    change.topic_id = record.topic_id
    change.partition_id = record.partition_id
    if record.isr is not None:
        change.isr.SetInParent()
        change.isr.ids.extend(record.isr)
    if record.elr is not None:
        change.elr.SetInParent()
        change.elr.ids.extend(record.elr)
    for name in ("replicas", "last_known_elr", "adding", "removing", "offline"):
        ids: Replicas | None = getattr(record, name)
        if ids is not None:
            field = getattr(change, name)
            field.SetInParent()
            field.ids.extend(ids)
    if record.leader is not None:
        change.leader = record.leader
    if record.last_leader is not None:
        change.last_leader = record.last_leader


def _encode_config(config: pb.ConfigRecord, record: ConfigRecord) -> None:
    config.resource_type = pb.ConfigResourceType.ValueType(record.resource.type)
    config.resource_name = record.resource.name
    config.name = record.name
    if record.value is not None:
        config.value = record.value


# --- messages to records


@lru_cache(maxsize=1 << 14)
def _settled_partition(
    replicas: Replicas,
    isr: Replicas,
    leader: BrokerId,
    last_leader: BrokerId,
    leader_epoch: LeaderEpoch,
    partition_epoch: PartitionEpoch,
) -> Partition:
    """One object for equal ones: a cluster has many partitions in few distinct states."""
    return Partition(
        replicas=replicas,
        isr=replicas if isr == replicas else isr,
        leader=leader,
        last_leader=last_leader,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
    )


def _ids(ids: Sequence[int]) -> Replicas:
    return tuple(map(BrokerId, ids))


def _optional(message: Message, name: str) -> Any:
    """The field's value, or None where it is absent."""
    return getattr(message, name) if message.HasField(name) else None


def _optional_ids(message: Message, name: str) -> Replicas | None:
    ids = _optional(message, name)
    return None if ids is None else _ids(ids.ids)


def _decoded(message: pb.MetadataRecord, kind: str) -> MetadataRecord:
    match kind:
        case "partition_change":
            return _decode_partition_change(message.partition_change)
        case "partition":
            return _decode_partition(message.partition)
        case "topic":
            return TopicRecord(topic_id=TopicId(message.topic.topic_id), name=message.topic.name)
        case "remove_topic":
            return RemoveTopicRecord(topic_id=TopicId(message.remove_topic.topic_id))
        case "config":
            return _decode_config(message.config)
        case "broker":
            return _decode_broker(message.broker)
        case "broker_change":
            return _decode_broker_change(message.broker_change)
        case "unregister_broker":
            gone = message.unregister_broker
            return UnregisterBrokerRecord(
                broker_id=BrokerId(gone.broker_id), broker_epoch=BrokerEpoch(gone.broker_epoch)
            )
        case "producer_ids":
            return ProducerIdsRecord(next_producer_id=ProducerId(message.producer_ids.next_producer_id))
        case "metadata_version":
            return MetadataVersionRecord(level=MetadataVersion(message.metadata_version.level))
        case "cluster":
            return ClusterRecord(cluster_id=message.cluster.cluster_id)
        case "acl":
            return AclRecord(acl=_decode_acl(message.acl))
        case "remove_acl":
            return RemoveAclRecord(acl=_decode_acl(message.remove_acl))
        case "user":
            user = message.user
            return UserRecord(name=user.name, password=SaltedPassword(salt=user.salt, hash=user.hash, cost=user.cost))
        case "remove_user":
            return RemoveUserRecord(name=message.remove_user.name)
        case "client_quota":
            return _decode_client_quota(message.client_quota)
        case _:
            raise InvariantError(f"no decoder for records of kind {kind}")


def _decode_client_quota(message: pb.ClientQuotaRecord) -> MetadataRecord:
    entity = QuotaEntity(
        user=_optional(message, "user"), client_id=_optional(message, "client_id"), ip=_optional(message, "ip")
    )
    return ClientQuotaRecord(entity=entity, key=message.key, value=_optional(message, "value"))


def _decode_acl(message: pb.AclRecord) -> Acl:
    try:
        return Acl(
            resource_type=AclResourceType(message.resource_type),
            name=message.resource_name,
            pattern_type=PatternType(message.pattern_type),
            principal=message.principal,
            operation=AclOperation(message.operation),
            permission=AclPermission(message.permission),
            host=message.host,
        )
    except ValueError as error:
        raise CorruptMessageError(f"an access control list entry cannot be read: {error}") from None


def _decode_broker(message: pb.BrokerRecord) -> MetadataRecord:
    broker = Broker(
        broker_id=BrokerId(message.broker_id),
        epoch=BrokerEpoch(message.broker_epoch),
        incarnation_id=message.incarnation_id,
        host=message.host,
        port=message.port,
        rack=message.rack,
        metadata_version_min=MetadataVersion(message.metadata_version_min),
        metadata_version_max=MetadataVersion(message.metadata_version_max),
        directory_ids=tuple(message.directory_ids),
        fenced=message.fenced,
        stopping=message.stopping,
        draining=message.draining,
        listeners=tuple(BrokerListener(name=one.name, host=one.host, port=one.port) for one in message.listeners),
    )
    return BrokerRecord(broker=broker)


def _decode_broker_change(message: pb.BrokerChangeRecord) -> MetadataRecord:
    return BrokerChangeRecord(
        broker_id=BrokerId(message.broker_id),
        broker_epoch=BrokerEpoch(message.broker_epoch),
        fenced=_optional(message, "fenced"),
        stopping=_optional(message, "stopping"),
        draining=_optional(message, "draining"),
    )


def _decode_partition(message: pb.PartitionRecord) -> MetadataRecord:
    partition = _settled_partition(
        tuple(message.replicas),
        tuple(message.isr),
        message.leader,
        message.last_leader,
        message.leader_epoch,
        message.partition_epoch,
    )
    if message.HasField("unsettled"):
        partition = replace(
            partition,
            elr=_ids(message.unsettled.elr),
            last_known_elr=_ids(message.unsettled.last_known_elr),
            adding=_ids(message.unsettled.adding),
            removing=_ids(message.unsettled.removing),
            offline=_ids(message.unsettled.offline),
        )
    return PartitionRecord(
        topic_id=TopicId(message.topic_id), partition_id=PartitionId(message.partition_id), partition=partition
    )


def _decode_partition_change(message: pb.PartitionChangeRecord) -> MetadataRecord:
    return PartitionChangeRecord(
        topic_id=TopicId(message.topic_id),
        partition_id=PartitionId(message.partition_id),
        replicas=_optional_ids(message, "replicas"),
        isr=_optional_ids(message, "isr"),
        elr=_optional_ids(message, "elr"),
        last_known_elr=_optional_ids(message, "last_known_elr"),
        adding=_optional_ids(message, "adding"),
        removing=_optional_ids(message, "removing"),
        offline=_optional_ids(message, "offline"),
        leader=_optional(message, "leader"),
        last_leader=_optional(message, "last_leader"),
    )


def _decode_config(message: pb.ConfigRecord) -> MetadataRecord:
    if message.resource_type not in _RESOURCE_TYPES:
        raise _from_a_newer_release(f"a config of a resource of type {message.resource_type}")
    return ConfigRecord(
        resource=ConfigTarget(ConfigTargetType(message.resource_type), message.resource_name),
        name=message.name,
        value=_optional(message, "value"),
    )
