"""The resources that a request names, for its audit event: names of known fields, found by the request's descriptor.

Only fields in the tables below are read, so a new field of a request never puts a value or a secret into the log.
Messages that hold records are not looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from google.protobuf.message import Message

from streamlog.api.convert.admin.quotas import quota_entity
from streamlog.api.pb import admin_pb2 as pb
from streamlog.ports import AuditResource

RESOURCES_MAX: Final = 100
"""Of one event; a request may name ten thousand."""
WALKED_MAX: Final = 20_000
"""Submessages and names of a request that are looked at: it is not known yet whether its handler takes so many."""
NAME_LENGTH_MAX: Final = 300
MORE: Final = "more"
"""The type of the last one, where it counts those that are left out."""
_DEPTH_MAX: Final = 4

_TEXTS: Final = {
    "topic": "topic",
    "topics": "topic",
    "group": "group",
    "groups": "group",
    "transactional_id": "transactional id",
    "transactional_ids": "transactional id",
}
_NODES: Final = frozenset({"node_id", "node_ids", "replaced_node_id"})
_TOPIC_IDS: Final = frozenset({"topic_id", "topic_ids"})
_NAMED: Final = {
    "NewTopic": "topic",
    "ConfigChange": "config",
    "LoggerChange": "logger",
    "CreateUserRequest": "user",
    "AlterUserRequest": "user",
    "DeleteUserRequest": "user",
}
"""Messages whose field `name` says what they are about."""
_CLOSED: Final = frozenset({"PublishRecord", "PartitionBatches", "SaltedPassword"})
"""Messages that hold records or secrets: of PartitionBatches only the topic is read."""


def resources_of(message: object, topic_name: Callable[[bytes], str]) -> dict[AuditResource, None]:
    """Each once, at most RESOURCES_MAX and a last one that counts the others, as far as they are looked at.
    `topic_name`: of a topic's id.
    """
    found: dict[AuditResource, None] = {}
    more = 0
    left = iter(range(WALKED_MAX))
    if isinstance(message, Message):
        for kind, name in _names(message, topic_name, 0, left):
            resource = AuditResource(kind, name[:NAME_LENGTH_MAX])
            if resource in found:
                continue
            if len(found) < RESOURCES_MAX:
                found[resource] = None
            else:
                more += 1
    if next(left, None) is None:
        found[AuditResource(MORE, f"{more} or more")] = None
    elif more:
        found[AuditResource(MORE, str(more))] = None
    return found


def is_dry_run(message: object) -> bool:
    return bool(getattr(message, "validate_only", False) or getattr(message, "dry_run", False))


def _names(
    message: Message, topic_name: Callable[[bytes], str], depth: int, left: Iterator[int]
) -> Iterator[tuple[str, str]]:
    """`left`: ends the walk, of all submessages together, where it ends."""
    kind = message.DESCRIPTOR.name
    special = _SPECIAL.get(kind)
    if special is not None:
        yield special(message)
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            if depth < _DEPTH_MAX and kind not in _CLOSED and field.message_type.name != "PublishRecord":
                for one, _ in zip(value if field.is_repeated else (value,), left, strict=False):
                    if isinstance(one, Message):
                        yield from _names(one, topic_name, depth + 1, left)
            continue
        name_of = _naming(field.name, kind, topic_name)
        if name_of is not None:
            for one, _ in zip(value if field.is_repeated else (value,), left, strict=False):
                if isinstance(one, str | bytes | int):
                    yield name_of(one)


def _naming(field: str, kind: str, topic_name: Callable[[bytes], str]) -> Callable[[Any], tuple[str, str]] | None:
    """None: the field, of a message of that kind, has no names."""
    if field in _TEXTS:
        return lambda text: (_TEXTS[field], text)
    if field in _TOPIC_IDS:
        return lambda topic_id: ("topic", topic_name(topic_id))
    if field in _NODES:
        return lambda node_id: ("node", str(node_id))
    if field == "name" and kind in _NAMED:
        return lambda text: (_NAMED[kind], text)
    return None


def _config_resource(message: Any) -> tuple[str, str]:
    if message.type == pb.CONFIG_RESOURCE_TYPE_TOPIC:
        return "topic", message.name
    return "node", message.name or "all nodes"


def _acl(message: Any) -> tuple[str, str]:
    permission = _named(pb.AclPermission, message.permission, "ALLOW")
    operation = _named(pb.AclOperation, message.operation, "any operation")
    kind = _named(pb.AclResourceType, message.resource_type, "any resource")
    pattern = " (prefixed)" if message.pattern_type == pb.ACL_PATTERN_TYPE_PREFIXED else ""
    name = f"{message.resource_name}{pattern}"
    return "acl", f"{permission} {message.principal} {operation} on {kind} {name} from {message.host or '*'}"


def _quota(message: Any) -> tuple[str, str]:
    return "quota", str(quota_entity(message))


def _named(enum: Any, number: int, unset: str) -> str:
    """ACL_OPERATION_READ: READ. Senders may use numbers of newer releases."""
    if not number:
        return unset
    if number not in enum.values():
        return str(number)
    name: str = enum.Name(number)
    for prefix in ("ACL_PERMISSION_", "ACL_OPERATION_", "ACL_RESOURCE_TYPE_"):
        name = name.removeprefix(prefix)
    return name


_SPECIAL: Final[Mapping[str, Callable[[Any], tuple[str, str]]]] = {
    "ConfigResource": _config_resource,
    "AclEntry": _acl,
    "ClientQuotaEntity": _quota,
}
