"""Access control lists and users: streamlog/v1/admin.proto to the controller's commands, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from streamlog.access.acl import (
    HOST_LENGTH_MAX,
    NAME_LENGTH_MAX,
    PRINCIPAL_LENGTH_MAX,
    WILDCARD,
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    check_acl,
)
from streamlog.access.passwords import SaltedPassword
from streamlog.api.convert.fields import each, enum_value, inside, text
from streamlog.api.pb import admin_pb2 as pb
from streamlog.metadata.access.acl_changes import CreateAcls, DeleteAcls

ENTRIES_MAX: Final = 1_000
FILTERS_MAX: Final = 100
_TYPES: Final = {int(one): one for one in AclResourceType}
_PATTERNS: Final = {int(one): one for one in PatternType}
_OPERATIONS: Final = {int(one): one for one in AclOperation}
_PERMISSIONS: Final = {int(one): one for one in AclPermission}


def create_acls(message: pb.CreateAclsRequest) -> CreateAcls:
    """InvalidRequestError."""
    return CreateAcls(acls=each(message.acls, "acls", _checked, count_min=1, count_max=ENTRIES_MAX))


def delete_acls(message: pb.DeleteAclsRequest) -> DeleteAcls:
    return DeleteAcls(filters=each(message.filters, "filters", acl_filter, count_min=1, count_max=FILTERS_MAX))


def _checked(message: pb.AclEntry) -> Acl:
    acl = _acl(message)
    check_acl(acl)
    return acl


def _acl(message: pb.AclEntry) -> Acl:
    return Acl(
        resource_type=resource_type(message.resource_type),
        name=text(message.resource_name, "resource_name", length_max=NAME_LENGTH_MAX),
        pattern_type=enum_value(
            message.pattern_type, _PATTERNS, pb.AclPatternType, "pattern_type", PatternType.LITERAL
        ),
        principal=text(message.principal, "principal", length_max=PRINCIPAL_LENGTH_MAX),
        operation=operation(message.operation),
        permission=enum_value(message.permission, _PERMISSIONS, pb.AclPermission, "permission", AclPermission.ALLOW),
        host=text(message.host, "host", length_max=HOST_LENGTH_MAX) or WILDCARD,
    )


def resource_type(number: int) -> AclResourceType:
    return enum_value(number, _TYPES, pb.AclResourceType, "resource_type")


def operation(number: int) -> AclOperation:
    return enum_value(number, _OPERATIONS, pb.AclOperation, "operation")


def acl_filter(message: pb.AclEntry) -> AclFilter:
    """InvalidRequestError."""
    match = message.pattern_type == pb.ACL_PATTERN_TYPE_MATCH
    return AclFilter(
        resource_type=resource_type(message.resource_type) if message.resource_type else None,
        name=text(message.resource_name, "resource_name", length_max=NAME_LENGTH_MAX) or None,
        pattern_type=enum_value(message.pattern_type, _PATTERNS, pb.AclPatternType, "pattern_type")
        if message.pattern_type and not match
        else None,
        match=match,
        principal=text(message.principal, "principal", length_max=PRINCIPAL_LENGTH_MAX) or None,
        operation=operation(message.operation) if message.operation else None,
        permission=enum_value(message.permission, _PERMISSIONS, pb.AclPermission, "permission")
        if message.permission
        else None,
        host=text(message.host, "host", length_max=HOST_LENGTH_MAX) or None,
    )


def acl_messages(acls: Iterable[Acl]) -> list[pb.AclEntry]:
    return [acl_message(acl) for acl in acls]


def acl_message(acl: Acl) -> pb.AclEntry:
    return pb.AclEntry(
        resource_type=pb.AclResourceType.ValueType(acl.resource_type),
        resource_name=acl.name,
        pattern_type=pb.AclPatternType.ValueType(acl.pattern_type),
        principal=acl.principal,
        operation=pb.AclOperation.ValueType(acl.operation),
        permission=pb.AclPermission.ValueType(acl.permission),
        host=acl.host,
    )


def filter_message(wanted: AclFilter) -> pb.AclEntry:
    pattern = pb.ACL_PATTERN_TYPE_MATCH if wanted.match else pb.AclPatternType.ValueType(wanted.pattern_type or 0)
    return pb.AclEntry(
        resource_type=pb.AclResourceType.ValueType(wanted.resource_type or 0),
        resource_name=wanted.name or "",
        pattern_type=pattern,
        principal=wanted.principal or "",
        operation=pb.AclOperation.ValueType(wanted.operation or 0),
        permission=pb.AclPermission.ValueType(wanted.permission or 0),
        host=wanted.host or "",
    )


def acl_of(message: pb.AclEntry) -> Acl:
    """Of a list: an earlier release may have accepted what this one refuses. InvalidRequestError for what only a newer
    release knows.
    """
    with inside("acl"):
        return _acl(message)


def password_of(message: pb.SaltedPassword) -> SaltedPassword:
    """Its lengths are checked by the controller."""
    return SaltedPassword(salt=message.salt, hash=message.hash, cost=message.cost)


def password_message(password: SaltedPassword) -> pb.SaltedPassword:
    return pb.SaltedPassword(salt=password.salt, hash=password.hash, cost=password.cost)
