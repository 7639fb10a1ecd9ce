"""What one call may do: the `CallGuard` of its CallInfo.

The guard of a stream remembers the rights that it granted, so that the stream can be ended when one is withdrawn; where
the stream shows only what may be seen, also those that it refused. A client names what it likes, so that is bounded: a
stream that goes beyond it ends at the next change of the lists, whatever has changed. Names come here before handlers
check their length, and decisions, refusals and events keep them: only the beginning of a longer one is used.
"""

from __future__ import annotations

from typing import Any, Final

from streamlog.access.acl import CLUSTER_NAME, EVERY_USER, WILDCARD, AclOperation, AclResourceType
from streamlog.api.request_resources import NAME_LENGTH_MAX
from streamlog.api.requests import PARTITIONS_PER_REQUEST_MAX
from streamlog.errors import (
    BrokerNotAvailableError,
    ClusterAuthorizationError,
    GroupAuthorizationError,
    InvalidRequestError,
    StreamlogError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
)
from streamlog.metadata.view import MetadataView
from streamlog.model import TopicId
from streamlog.ports import CallAudit
from streamlog.services.access.authorizer import AclCallers, Authorizer

NAMES_MAX: Final = PARTITIONS_PER_REQUEST_MAX
"""In a list of a request: no method accepts more."""
REMEMBERED_MAX: Final = PARTITIONS_PER_REQUEST_MAX
"""Answers of one stream: as many as it may have partitions, each of another topic."""
_TOPIC: Final = AclResourceType.TOPIC
_ERRORS: Final = {
    AclResourceType.TOPIC: (TopicAuthorizationError, "topic"),
    AclResourceType.GROUP: (GroupAuthorizationError, "group"),
    AclResourceType.TRANSACTIONAL_ID: (TransactionalIdAuthorizationError, "transactional id"),
    AclResourceType.CLUSTER: (ClusterAuthorizationError, "cluster"),
}


def check_names(count: int) -> None:
    """InvalidRequestError for more names than any request may have. Before they are looked up, one by one."""
    if count > NAMES_MAX:
        raise InvalidRequestError(
            f"a list of the request has more than {NAMES_MAX} entries, which no method accepts",
            field="request",
            limit=NAMES_MAX,
        )


class Guard:
    """`row`: of `method_rights`, what the method needs."""

    __slots__ = ("_asked", "_audit", "_authorizer", "_host", "_row", "_view", "principal")

    def __init__(
        self,
        authorizer: Authorizer,
        view: MetadataView,
        principal: str,
        host: str,
        row: Any,
        *,
        remembers: bool,
        audit: CallAudit | None = None,
    ) -> None:
        self._authorizer = authorizer
        self._view = view
        self.principal = principal
        self._host = host
        self._row = row
        self._audit = audit
        # None: it does not remember, or there was too much.
        # A name that is None: all names.
        self._asked: dict[tuple[AclOperation, AclResourceType, str | None], bool] | None = {} if remembers else None

    # -- as CallGuard

    def admit(self, request: Any) -> None:
        """Before the handler gets a message. StreamlogError."""
        if self._row.admit is not None:
            self._row.admit(self, request)

    def reveal(self, response: Any) -> None:
        """Removes from a response what the caller may not see."""
        if self._row.reveal is not None:
            self._row.reveal(self, response)

    def topic_refusal(self, operation: str, topic: str, topic_id: bytes | None = None) -> StreamlogError | None:
        """None: it may. Without a name, the topic of this id."""
        if not topic:
            found = self._view.image.topics.get(TopicId(topic_id or b""))
            if found is None:
                return None  # the handler refuses it as unknown
            wanted = AclOperation[operation]
            if self.may(wanted, _TOPIC, found.name):
                return None
            self._count(wanted, _TOPIC, found.name)
            return TopicAuthorizationError(
                f"{self.principal} may not {wanted.name} the topic of this id; an administrator can allow it with "
                "streamlogctl acl add",
                field="topic_id",
            )
        if operation == AclOperation.DESCRIBE.name:  # the topic is left out of an answer
            return self.refusal(AclOperation.DESCRIBE, _TOPIC, topic)
        return self._counted_refusal(AclOperation[operation], _TOPIC, topic)

    def named_refused(self, topic: str) -> None:
        """The caller has named a topic that it may not DESCRIBE."""
        self._count(AclOperation.DESCRIBE, _TOPIC, topic)

    def may_use(self, operation: str, topic: str) -> bool:
        return self.may(AclOperation[operation], _TOPIC, topic)

    def creation_refusal(self, topic: str) -> StreamlogError | None:
        """CREATE on the cluster or on the topic."""
        if self.may(AclOperation.CREATE, AclResourceType.CLUSTER, CLUSTER_NAME):
            return None
        return self._counted_refusal(AclOperation.CREATE, _TOPIC, topic)

    def may_list(self, kind: str, name: str) -> bool:
        """DESCRIBE on it; groups also with DESCRIBE on the cluster."""
        if kind == "GROUP" and self.may(AclOperation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME):
            return True
        return self.may(AclOperation.DESCRIBE, AclResourceType[kind], name)

    # -- for the table

    def may(self, operation: AclOperation, kind: AclResourceType, name: str) -> bool:
        name = _beginning(name)
        return self._remember(
            operation, kind, name, self._authorizer.may(self.principal, self._host, operation, kind, name)
        )

    def may_for_any(self, operation: AclOperation, kind: AclResourceType) -> bool:
        return self._authorizer.may_for_any(self.principal, self._host, operation, kind)

    def pattern_refusal(self, operation: AclOperation) -> StreamlogError | None:
        """None: it may for all topics, those that do not exist yet included."""
        may = self._authorizer.may_for_all(self.principal, self._host, operation, _TOPIC)
        if self._remember(operation, _TOPIC, None, may):
            return None
        return TopicAuthorizationError(
            f"{self.principal} may not {operation.name} all topics, which a subscription by pattern needs: name the "
            "topics, or have an administrator allow it with streamlogctl acl add --topic '*'",
            field="pattern",
        )

    def refusal(self, operation: AclOperation, kind: AclResourceType, name: str) -> StreamlogError | None:
        if self.may(operation, kind, name):
            return None
        error, noun = _ERRORS[kind]
        what = noun if kind is AclResourceType.CLUSTER else f"{noun} {_beginning(name)!r}"
        return error(
            f"{self.principal} may not {operation.name} {what}; an administrator can allow it with streamlogctl acl "
            "add",
            field=noun.replace(" ", "_"),
        )

    def require(self, operation: AclOperation, kind: AclResourceType, *names: str) -> None:
        """InvalidRequestError for more names than any request may have: each is looked up."""
        check_names(len(names))
        for name in dict.fromkeys(names):
            error = self._counted_refusal(operation, kind, name)
            if error is not None:
                raise error

    def require_cluster(self, operation: AclOperation) -> None:
        self.require(operation, AclResourceType.CLUSTER, CLUSTER_NAME)

    def _counted_refusal(self, operation: AclOperation, kind: AclResourceType, name: str) -> StreamlogError | None:
        refused = self.refusal(operation, kind, name)
        if refused is not None:
            self._count(operation, kind, name)
        return refused

    def _count(self, operation: AclOperation, kind: AclResourceType, name: str) -> None:
        self._authorizer.refused[kind] += 1
        if self._audit is not None:
            self._audit.refused(operation.name, kind.name, _beginning(name), _ERRORS[kind][0].code)

    def _remember(self, operation: AclOperation, kind: AclResourceType, name: str | None, answer: bool) -> bool:
        if self._asked is not None and (answer or self._row.ends_on_grant):
            self._asked.setdefault((operation, kind, name), answer)  # the first: `changed` compares with it
            if len(self._asked) > REMEMBERED_MAX:
                self._asked = None
        return answer

    # -- for the gate

    def is_concerned(self, callers: AclCallers | None) -> bool:
        """Whether the entries that have changed can change what it may."""
        if self._asked is None or callers is None:
            return True
        own = ((principal, host) for principal in (self.principal, EVERY_USER) for host in (self._host, WILDCARD))
        return any(one in callers for one in own)

    @property
    def remembered(self) -> int:
        """How many rights `changed` looks at."""
        return 0 if self._asked is None else len(self._asked)

    def changed(self) -> StreamlogError | None:
        """After a change of the lists: why the stream must end; None: it goes on."""
        if self._asked is None:
            return BrokerNotAvailableError(
                f"rights or users have changed, and this stream has used rights on more than {REMEMBERED_MAX} names, "
                "more than the node compares: open the stream again"
            )
        for (operation, kind, name), before in list(self._asked.items()):
            refusal = self.pattern_refusal(operation) if name is None else self.refusal(operation, kind, name)
            if refusal is not None and before:
                return refusal
            if refusal is None and not before and self._row.ends_on_grant:
                return TopicAuthorizationError("the caller's rights have changed: call again", field="topic")
        return None


def _beginning(name: str) -> str:
    """The entries for it are the same: their names are shorter."""
    return name[:NAME_LENGTH_MAX]
