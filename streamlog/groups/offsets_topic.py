"""The records of `__consumer_offsets`, in Kafka's schemas, as its tools show them.

A key begins with its type (i16), a value with its version (i16):

    type 0, 1  offset commit   key: group, topic, partition
                               value v0: offset, metadata, commit timestamp; v1 adds the expiry, v2 drops it again,
                               v3 adds the leader epoch, v4 is flexible, with the topic id as tagged field 0
    type 2     group metadata  key: group
                               value v0: protocol type, generation, protocol, leader, members; v1 adds the members'
                               rebalance timeout, v2 the time of the state, v3 the members' instance id, v4 is flexible

A value of null deletes what the key names. Members of groups whose protocol type is `consumer` carry subscription
and assignment in the schemas of the consumer protocol; what does not parse by these stays bytes.
"""

from __future__ import annotations

import base64
from typing import Final, TypeAlias

from msgspec import Struct

from streamlog.errors import InvalidRecordError, UnsupportedVersionError
from streamlog.records.message_reader import MessageReader

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | None"

OFFSET_COMMIT_KEYS: Final = (0, 1)
GROUP_METADATA_KEY: Final = 2
VALUE_VERSION_MAX: Final = 4
_FLEXIBLE_VERSION: Final = 4
_TOPIC_ID_TAG: Final = 0
_CONSUMER_PROTOCOL: Final = "consumer"


class OffsetsRecord(Struct, frozen=True, kw_only=True):
    """Key and value as JSON values, in the shape that Kafka prints: {"type": "1", "data": {...}} and
    {"version": "3", "data": {...}}. A value of None deletes.
    """

    key: Json
    value: Json


def decode(key: bytes | None, value: bytes | None) -> OffsetsRecord:
    """Raises UnsupportedVersionError for a key type or value version of another release (detail `version`), and
    InvalidRecordError for bytes that are no such record.
    """
    if key is None:
        raise InvalidRecordError("a record of __consumer_offsets must have a key")
    reader = MessageReader(key)
    key_type = reader.int16()
    if key_type in OFFSET_COMMIT_KEYS:
        data: Json = {"group": reader.string(), "topic": reader.string(), "partition": reader.int32()}
    elif key_type == GROUP_METADATA_KEY:
        data = {"group": reader.string()}
    else:
        raise UnsupportedVersionError(f"Unknown record type {key_type}", field="type", version=key_type)
    return OffsetsRecord(key={"type": str(key_type), "data": data}, value=_value(key_type, value))


def _value(key_type: int, value: bytes | None) -> Json:
    if value is None:
        return None
    reader = MessageReader(value)
    version = reader.int16()
    if not 0 <= version <= VALUE_VERSION_MAX:
        raise UnsupportedVersionError(f"Unknown value version {version}", field="version", version=version)
    reader.flexible = version >= _FLEXIBLE_VERSION
    read = _group_metadata if key_type == GROUP_METADATA_KEY else _offset_commit
    return {"version": str(version), "data": read(reader, version)}


def _offset_commit(reader: MessageReader, version: int) -> Json:
    data: dict[str, Json] = {"offset": reader.int64()}
    if version >= 3:
        data["leaderEpoch"] = reader.int32()
    data["metadata"] = reader.string()
    data["commitTimestamp"] = reader.int64()
    if version == 1:
        data["expireTimestamp"] = reader.int64()
    for tag, content in reader.tagged_fields():
        if tag == _TOPIC_ID_TAG:
            data["topicId"] = content.uuid()
    return data


def _group_metadata(reader: MessageReader, version: int) -> Json:
    protocol_type = reader.string()
    data: dict[str, Json] = {
        "protocolType": protocol_type,
        "generation": reader.int32(),
        "protocol": reader.nullable_string(),
        "leader": reader.nullable_string(),
    }
    if version >= 2:
        data["currentStateTimestamp"] = reader.int64()
    is_consumer = protocol_type == _CONSUMER_PROTOCOL
    data["members"] = reader.array(lambda: _member(reader, version, is_consumer=is_consumer))
    reader.skip_tagged_fields()
    return data


def _member(reader: MessageReader, version: int, *, is_consumer: bool) -> Json:
    member: dict[str, Json] = {"memberId": reader.string()}
    if version >= 3:
        member["groupInstanceId"] = reader.nullable_string()
    member["clientId"] = reader.string()
    member["clientHost"] = reader.string()
    if version >= 1:
        member["rebalanceTimeout"] = reader.int32()
    member["sessionTimeout"] = reader.int32()
    subscription = reader.nullable_bytes()
    assignment = reader.nullable_bytes()
    reader.skip_tagged_fields()
    member["subscription"] = _subscription(subscription) if is_consumer else _base64(subscription)
    member["assignment"] = _assignment(assignment) if is_consumer else _base64(assignment)
    return member


def _subscription(content: bytes | None) -> Json:
    """The consumer protocol's subscription, v0 to v3; a newer version begins with the same fields."""
    if content is None:
        return None
    reader = MessageReader(content)
    try:
        version = reader.int16()
        data: dict[str, Json] = {"topics": reader.array(reader.string), "userData": _base64(reader.nullable_bytes())}
        if version >= 1:
            data["ownedPartitions"] = reader.array(lambda: _topic_partitions(reader))
        if version >= 2:
            data["generationId"] = reader.int32()
        if version >= 3:
            data["rackId"] = reader.nullable_string()
    except InvalidRecordError:
        return _base64(content)
    return data


def _assignment(content: bytes | None) -> Json:
    if content is None:
        return None
    reader = MessageReader(content)
    try:
        reader.int16()  # the version: all have the same fields
        partitions = reader.array(lambda: _topic_partitions(reader))
        return {"assignedPartitions": partitions, "userData": _base64(reader.nullable_bytes())}
    except InvalidRecordError:
        return _base64(content)


def _topic_partitions(reader: MessageReader) -> Json:
    return {"topic": reader.string(), "partitions": reader.array(reader.int32)}


def _base64(content: bytes | None) -> Json:
    return None if content is None else base64.b64encode(content).decode()
