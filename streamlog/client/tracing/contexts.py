"""Contexts of spans in the headers of records. Of several headers of one name the last one counts, as with Kafka."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context
from opentelemetry.trace.span import TraceState

from streamlog.ports.trace_context import TRACEPARENT, TRACESTATE, TRACESTATE_LENGTH_MAX, is_traceparent
from streamlog.records import Headers

LINKS_MAX: Final = 128
"""OpenTelemetry's own default."""


class HasHeaders(Protocol):
    """ConsumerRecord, Record."""

    @property
    def headers(self) -> Headers: ...


def record_context(record: HasHeaders) -> Context:
    """The context that the record carries, to make spans in; an empty one where it carries none that is valid."""
    found = span_context(record.headers)
    return Context() if found is None else set_span_in_context(NonRecordingSpan(found), Context())


def span_context(headers: Headers) -> SpanContext | None:
    given = _last(headers, TRACEPARENT)
    if given is None or len(given) > TRACESTATE_LENGTH_MAX:
        return None
    text = given.decode("latin-1")
    if not is_traceparent(text):
        return None
    _, trace, span, flags = text.split("-")
    return SpanContext(
        int(trace, 16),
        int(span, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(flags, 16)),
        trace_state=_state(headers),
    )


def _state(headers: Headers) -> TraceState:
    given = _last(headers, TRACESTATE)
    if given is None or len(given) > TRACESTATE_LENGTH_MAX:
        return TraceState()
    return TraceState.from_header([given.decode("latin-1")])  # leaves out what is not valid


def _last(headers: Headers, name: str) -> bytes | None:
    return next((value for key, value in reversed(headers) if key == name), None)


def with_context(headers: Headers, context: SpanContext) -> Headers:
    """The headers, with this context instead of another one; unchanged where it is not valid."""
    if not context.is_valid:
        return headers
    kept = tuple(pair for pair in headers if pair[0] != TRACEPARENT and pair[0] != TRACESTATE)
    own: list[tuple[str, bytes | None]] = [(TRACEPARENT, traceparent(context).encode())]
    state = context.trace_state.to_header().encode()
    if 0 < len(state) <= TRACESTATE_LENGTH_MAX:
        own.append((TRACESTATE, state))
    return (*kept, *own)


def traceparent(context: SpanContext) -> str:
    """Of a valid one."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def links(records: Iterable[HasHeaders]) -> list[Link]:
    """To the spans in the headers, each once; the first LINKS_MAX."""
    found: dict[tuple[int, int], Link] = {}
    for record in records:
        context = span_context(record.headers) if record.headers else None
        if context is not None:
            found.setdefault((context.trace_id, context.span_id), Link(context))
            if len(found) == LINKS_MAX:
                break
    return list(found.values())
