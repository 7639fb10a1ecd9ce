"""All entries of the access control lists, indexed, and which of them decides (Kafka's StandardAuthorizer).

    a DENY entry matches                            refused
    an ALLOW entry matches                          allowed
    neither, no entry at all matches the resource   as `allow.everyone.if.no.acl.found` says
    neither                                         refused

READ, WRITE, DELETE and ALTER that are allowed imply DESCRIBE, ALTER_CONFIGS implies DESCRIBE_CONFIGS; what is denied
implies nothing. Super users are not known here.

A decision looks at the entries of the name, of `*` and of each prefix of the name that an entry has: its cost does not
depend on how many entries other resources have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from streamlog.access.acl import EVERY_USER, WILDCARD, Acl, AclOperation, AclPermission, AclResourceType, PatternType

_O = AclOperation
_IMPLIED_BY: Final = {
    _O.DESCRIBE: frozenset({_O.DESCRIBE, _O.READ, _O.WRITE, _O.DELETE, _O.ALTER, _O.ALL}),
    _O.DESCRIBE_CONFIGS: frozenset({_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.ALL}),
}


class AccessDecision(Struct, frozen=True):
    allowed: bool
    acl: Acl | None  # the entry that decided
    reason: str  # a clause, for people


class AclRules:
    def __init__(self, acls: Iterable[Acl] = (), *, default: bool = False) -> None:
        """`default`: for resources that no entry matches."""
        self._default = default
        self._literal: dict[tuple[AclResourceType, str], list[Acl]] = {}
        self._prefixed: dict[AclResourceType, dict[str, list[Acl]]] = {}
        self._lengths: dict[AclResourceType, list[int]] = {}  # of the prefixes, ascending
        for acl in acls:
            if acl.pattern_type is PatternType.PREFIXED:
                self._prefixed.setdefault(acl.resource_type, {}).setdefault(acl.name, []).append(acl)
            else:
                self._literal.setdefault((acl.resource_type, acl.name), []).append(acl)
        for kind, by_prefix in self._prefixed.items():
            self._lengths[kind] = sorted({len(prefix) for prefix in by_prefix})

    def decide(
        self, principal: str, host: str, operation: AclOperation, kind: AclResourceType, name: str
    ) -> AccessDecision:
        allowing: Acl | None = None
        found = False
        granting = _IMPLIED_BY.get(operation, frozenset({operation, _O.ALL}))
        for acl in self._matching(kind, name):
            found = True
            if not _is_of(acl, principal, host):
                continue
            if acl.permission is AclPermission.DENY:
                if acl.operation in (operation, _O.ALL):
                    return AccessDecision(False, acl, f"denied by: {acl}")
            elif allowing is None and acl.operation in granting:
                allowing = acl
        if allowing is not None:
            return AccessDecision(True, allowing, f"allowed by: {allowing}")
        if not found and self._default:
            return AccessDecision(True, None, "allowed: no entry matches the resource (allow.everyone.if.no.acl.found)")
        return AccessDecision(False, None, "refused: no entry allows it")

    def may_for_any(self, principal: str, host: str, operation: AclOperation, kind: AclResourceType) -> bool:
        """Whether it is allowed for some name of the type (KIP-679)."""
        own = [acl for acl in self._all(kind) if _is_of(acl, principal, host)]
        denied = [a for a in own if a.permission is AclPermission.DENY and a.operation in (operation, _O.ALL)]
        if any(acl.name == WILDCARD and acl.pattern_type is PatternType.LITERAL for acl in denied):
            return False
        granting = _IMPLIED_BY.get(operation, frozenset({operation, _O.ALL}))
        allowed = (a for a in own if a.permission is AclPermission.ALLOW and a.operation in granting)
        return self._default or any(not any(_covers(deny, acl) for deny in denied) for acl in allowed)

    def may_for_all(self, principal: str, host: str, operation: AclOperation, kind: AclResourceType) -> bool:
        """Whether it is allowed for every name of the type, those that do not exist yet included."""
        own = [acl for acl in self._all(kind) if _is_of(acl, principal, host)]
        if any(acl.permission is AclPermission.DENY and acl.operation in (operation, _O.ALL) for acl in own):
            return False
        granting = _IMPLIED_BY.get(operation, frozenset({operation, _O.ALL}))
        return any(
            acl.name == WILDCARD and acl.pattern_type is PatternType.LITERAL and acl.operation in granting
            for acl in own
        ) or (self._default and next(self._all(kind), None) is None)

    def _matching(self, kind: AclResourceType, name: str) -> Iterator[Acl]:
        yield from self._literal.get((kind, name), ())
        if name != WILDCARD:
            yield from self._literal.get((kind, WILDCARD), ())
        by_prefix = self._prefixed.get(kind)
        if by_prefix is None:
            return
        for length in self._lengths[kind]:
            if length > len(name):
                return
            yield from by_prefix.get(name[:length], ())

    def _all(self, kind: AclResourceType) -> Iterator[Acl]:
        for (of, _), acls in self._literal.items():
            if of is kind:
                yield from acls
        for acls in self._prefixed.get(kind, {}).values():
            yield from acls


def _is_of(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, EVERY_USER) and acl.host in (host, WILDCARD)


def _covers(deny: Acl, allow: Acl) -> bool:
    """Whether everything that `allow` names is denied."""
    if deny.pattern_type is PatternType.PREFIXED:
        return allow.name.startswith(deny.name) and not (
            allow.name == WILDCARD and allow.pattern_type is PatternType.LITERAL
        )
    return allow.pattern_type is PatternType.LITERAL and deny.name == allow.name
