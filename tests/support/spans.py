"""The spans that a test makes: the process's TracerProvider, in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Span


class _Ids(IdGenerator):
    """In a simulation there is no randomness but the seed's."""

    def __init__(self) -> None:
        self._next = count(1)

    def generate_span_id(self) -> int:
        return next(self._next)

    def generate_trace_id(self) -> int:
        return next(self._next)


_exporter = InMemorySpanExporter()
_installed: list[TracerProvider] = []


@contextmanager
def collected() -> Iterator[InMemorySpanExporter]:
    """The spans that are ended from now on. OpenTelemetry allows one provider a process."""
    if not _installed:
        provider = TracerProvider(id_generator=_Ids(), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(_exporter))
        trace.set_tracer_provider(provider)
        _installed.append(provider)
    _exporter.clear()
    yield _exporter


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def only(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    (span,) = named(spans, name)
    return span


def context_of(span: ReadableSpan | Span) -> str:
    """As in the header `traceparent`."""
    context = span.get_span_context()
    assert context is not None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-01"
