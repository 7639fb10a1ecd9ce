"""Decisions of this node about principals: the access control lists of its image, and super users.

A decision is remembered until the lists change: a call that repeats an earlier one's resources costs one look-up for
each. The image is the node's own, so a change is in force when the node has applied it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, TypeAlias

from streamlog.access.acl import AclOperation, AclResourceType
from streamlog.access.acl_rules import AccessDecision, AclRules
from streamlog.metadata.image.delta import MetadataDelta
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.view import MetadataView

REMEMBERED_MAX: Final = 50_000
"""Decisions; then all are forgotten, and made again."""
RESOURCES: Final = (
    AclResourceType.TOPIC,
    AclResourceType.GROUP,
    AclResourceType.TRANSACTIONAL_ID,
    AclResourceType.CLUSTER,
)
AclCallers: TypeAlias = Collection[tuple[str, str]]
"""Principals and hosts, as entries have them."""
_Key = tuple[str, str, AclOperation, AclResourceType, str]


class Authorizer:
    def __init__(
        self, view: MetadataView, *, enabled: bool, super_users: Collection[str] = (), default: bool = False
    ) -> None:
        """`default`: `allow.everyone.if.no.acl.found`."""
        self.enabled = enabled
        self._view = view
        self._super_users = frozenset(super_users)
        self._default = default
        self._acls = view.image.acls
        self._rules = AclRules(self._acls, default=default)
        self._remembered: dict[_Key, bool] = {}
        self._changed: list[Callable[[AclCallers | None], None]] = []
        self.refused = dict.fromkeys(RESOURCES, 0)  # rights that callers lacked, since the start
        if enabled:
            view.listen(self._on_image)

    def on_change(self, work: Callable[[AclCallers | None], None]) -> None:
        """Call `work` when the lists or the users have changed, with whom the changed entries name; None: anyone may
        have got or lost rights.
        """
        self._changed.append(work)

    def is_super(self, principal: str) -> bool:
        return principal in self._super_users

    def may(self, principal: str, host: str, operation: AclOperation, kind: AclResourceType, name: str) -> bool:
        key = (principal, host, operation, kind, name)
        known = self._remembered.get(key)
        if known is None:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            known = self._remembered[key] = self._rules.decide(principal, host, operation, kind, name).allowed
        return known

    def may_for_any(self, principal: str, host: str, operation: AclOperation, kind: AclResourceType) -> bool:
        return self._rules.may_for_any(principal, host, operation, kind)

    def may_for_all(self, principal: str, host: str, operation: AclOperation, kind: AclResourceType) -> bool:
        return self._rules.may_for_all(principal, host, operation, kind)

    def explain(
        self, principal: str, host: str, operation: AclOperation, kind: AclResourceType, name: str
    ) -> AccessDecision:
        if not self.enabled:
            return AccessDecision(True, None, "allowed: this node has no authorizer (authorizer.class.name)")
        if self.is_super(principal):
            return AccessDecision(True, None, f"allowed: {principal} is a super user (super.users)")
        return self._rules.decide(principal, host, operation, kind, name)

    def _on_image(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        if delta is not None and not delta.changes_access:
            return
        if image.acls is not self._acls:
            self._acls = image.acls
            self._rules = AclRules(image.acls, default=self._default)
            self._remembered.clear()
        callers = None
        if delta is not None and not self._default:  # by default an entry for one decides what others may, too
            callers = frozenset((acl.principal, acl.host) for acl in delta.changed_acls())
        for work in self._changed:
            work(callers)
