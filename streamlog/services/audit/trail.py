"""Around every method of a node with an audit log: what a call says about itself becomes events.

    call --> its audit, in CallInfo --> the gate: principal, guard  --> each message: the resources that it names
                                    --> a right that is lacking: an event at once, also where the call goes on
    end  --> of a unary call: one event, if its kind is wanted and nothing of it was refused
    stream --> an event when a message names resources that the stream has not named before, if its kind is wanted

What is wanted (audit.log.events) is decided by the method's row in `audited_methods`. Methods between nodes have events
of refusals only. Writes to the topic of the audit log have no events, or each would make the next one.

The sinks take events without waiting; what they cannot take is dropped and counted there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from streamlog.access.principals import ANONYMOUS, PrincipalMapping
from streamlog.api.errors import from_rpc
from streamlog.api.request_resources import MORE, is_dry_run, resources_of
from streamlog.controller.link import FORWARDED
from streamlog.errors import Status, StreamlogError
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId, TopicId
from streamlog.ports import AuditEvent, AuditResource, AuditSink, CallGuard, CallInfo, Clock, RpcError
from streamlog.ports.audit import utc_text
from streamlog.services.audit.audited_methods import AUDITED_METHODS, AuditKind
from streamlog.tls.callers import INTERNAL_PREFIX
from streamlog.tls.identity import node_of, serial_of

Input = TypeVar("Input")
Answer = TypeVar("Answer")
Handler = Callable[[Input, CallInfo], Awaitable[Answer]]

ALLOWED: Final = "allowed"
REFUSED: Final = "refused"
REMEMBERED_MAX: Final = 1_000
"""Resources and refusals of one stream; then they are forgotten, and are events again."""
REFUSALS_MAX: Final = 100
"""Events of one unary call, whose request may name ten thousand topics."""
_REFUSALS: Final = (Status.PERMISSION_DENIED, Status.UNAUTHENTICATED)
_OPERATIONS: Final = {AuditKind.WRITES: "WRITE", AuditKind.READS: "DESCRIBE"}


class AuditTrail:
    """Owned by the node."""

    def __init__(
        self,
        node_id: BrokerId,
        view: MetadataView,
        clock: Clock,
        mapping: PrincipalMapping,
        kinds: Collection[AuditKind],
        sinks: Sequence[AuditSink],
        *,
        own_topic: str = "",
    ) -> None:
        """`mapping`: of certificates. `own_topic`: the topic of the audit log; empty: none."""
        self._node_id = node_id
        self._view = view
        self._clock = clock
        self._mapping = mapping
        self._kinds = frozenset(kinds)
        self._sinks = sinks
        self.own = AuditResource("topic", own_topic)
        self.events = {ALLOWED: 0, REFUSED: 0}  # since the start

    def unary(self, method: str, handler: Handler[Input, Answer]) -> Handler[Input, Answer]:
        return self._audited(method, handler, is_stream=False)

    def stream(self, method: str, handler: Handler[Input, Answer]) -> Handler[Input, Answer]:
        return self._audited(method, handler, is_stream=True)

    def _audited(self, method: str, handler: Handler[Input, Answer], *, is_stream: bool) -> Handler[Input, Answer]:
        between_nodes = method.startswith(INTERNAL_PREFIX)
        kind = None if between_nodes else AUDITED_METHODS.get(method, AuditKind.CHANGES)

        async def handle(request: Input, info: CallInfo) -> Answer:
            audit = _Audit(self, info, kind if kind in self._kinds else None, is_stream=is_stream)
            error: BaseException | None = None
            try:
                return await handler(request, info if between_nodes else replace(info, audit=audit))
            except (Exception, asyncio.CancelledError) as caught:
                error = caught
                raise
            finally:
                audit.end(error)

        return handle

    def principal_of(self, info: CallInfo) -> str:
        """By the certificate."""
        if not info.identity:
            return ANONYMOUS
        node = node_of(info.names)
        return self._mapping.principal(info.identity, info.listener) if node is None else f"Node:{node}"

    def resources_of(self, message: object) -> dict[AuditResource, None]:
        return resources_of(message, self._topic_name)

    def _topic_name(self, topic_id: bytes) -> str:
        topic = self._view.image.topics.get(TopicId(topic_id))
        return f"id {topic_id.hex()[:32]}" if topic is None else topic.name

    def put(
        self,
        info: CallInfo,
        principal: str,
        resources: Collection[AuditResource],
        result: str,
        *,
        operation: str = "",
        error: str = "",
        dry_run: bool = False,
    ) -> None:
        if result == REFUSED and AuditKind.REFUSALS not in self._kinds:
            return
        self.events[result] += 1
        event = AuditEvent(
            time=utc_text(self._clock.wall_ms()),
            node=self._node_id,
            principal=principal,
            address=info.peer.rpartition(":")[0].strip("[]"),
            certificate="" if info.certificate is None else serial_of(info.certificate),
            method=info.method.lstrip("/"),
            resources=tuple(resources),
            result=result,
            operation=operation,
            error=error,
            dry_run=dry_run,
            forwarded=FORWARDED in info.metadata and (info.identity is None or node_of(info.names) is not None),
        )
        for sink in self._sinks:
            sink.write(event)


class _Audit:
    """The CallAudit of one call. `kind`: None: only refusals are wanted."""

    __slots__ = (
        "_dry_run",
        "_info",
        "_is_own",
        "_is_stream",
        "_kind",
        "_refused",
        "_resources",
        "_trail",
        "_was_read",
        "_written",
        "guard",
        "login_refused",
        "principal",
    )

    def __init__(self, trail: AuditTrail, info: CallInfo, kind: AuditKind | None, *, is_stream: bool) -> None:
        self.principal = trail.principal_of(info)
        self.guard: CallGuard | None = None
        self.login_refused = False
        self._trail = trail
        self._info = info
        self._kind = kind
        self._is_stream = is_stream
        self._is_own = False
        self._dry_run = False
        self._resources: dict[AuditResource, None] = {}  # of a stream, those that have events
        self._refused: dict[tuple[str, str, str], None] = {}
        self._was_read = False  # and so the caller is authenticated
        self._written = False

    def request(self, message: object) -> None:
        """Before it is admitted."""
        self._was_read = True
        if self._kind is None or self._is_stream:
            return
        self._resources = self._named(message)
        self._dry_run = is_dry_run(message)

    def admitted(self, message: object) -> None:
        """Of a stream."""
        if self._kind is None or not self._is_stream:
            return
        found = [one for one in self._named(message) if one not in self._resources and self._may(one)]
        if found:
            if len(self._resources) > REMEMBERED_MAX:
                self._resources.clear()
            self._resources.update(dict.fromkeys(found))
            self._put(found, ALLOWED)

    def refused(self, operation: str, kind: str, name: str, code: str) -> None:
        key = (operation, kind, name)
        if key in self._refused:
            return
        if not self._is_stream and len(self._refused) >= REFUSALS_MAX:
            return
        if len(self._refused) > REMEMBERED_MAX:
            self._refused.clear()
        self._refused[key] = None
        own = AuditResource(kind.lower().replace("_", " "), name)
        whole = self._kind is AuditKind.CHANGES  # of others each part is refused alone
        others = (one for one in self._resources if one != own) if whole else ()
        self._put((own, *others), REFUSED, operation=operation, error=code)

    def end(self, error: BaseException | None) -> None:
        if isinstance(error, asyncio.CancelledError):
            if not self._was_read:
                return
            if self._is_stream:  # clients end streams so
                error = None
        if isinstance(error, RpcError) and (self.login_refused or error.status in _REFUSALS):
            if not self._refused:
                self._put(self._resources, REFUSED, error=_code(error))
        elif self._kind is not None and not self._is_own:
            allowed = [] if self._is_stream else [one for one in self._resources if self._may(one)]
            if any(one.type != MORE for one in allowed) or not self._written:
                self._put(allowed, ALLOWED, error="" if error is None else _code(error))

    def _named(self, message: object) -> dict[AuditResource, None]:
        found = self._trail.resources_of(message)
        if self._kind is AuditKind.WRITES and self._trail.own in found:
            del found[self._trail.own]
            self._is_own = not found
        return found

    def _may(self, resource: AuditResource) -> bool:
        """Partitions are refused one by one: whether this topic is."""
        operation = _OPERATIONS.get(self._kind) if self._kind is not None else None
        if self.guard is None or operation is None or resource.type != "topic":
            return True
        return self.guard.may_use(operation, resource.name)

    def _put(self, resources: Collection[AuditResource], result: str, *, operation: str = "", error: str = "") -> None:
        self._written = True
        self._trail.put(
            self._info,
            self.principal,
            tuple(resources),
            result,
            operation=operation,
            error=error,
            dry_run=self._dry_run,
        )


def _code(error: BaseException) -> str:
    """Of the error tree, else gRPC's status; of a bug nothing but that it is one."""
    if isinstance(error, asyncio.CancelledError):
        return Status.CANCELLED.name
    if isinstance(error, RpcError):
        found = from_rpc(error)
        return found.code if isinstance(found, StreamlogError) else error.status.name
    return error.code if isinstance(error, StreamlogError) else Status.UNKNOWN.name
