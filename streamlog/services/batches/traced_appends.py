"""Spans of the batches of one partition in a Produce or ProduceStream request, on the node that leads it.

    request    SERVER; of a call it is the call's own span, of a stream there is one for each PartitionBatches
      append       until the batches are in the log
      sync         until the group commit has covered them               `broker.leading.leader_traces`
      replicate    until the high watermark has passed them; followers' spans are below it

The parent is the first context that the batches carry, else that of the call. A batch holds records of several traces,
and a span has one parent: the others are linked to. Without any context the node's own ratio decides.
"""

from __future__ import annotations

import asyncio

from streamlog.api.request_attributes import request_attributes
from streamlog.api.requests import PartitionAppend
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.errors import StreamlogError
from streamlog.model import Appended
from streamlog.ports import CallInfo, Span, SpanKind, Tracing
from streamlog.ports.trace_context import TRACEPARENT
from streamlog.ports.tracing import BYTES, COUNT, OFFSET, PARTITION, ROLE, SYSTEM, TOPIC, AttributeValue
from streamlog.services.batches.produce_results import unacknowledged


class TracedAppend:
    """The spans of one PartitionBatches. `failed` or `answered` ends them."""

    __slots__ = ("_append", "_own", "_parent", "_tracing")

    def __init__(self, tracing: Tracing, parent: Span, own: Span | None, append: Span | None) -> None:
        """`own`: the request's span where it is of these batches alone."""
        self._tracing = tracing
        self._parent = parent
        self._own = own
        self._append = append

    def appended(self, replica: LeaderReplica, appended: Appended) -> None:
        """In the same step of the loop as the append: before followers get it."""
        if self._append is not None:
            self._append.set(OFFSET, appended.first_offset)
            self._append.set(COUNT, appended.next_offset - appended.first_offset)
            self._append.set("messaging.streamlog.duplicate", appended.duplicate)
            self._append.end()
        replica.trace(self._tracing, appended, self._parent.traceparent)

    def failed(self, error: StreamlogError) -> None:
        """Refused, or not acknowledged."""
        for span in (self._append, self._own):
            if span is not None:
                span.end(error.code, error.message)

    def answered(self) -> None:
        if self._own is not None:
            self._own.end()

    def answered_by(self, acknowledged: asyncio.Future[None]) -> None:
        """Once it is done: `answered`, or `failed`."""
        acknowledged.add_done_callback(self._on_acknowledged)

    def _on_acknowledged(self, acknowledged: asyncio.Future[None]) -> None:
        error = None if acknowledged.cancelled() else acknowledged.exception()
        if isinstance(error, StreamlogError):
            self.failed(error)
        elif acknowledged.cancelled() or error is not None:
            self.failed(unacknowledged())
        else:
            self.answered()


def begin_append(tracing: Tracing, one: PartitionAppend, info: CallInfo) -> TracedAppend | None:
    """Before the append. None: not sampled."""
    known: dict[str, AttributeValue] = {
        SYSTEM: "streamlog",
        TOPIC: one.ref.topic,
        PARTITION: str(one.ref.partition),
        BYTES: len(one.batches),
    }
    given = one.traceparents
    own, parent, links = None, info.span, given
    if parent is None:
        first = given[0] if given else info.metadata.get(TRACEPARENT, "")
        links = given[1:]
        attributes = {**request_attributes(info), **known}
        own = parent = tracing.start(info.method.lstrip("/"), SpanKind.SERVER, attributes, parent=first, links=links)
        if parent is None:
            return None
    append = tracing.start(
        f"append {one.ref.topic}",
        SpanKind.INTERNAL,
        {**known, ROLE: "leader"},
        parent=parent.traceparent,
        links=links,
    )
    return TracedAppend(tracing, parent, own, append)
