"""One entry of the access control lists, in the terms and numbers of Kafka 4 (AclBinding)."""

from __future__ import annotations

import enum
import re
from typing import Final

from msgspec import Struct

from streamlog.access.addresses import address_of
from streamlog.errors import InvalidRequestError
from streamlog.model import TOPIC_CHARACTER
from streamlog.printable import escaped

NAME_LENGTH_MAX: Final = 249
PRINCIPAL_LENGTH_MAX: Final = 1_024
HOST_LENGTH_MAX: Final = 45
"""An IPv6 address."""
WILDCARD: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER, as in Kafka."""
EVERY_USER: Final = "User:*"
_TOPIC_NAME: Final = re.compile(f"{TOPIC_CHARACTER}+")


class AclResourceType(enum.IntEnum):
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class PatternType(enum.IntEnum):
    LITERAL = 3  # the name itself; `*`: every name
    PREFIXED = 4  # every name that begins with it


class AclOperation(enum.IntEnum):
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class AclPermission(enum.IntEnum):
    DENY = 2
    ALLOW = 3


_O = AclOperation
OPERATIONS_OF: Final = {
    AclResourceType.TOPIC: (
        _O.READ,
        _O.WRITE,
        _O.CREATE,
        _O.DELETE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
        _O.ALL,
    ),
    AclResourceType.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE, _O.ALL),
    AclResourceType.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE, _O.ALL),
    AclResourceType.CLUSTER: (
        _O.CREATE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.CLUSTER_ACTION,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
        _O.IDEMPOTENT_WRITE,
        _O.ALL,
    ),
}
"""Those that mean something for a resource of the type, as in Kafka."""


class Acl(Struct, frozen=True, order=True, kw_only=True):
    resource_type: AclResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL
    principal: str  # such as `User:alice`; `User:*`: everyone
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    host: str = WILDCARD  # an IP address

    def matches_name(self, name: str) -> bool:
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)

    def __str__(self) -> str:
        """As people write it: `ALLOW User:alice READ on topic orders from *`."""
        kind = self.resource_type.name.lower().replace("_", " ")
        prefixed = " (prefixed)" if self.pattern_type is PatternType.PREFIXED else ""
        return (
            f"{self.permission.name} {self.principal} {self.operation.name} on {kind} {self.name}{prefixed} "
            f"from {self.host}"
        )


class AclFilter(Struct, frozen=True, kw_only=True):
    """Selects entries; a field that is None matches all. `match`: of a name, also wildcard and prefixed entries."""

    resource_type: AclResourceType | None = None
    name: str | None = None
    pattern_type: PatternType | None = None
    match: bool = False
    principal: str | None = None
    operation: AclOperation | None = None
    permission: AclPermission | None = None
    host: str | None = None

    def matches(self, acl: Acl) -> bool:
        if self.name is not None and not (acl.matches_name(self.name) if self.match else acl.name == self.name):
            return False
        return (
            (self.resource_type is None or self.resource_type is acl.resource_type)
            and (self.match or self.pattern_type is None or self.pattern_type is acl.pattern_type)
            and (self.principal is None or self.principal == acl.principal)
            and (self.operation is None or self.operation is acl.operation)
            and (self.permission is None or self.permission is acl.permission)
            and (self.host is None or self.host == acl.host)
        )


def check_acl(acl: Acl) -> None:
    """InvalidRequestError if it could never apply."""
    if not 0 < len(acl.name) <= NAME_LENGTH_MAX:
        raise InvalidRequestError(
            f"the name of a resource must have 1 to {NAME_LENGTH_MAX} characters", field="name", limit=NAME_LENGTH_MAX
        )
    check_principal(acl.principal)
    check_host(acl.host)
    if acl.name != WILDCARD or acl.pattern_type is PatternType.PREFIXED:
        _check_name(acl)
    if acl.operation not in OPERATIONS_OF[acl.resource_type]:
        known = ", ".join(operation.name for operation in OPERATIONS_OF[acl.resource_type])
        raise InvalidRequestError(
            f"{acl.operation.name} is not an operation of a {acl.resource_type.name} resource: give one of {known}",
            field="operation",
            limit=known,
        )


def _check_name(acl: Acl) -> None:
    """InvalidRequestError if no resource has, or begins with, this name."""
    if acl.resource_type is AclResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        raise InvalidRequestError(f"the name of the cluster resource is {CLUSTER_NAME}", field="name")
    if acl.resource_type is not AclResourceType.TOPIC:
        return
    is_whole = acl.pattern_type is PatternType.LITERAL
    if _TOPIC_NAME.fullmatch(acl.name) is None or (is_whole and acl.name in (".", "..")):
        raise InvalidRequestError(
            f"no topic has {'the name' if is_whole else 'a name that begins with'} {escaped(acl.name)!r}, so the entry "
            "would never apply: names have only ASCII letters, digits, '.', '_' and '-'. Give * with the pattern type "
            "literal for all topics, or the beginning of their names with prefixed",
            field="name",
        )


def check_host(host: str) -> None:
    """InvalidRequestError unless callers are known by it, or it is *."""
    usual = host if host == WILDCARD else address_of(host)
    if usual is None:
        raise InvalidRequestError(
            f"host {escaped(host[:HOST_LENGTH_MAX])!r} must be an IP address, or * for all",
            field="host",
            limit=HOST_LENGTH_MAX,
        )
    if usual != host:
        raise InvalidRequestError(f"host {host} would match no caller: it must be written as {usual}", field="host")


def check_principal(principal: str) -> None:
    """InvalidRequestError unless it is `User:NAME`."""
    kind, colon, name = principal.partition(":")
    if kind != "User" or not colon or not name or len(principal) > PRINCIPAL_LENGTH_MAX or not name.isprintable():
        raise InvalidRequestError(
            f"principal {principal[:80]!r} must be User:NAME, with at most {PRINCIPAL_LENGTH_MAX} characters",
            field="principal",
            limit=PRINCIPAL_LENGTH_MAX,
        )
