"""Records of the coordinator as bytes: Kafka's schemas, so that Kafka's tools read them (group-coordinator, KIP-848).

    key     i16 kind, then its fields, not flexible
    value   i16 version, then its fields: version 3 for offsets, 0 and flexible for all others

Three facts have no field in Kafka's schemas and are tagged fields, which Kafka's readers skip: since when a group is
empty, a member's session time-out, and its serving node. Unknown kinds and versions raise UnsupportedVersionError;
corrupt bytes raise InvalidRecordError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from streamlog.errors import InvalidRecordError, UnsupportedVersionError
from streamlog.groups.assignors.problem import GroupPartition
from streamlog.groups.records import (
    CurrentKey,
    CurrentValue,
    GroupKey,
    GroupRecord,
    GroupValue,
    Key,
    MemberKey,
    MemberState,
    MemberValue,
    OffsetKey,
    OffsetValue,
    TargetKey,
    TargetMemberKey,
    TargetMemberValue,
    TargetValue,
    Value,
)
from streamlog.model import LeaderEpoch, Offset, PartitionId, TopicId
from streamlog.records.message_reader import MessageReader
from streamlog.records.message_writer import MessageWriter

_KINDS: Final[tuple[tuple[int, type[Key]], ...]] = (
    (1, OffsetKey),
    (3, GroupKey),
    (5, MemberKey),
    (6, TargetKey),
    (7, TargetMemberKey),
    (8, CurrentKey),
)
_KIND_OF: Final = {key_type: kind for kind, key_type in _KINDS}
_KEY_TYPES: Final = dict(_KINDS)
_OLD_OFFSET_KIND: Final = 0
_OFFSET_VERSION: Final = 3
_FLEXIBLE_OFFSET_VERSION: Final = 4
# Tags far above those that Kafka uses.
_EMPTY_SINCE_TAG: Final = 10_001
_SESSION_TAG: Final = 10_002
_SERVING_TAG: Final = 10_003


def encode(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value."""
    return _encode_key(record.key), None if record.value is None else _encode_value(record.value)


def decode(key: bytes | None, value: bytes | None) -> GroupRecord:
    """Raises UnsupportedVersionError, InvalidRecordError."""
    if key is None:
        raise InvalidRecordError("a record of __consumer_offsets must have a key")
    decoded = _decode_key(MessageReader(key))
    return GroupRecord(decoded, None if value is None else _decode_value(decoded, MessageReader(value)))


# -- keys


def _encode_key(key: Key) -> bytes:
    writer = MessageWriter()
    writer.int16(_KIND_OF[type(key)])
    writer.string(key.group)
    match key:
        case OffsetKey():
            writer.string(key.topic)
            writer.int32(key.partition)
        case MemberKey() | TargetMemberKey() | CurrentKey():
            writer.string(key.member_id)
    return writer.content()


def _decode_key(reader: MessageReader) -> Key:
    kind = reader.int16()
    if kind == _OLD_OFFSET_KIND:
        kind = _KIND_OF[OffsetKey]
    match _KEY_TYPES.get(kind):
        case None:
            raise UnsupportedVersionError(
                f"unknown record type {kind} in __consumer_offsets; a newer release wrote it",
                field="type",
                version=kind,
            )
        case key_type if key_type is OffsetKey:
            return OffsetKey(reader.string(), reader.string(), PartitionId(reader.int32()))
        case key_type if key_type is GroupKey or key_type is TargetKey:
            return key_type(reader.string())
        case key_type:
            return key_type(reader.string(), reader.string())  # type: ignore[call-arg]  # the three with a member


# -- values


def _encode_value(value: Value) -> bytes:
    writer = MessageWriter(flexible=not isinstance(value, OffsetValue))
    writer.int16(_OFFSET_VERSION if isinstance(value, OffsetValue) else 0)
    match value:
        case OffsetValue():
            writer.int64(value.offset)
            writer.int32(value.leader_epoch)
            writer.string(value.metadata)
            writer.int64(value.commit_timestamp_ms)
        case GroupValue():
            writer.int32(value.epoch)
            since = value.empty_since_ms
            writer.tagged_fields([(_EMPTY_SINCE_TAG, _int64(since))] if since >= 0 else [])
        case MemberValue():
            _encode_member(writer, value)
        case TargetValue():
            writer.int32(value.epoch)
            writer.tagged_fields()
        case TargetMemberValue():
            _encode_partitions(writer, value.partitions)
            writer.tagged_fields()
        case CurrentValue():
            writer.int32(value.epoch)
            writer.int32(value.previous_epoch)
            writer.int8(value.state)
            _encode_partitions(writer, value.assigned)
            _encode_partitions(writer, value.revoking)
            writer.tagged_fields()
    return writer.content()


def _encode_member(writer: MessageWriter, value: MemberValue) -> None:
    writer.nullable_string(value.instance_id or None)
    writer.nullable_string(value.rack or None)
    writer.string(value.client_id)
    writer.string(value.client_host)
    writer.array(value.topics, writer.string)
    writer.nullable_string(value.pattern or None)
    writer.int32(value.rebalance_timeout_ms)
    writer.nullable_string(value.assignor or None)
    tagged = [(_SESSION_TAG, _int64(value.session_timeout_ms))]
    if value.serving_epoch:
        tagged.append((_SERVING_TAG, _int64(value.serving_epoch)))
    writer.tagged_fields(tagged)


def _encode_partitions(writer: MessageWriter, partitions: Iterable[GroupPartition]) -> None:
    topics = [(topic_id, list(some)) for topic_id, some in groupby(sorted(partitions), lambda p: p.topic_id)]

    def topic(entry: tuple[TopicId, list[GroupPartition]]) -> None:
        topic_id, some = entry
        writer.raw(topic_id)
        writer.array(some, lambda p: writer.int32(p.partition))
        writer.tagged_fields()

    writer.array(topics, topic)


def _decode_value(key: Key, reader: MessageReader) -> Value:
    version = reader.int16()
    newest = _FLEXIBLE_OFFSET_VERSION if isinstance(key, OffsetKey) else 0
    if not 0 <= version <= newest:
        raise UnsupportedVersionError(
            f"unknown version {version} of {type(key).__name__} in __consumer_offsets; a newer release wrote it",
            field="version",
            version=version,
        )
    reader.flexible = not isinstance(key, OffsetKey) or version == _FLEXIBLE_OFFSET_VERSION
    match key:
        case OffsetKey():
            return _decode_offset(reader, version)
        case GroupKey():
            epoch = reader.int32()
            return GroupValue(epoch=epoch, empty_since_ms=_tagged_int64(reader, _EMPTY_SINCE_TAG, -1))
        case MemberKey():
            return _decode_member(reader)
        case TargetKey():
            value: Value = TargetValue(epoch=reader.int32())
        case TargetMemberKey():
            value = TargetMemberValue(partitions=_decode_partitions(reader))
        case CurrentKey():
            value = _decode_current(reader)
    reader.skip_tagged_fields()
    return value


def _decode_offset(reader: MessageReader, version: int) -> OffsetValue:
    offset = Offset(reader.int64())
    leader_epoch = LeaderEpoch(reader.int32() if version >= _OFFSET_VERSION else -1)
    metadata = reader.string()
    return OffsetValue(offset=offset, leader_epoch=leader_epoch, metadata=metadata, commit_timestamp_ms=reader.int64())


def _decode_member(reader: MessageReader) -> MemberValue:
    instance_id, rack = reader.nullable_string() or "", reader.nullable_string() or ""
    client_id, client_host = reader.string(), reader.string()
    topics, pattern = tuple(reader.array(reader.string)), reader.nullable_string() or ""
    rebalance_timeout_ms, assignor = reader.int32(), reader.nullable_string() or ""
    tagged = _tagged_int64s(reader)
    return MemberValue(
        topics=topics,
        pattern=pattern,
        assignor=assignor,
        rack=rack,
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=tagged.get(_SESSION_TAG, rebalance_timeout_ms),
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        serving_epoch=tagged.get(_SERVING_TAG, 0),
    )


def _decode_current(reader: MessageReader) -> CurrentValue:
    epoch, previous_epoch, state = reader.int32(), reader.int32(), reader.int8()
    if state not in MemberState.__members__.values():
        raise InvalidRecordError(f"invalid member state {state}")
    return CurrentValue(
        epoch=epoch,
        previous_epoch=previous_epoch,
        state=MemberState(state),
        assigned=_decode_partitions(reader),
        revoking=_decode_partitions(reader),
    )


def _decode_partitions(reader: MessageReader) -> frozenset[GroupPartition]:
    def topic() -> Iterator[GroupPartition]:
        topic_id = TopicId(reader.raw(16))
        indexes = reader.array(reader.int32)
        reader.skip_tagged_fields()
        return (GroupPartition(topic_id, PartitionId(index)) for index in indexes)

    return frozenset(partition for partitions in reader.array(topic) for partition in partitions)


def _int64(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def _tagged_int64s(reader: MessageReader) -> dict[int, int]:
    """Those that this module writes."""
    known = (_EMPTY_SINCE_TAG, _SESSION_TAG, _SERVING_TAG)
    return {tag: content.int64() for tag, content in reader.tagged_fields() if tag in known}


def _tagged_int64(reader: MessageReader, wanted: int, absent: int) -> int:
    value = absent
    for tag, content in reader.tagged_fields():
        if tag == wanted:
            value = content.int64()
    return value
