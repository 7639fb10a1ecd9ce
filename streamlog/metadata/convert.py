"""Protobuf to records and back: the only module here, beside the generated code, that sees protobuf.

Bytes are a function of the records alone: no maps, no unknown fields, deterministic serialization. So equal images
have equal snapshots, and a command is the same on every voter.

Reading is strict where an older node meets a newer log. A record that is not known, or a known one in a format version
that is not, raises UnsupportedVersionError with the number and what to do; the node that applies the log stops on it.
To skip what it does not know would let its image differ from the others' in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from streamlog.errors import CorruptMessageError, InvalidRequestError, UnsupportedVersionError
from streamlog.metadata.pb import metadata_pb2 as pb
from streamlog.metadata.records import (
    Broker,
    BrokerChangeRecord,
    BrokerRecord,
    ClusterRecord,
    ConfigRecord,
    ConfigResource,
    MetadataVersion,
    MetadataVersionRecord,
    Partition,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RemoveTopicRecord,
    Replicas,
    ResourceType,
    TopicRecord,
    UnregisterBrokerRecord,
)
from streamlog.model import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, PartitionId, ProducerId, TopicId

M = TypeVar("M", bound=Message)

# A command above this is refused before it is proposed: the quorum would refuse it (its command_bytes_max).
BATCH_BYTES_MAX: Final = 1 << 20


def encode_batch(records: Iterable[Record]) -> bytes:
    """The bytes of one command. InvalidRequestError where they are more than BATCH_BYTES_MAX."""
    data = _batch(records).SerializeToString(deterministic=True)
    if len(data) > BATCH_BYTES_MAX:
        raise InvalidRequestError(
            f"the request makes {len(data)} bytes of metadata, at most {BATCH_BYTES_MAX} go into one command: split it",
            field="request",
            limit=BATCH_BYTES_MAX,
        )
    return data


def decode_batch(data: bytes) -> list[Record]:
    """The records of one command.

    CorruptMessageError where the bytes are no command; UnsupportedVersionError where they are one from a newer release.
    """
    return _records(_parsed(pb.MetadataBatch(), data))


def encode_snapshot_head(index: int, metadata_version: MetadataVersion, snapshot_format: int) -> bytes:
    head = pb.MetadataSnapshotHead(format=snapshot_format, index=index, metadata_version=metadata_version)
    return pb.MetadataSnapshotChunk(head=head).SerializeToString(deterministic=True)


def encode_snapshot_batch(records: Iterable[Record]) -> bytes:
    return pb.MetadataSnapshotChunk(batch=_batch(records)).SerializeToString(deterministic=True)


def encode_snapshot_tail(record_count: int) -> bytes:
    tail = pb.MetadataSnapshotTail(record_count=record_count)
    return pb.MetadataSnapshotChunk(tail=tail).SerializeToString(deterministic=True)


def decode_snapshot_chunk(data: bytes) -> tuple[int, int, MetadataVersion] | list[Record] | int:
    """Of a head (format, index, metadata.version); of a batch its records; of the tail the count of all records."""
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


def _batch(records: Iterable[Record]) -> pb.MetadataBatch:
    batch = pb.MetadataBatch()
    add = batch.records.add
    for record in records:
        _ENCODERS[type(record)](add(), record)
    return batch


def _records(batch: pb.MetadataBatch) -> list[Record]:
    return [_record(message) for message in batch.records]


def _record(message: pb.MetadataRecord) -> Record:
    kind = message.WhichOneof("record")
    if kind is None:
        numbers = sorted(field.field_number for field in UnknownFieldSet(message))  # type: ignore[attr-defined]  # typeshed lacks __iter__
        raise _from_a_newer_release(f"a record of kind {numbers[0] if numbers else 0}")
    if message.version > VERSION_MAX[kind]:
        raise _from_a_newer_release(f"a {kind} record of version {message.version} (known: {VERSION_MAX[kind]})")
    return _DECODERS[kind](getattr(message, kind))


def _from_a_newer_release(what: str) -> UnsupportedVersionError:
    return UnsupportedVersionError(
        f"the metadata log holds {what}, written by a newer release of streamlog: install that release on this node, "
        "then start it again; nothing is lost"
    )


def _parsed(message: M, data: bytes) -> M:
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise CorruptMessageError(f"no metadata command or snapshot: {error}") from error
    return message


# --- records to messages


def _encode_metadata_version(message: pb.MetadataRecord, record: MetadataVersionRecord) -> None:
    message.metadata_version.SetInParent()
    message.metadata_version.level = record.level


def _encode_cluster(message: pb.MetadataRecord, record: ClusterRecord) -> None:
    message.cluster.cluster_id = record.cluster_id


def _encode_broker(message: pb.MetadataRecord, record: BrokerRecord) -> None:
    broker = record.broker
    message.broker.MergeFrom(
        pb.BrokerRecord(
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
        )
    )


def _encode_broker_change(message: pb.MetadataRecord, record: BrokerChangeRecord) -> None:
    change = message.broker_change
    change.broker_id = record.broker_id
    change.broker_epoch = record.broker_epoch
    for name in ("fenced", "stopping", "draining"):
        value: bool | None = getattr(record, name)
        if value is not None:
            setattr(change, name, value)


def _encode_unregister_broker(message: pb.MetadataRecord, record: UnregisterBrokerRecord) -> None:
    message.unregister_broker.broker_id = record.broker_id
    message.unregister_broker.broker_epoch = record.broker_epoch


def _encode_topic(message: pb.MetadataRecord, record: TopicRecord) -> None:
    message.topic.topic_id = record.topic_id
    message.topic.name = record.name


def _encode_remove_topic(message: pb.MetadataRecord, record: RemoveTopicRecord) -> None:
    message.remove_topic.topic_id = record.topic_id


def _encode_partition(message: pb.MetadataRecord, record: PartitionRecord) -> None:
    state = record.partition
    partition = message.partition
    partition.topic_id = record.topic_id
    partition.partition_id = record.partition_id
    partition.leader = state.leader
    partition.last_leader = state.last_leader
    partition.leader_epoch = state.leader_epoch
    partition.partition_epoch = state.partition_epoch
    partition.replicas.extend(state.replicas)
    partition.isr.extend(state.isr)
    if state.elr or state.adding or state.removing or state.offline:
        partition.unsettled.elr.extend(state.elr)
        partition.unsettled.adding.extend(state.adding)
        partition.unsettled.removing.extend(state.removing)
        partition.unsettled.offline.extend(state.offline)


def _encode_partition_change(message: pb.MetadataRecord, record: PartitionChangeRecord) -> None:
    change = message.partition_change
    change.topic_id = record.topic_id
    change.partition_id = record.partition_id
    if record.isr is not None:
        change.isr.SetInParent()
        change.isr.ids.extend(record.isr)
    if record.elr is not None:
        change.elr.SetInParent()
        change.elr.ids.extend(record.elr)
    for name in ("replicas", "adding", "removing", "offline"):
        ids: Replicas | None = getattr(record, name)
        if ids is not None:
            field = getattr(change, name)
            field.SetInParent()
            field.ids.extend(ids)
    if record.leader is not None:
        change.leader = record.leader
    if record.last_leader is not None:
        change.last_leader = record.last_leader


def _encode_config(message: pb.MetadataRecord, record: ConfigRecord) -> None:
    message.config.resource_type = pb.ConfigResourceType.ValueType(record.resource.type)
    message.config.resource_name = record.resource.name
    message.config.name = record.name
    if record.value is not None:
        message.config.value = record.value


def _encode_producer_ids(message: pb.MetadataRecord, record: ProducerIdsRecord) -> None:
    message.producer_ids.SetInParent()
    message.producer_ids.next_producer_id = record.next_producer_id


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
    """One object for equal ones: a cluster has many partitions and few states of them, and this is the way that
    every partition of a snapshot takes.
    """
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


def _optional_ids(message: pb.PartitionChangeRecord, name: str) -> Replicas | None:
    return _ids(getattr(message, name).ids) if message.HasField(name) else None  # type: ignore[arg-type]  # names of the message above


def _decode_metadata_version(message: pb.MetadataVersionRecord) -> Record:
    return MetadataVersionRecord(level=MetadataVersion(message.level))


def _decode_cluster(message: pb.ClusterRecord) -> Record:
    return ClusterRecord(cluster_id=message.cluster_id)


def _decode_broker(message: pb.BrokerRecord) -> Record:
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
    )
    return BrokerRecord(broker=broker)


def _decode_broker_change(message: pb.BrokerChangeRecord) -> Record:
    return BrokerChangeRecord(
        broker_id=BrokerId(message.broker_id),
        broker_epoch=BrokerEpoch(message.broker_epoch),
        fenced=message.fenced if message.HasField("fenced") else None,
        stopping=message.stopping if message.HasField("stopping") else None,
        draining=message.draining if message.HasField("draining") else None,
    )


def _decode_unregister_broker(message: pb.UnregisterBrokerRecord) -> Record:
    return UnregisterBrokerRecord(broker_id=BrokerId(message.broker_id), broker_epoch=BrokerEpoch(message.broker_epoch))


def _decode_topic(message: pb.TopicRecord) -> Record:
    return TopicRecord(topic_id=TopicId(message.topic_id), name=message.name)


def _decode_remove_topic(message: pb.RemoveTopicRecord) -> Record:
    return RemoveTopicRecord(topic_id=TopicId(message.topic_id))


def _decode_partition(message: pb.PartitionRecord) -> Record:
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
            adding=_ids(message.unsettled.adding),
            removing=_ids(message.unsettled.removing),
            offline=_ids(message.unsettled.offline),
        )
    return PartitionRecord(
        topic_id=TopicId(message.topic_id), partition_id=PartitionId(message.partition_id), partition=partition
    )


def _decode_partition_change(message: pb.PartitionChangeRecord) -> Record:
    return PartitionChangeRecord(
        topic_id=TopicId(message.topic_id),
        partition_id=PartitionId(message.partition_id),
        replicas=_optional_ids(message, "replicas"),
        isr=_optional_ids(message, "isr"),
        elr=_optional_ids(message, "elr"),
        adding=_optional_ids(message, "adding"),
        removing=_optional_ids(message, "removing"),
        offline=_optional_ids(message, "offline"),
        leader=BrokerId(message.leader) if message.HasField("leader") else None,
        last_leader=BrokerId(message.last_leader) if message.HasField("last_leader") else None,
    )


def _decode_config(message: pb.ConfigRecord) -> Record:
    if message.resource_type not in _RESOURCE_TYPES:
        raise _from_a_newer_release(f"a config of a resource of type {message.resource_type}")
    return ConfigRecord(
        resource=ConfigResource(ResourceType(message.resource_type), message.resource_name),
        name=message.name,
        value=message.value if message.HasField("value") else None,
    )


def _decode_producer_ids(message: pb.ProducerIdsRecord) -> Record:
    return ProducerIdsRecord(next_producer_id=ProducerId(message.next_producer_id))


_RESOURCE_TYPES: Final = frozenset(int(resource_type) for resource_type in ResourceType)

_ENCODERS: Final[Mapping[type[Record], Callable[[pb.MetadataRecord, Any], None]]] = {
    MetadataVersionRecord: _encode_metadata_version,
    ClusterRecord: _encode_cluster,
    BrokerRecord: _encode_broker,
    BrokerChangeRecord: _encode_broker_change,
    UnregisterBrokerRecord: _encode_unregister_broker,
    TopicRecord: _encode_topic,
    RemoveTopicRecord: _encode_remove_topic,
    PartitionRecord: _encode_partition,
    PartitionChangeRecord: _encode_partition_change,
    ConfigRecord: _encode_config,
    ProducerIdsRecord: _encode_producer_ids,
}

# By the name of the field in MetadataRecord's oneof.
_DECODERS: Final[Mapping[str, Callable[[Any], Record]]] = {
    "metadata_version": _decode_metadata_version,
    "cluster": _decode_cluster,
    "broker": _decode_broker,
    "broker_change": _decode_broker_change,
    "unregister_broker": _decode_unregister_broker,
    "topic": _decode_topic,
    "remove_topic": _decode_remove_topic,
    "partition": _decode_partition,
    "partition_change": _decode_partition_change,
    "config": _decode_config,
    "producer_ids": _decode_producer_ids,
}

# The newest format version of each record that this release reads, and writes.
VERSION_MAX: Final[Mapping[str, int]] = dict.fromkeys(_DECODERS, 0)


def kinds() -> Iterator[str]:
    """The records that this release knows, by the name of their field: for tests and tools."""
    return iter(_DECODERS)
