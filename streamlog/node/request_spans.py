"""A span of each call to the node, in the method router (`Ports.tracing`).

    call, metadata `traceparent` --start--> span, also in `CallInfo.span` --status--> end

A stream has one span from its beginning to its end; a client's program that keeps one open for days sees it after that.
Not so the streams of batches: each of their batches is a request, with a context of its own (`services.batches`,
`broker.following`). A call between nodes is traced where its caller has a span; the ratio of requests that start a
trace is of clients' calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from msgspec.structs import replace

from streamlog.api.request_attributes import request_attributes
from streamlog.errors import Status
from streamlog.ports import CallInfo, RpcError, Span, SpanKind, Tracing
from streamlog.ports.trace_context import TRACEPARENT
from streamlog.ports.tracing import RPC_STATUS
from streamlog.tls.callers import INTERNAL_PREFIX

Input = TypeVar("Input")
Answer = TypeVar("Answer")
Handler = Callable[[Input, CallInfo], Awaitable[Answer]]

WITHOUT: Final = frozenset({"/streamlog.v1.Batches/ProduceStream", "/streamlog.internal.v1.Replication/Replicate"})
"""Their batches have spans of their own."""


class RequestSpans:
    """Owned by the node."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def traced(self, method: str, handler: Handler[Input, Answer]) -> Handler[Input, Answer]:
        """The handler, with a span of each call."""
        if method in WITHOUT:
            return handler
        name, between_nodes = method.lstrip("/"), method.startswith(INTERNAL_PREFIX)

        async def handle(request: Input, info: CallInfo) -> Answer:
            parent = info.metadata.get(TRACEPARENT, "")
            if between_nodes and not parent:
                return await handler(request, info)
            span = self._tracing.start(name, SpanKind.SERVER, request_attributes(info), parent=parent)
            if span is None:
                return await handler(request, info)
            return await self._recorded(span, handler, request, replace(info, span=span))

        return handle

    async def _recorded(self, span: Span, handler: Handler[Input, Answer], request: Input, info: CallInfo) -> Answer:
        status, message = Status.CANCELLED, "the caller has cancelled the call"
        try:
            answer = await handler(request, info)
            status, message = Status.OK, ""
            return answer
        except RpcError as error:
            status, message = error.status, error.message
            raise
        except Exception as error:
            status, message = Status.INTERNAL, type(error).__name__
            raise
        finally:
            span.set(RPC_STATUS, status.value)
            span.end("" if status is Status.OK else status.name, message)
