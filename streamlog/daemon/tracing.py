"""A node's spans by OpenTelemetry: the tracing port's real side (`streamlog.ports.tracing`).

    start --ratio, flag of the parent--> None: nothing is made
                                     --> span --end--> queue, bounded --batches, in a thread--> OTLP, or the node's log

The event loop only makes spans and puts them into the queue; encoding and sending are the exporter thread's. While a
collector does not answer, batches are given up after EXPORT_S and the queue drops its oldest spans: nothing waits, and
the node's log has one line at first and one a minute. At the end what is queued has FLUSH_S to be sent.

Sampling is decided here, before OpenTelemetry is called, so that a request without a trace costs a comparison.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Callable, Sequence
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, StatusCode, TraceFlags, set_span_in_context
from opentelemetry.trace import Span as OtelSpan
from opentelemetry.trace import SpanKind as OtelKind

from streamlog.aio.timeouts import timeout
from streamlog.config import Config
from streamlog.config.settings import node_settings as node
from streamlog.config.settings import node_tracing_settings as settings
from streamlog.daemon.logs.log_lines import LogLines
from streamlog.daemon.span_exporters import LogExporter, ReportingExporter, captured_reasons
from streamlog.errors import InvalidConfigError
from streamlog.ports import Span, SpanKind
from streamlog.ports.trace_context import is_sampled, is_traceparent
from streamlog.ports.tracing import ERROR_TYPE, LINKS_MAX, NODE, Attributes, AttributeValue, SpanCounts
from streamlog.release import RELEASE

EXPORT_S: Final = 5.0
"""For one batch, retries included."""
BATCH_SPANS_MAX: Final = 256
DELAY_MS: Final = 1_000
"""After so long also a small batch is exported."""
FLUSH_S: Final = 2.0
"""For what is queued when the node stops."""
ABORT_S: Final = 1.0
MESSAGE_LENGTH_MAX: Final = 1_000

_KINDS: Final = {
    SpanKind.SERVER: OtelKind.SERVER,
    SpanKind.INTERNAL: OtelKind.INTERNAL,
    SpanKind.PRODUCER: OtelKind.PRODUCER,
    SpanKind.CONSUMER: OtelKind.CONSUMER,
}


class NodeSpans:
    """A Tracing, of one node. `close` it."""

    def __init__(self, config: Config, lines: LogLines) -> None:
        """InvalidConfigError."""
        self._ratio = config[settings.TRACING_SAMPLE_RATIO]
        self.counts = SpanCounts()
        self._queue_max = config[settings.TRACING_QUEUE_MAX_SPANS]
        self._exporter, where = _exporter(config, lines)
        self._provider = TracerProvider(sampler=ALWAYS_ON, resource=_resource(config), shutdown_on_exit=False)
        self._provider.add_span_processor(
            BatchSpanProcessor(
                ReportingExporter(self._exporter, where, lines.write, captured_reasons(), self.counts),
                max_queue_size=self._queue_max,
                schedule_delay_millis=DELAY_MS,
                max_export_batch_size=BATCH_SPANS_MAX,
            )
        )
        self._tracer = self._provider.get_tracer("streamlog.node", RELEASE)
        lines.write("INFO", f"exports spans to {where}")

    def start(
        self, name: str, kind: SpanKind, attributes: Attributes, /, *, parent: str = "", links: Sequence[str] = ()
    ) -> Span | None:
        if is_traceparent(parent):
            if not is_sampled(parent):
                return None
            context = set_span_in_context(NonRecordingSpan(_span_context(parent)), Context())
        elif self._ratio and random.random() < self._ratio:
            context = Context()
        else:
            return None
        linked = [Link(_span_context(link)) for link in links[:LINKS_MAX] if is_traceparent(link)]
        return _NodeSpan(
            self._tracer.start_span(name, context=context, kind=_KINDS[kind], attributes=attributes, links=linked),
            self._on_end,
        )

    def _on_end(self) -> None:
        """OpenTelemetry does not say which spans its queue drops: those beyond its bound that nothing has taken."""
        counts = self.counts
        counts.ended += 1
        if counts.ended - counts.taken - counts.overflowed > self._queue_max:
            counts.overflowed += 1

    async def close(self) -> None:
        """Sends what is queued, for FLUSH_S at most."""
        loop, closed = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            loop.call_soon_threadsafe(closed.set)

        threading.Thread(target=shut_down, name="spans-shutdown", daemon=True).start()
        for wait_s in (FLUSH_S, ABORT_S):
            try:
                async with timeout(wait_s):
                    await closed.wait()
                return
            except TimeoutError:
                self._exporter.shutdown()  # ends the attempt in progress, and the waits between attempts


class _NodeSpan:
    __slots__ = ("_on_end", "_span", "traceparent")

    def __init__(self, span: OtelSpan, on_end: Callable[[], None]) -> None:
        self._span = span
        self._on_end = on_end
        context = span.get_span_context()
        self.traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def set(self, name: str, value: AttributeValue, /) -> None:
        if self._span.is_recording():
            self._span.set_attribute(name, value)

    def event(self, name: str, attributes: Attributes, /) -> None:
        if self._span.is_recording():
            self._span.add_event(name, attributes)

    def end(self, error_type: str = "", message: str = "", /) -> None:
        if not self._span.is_recording():
            return
        if error_type:
            self._span.set_attribute(ERROR_TYPE, error_type)
            self._span.set_status(StatusCode.ERROR, message[:MESSAGE_LENGTH_MAX])
        self._span.end()
        self._on_end()


def _span_context(traceparent: str) -> SpanContext:
    """Of a valid one."""
    _, trace, span, flags = traceparent.split("-")
    return SpanContext(int(trace, 16), int(span, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))


def _resource(config: Config) -> Resource:
    """OTEL_RESOURCE_ATTRIBUTES of the environment may add to it, OTEL_SERVICE_NAME changes the service's name."""
    number = config[node.NODE_ID]
    known: dict[str, str | int] = {
        "service.name": os.environ.get("OTEL_SERVICE_NAME") or "streamlog",
        "service.version": RELEASE,
        "service.instance.id": f"node-{number}",
        NODE: number,
    }
    return Resource.create(known)


def _exporter(config: Config, lines: LogLines) -> tuple[SpanExporter, str]:
    """It, and where it exports to, for messages."""
    if config[settings.TRACING_EXPORTER] == "console":
        return LogExporter(lines.write), "the node's log"
    endpoint = config[settings.TRACING_OTLP_ENDPOINT]
    try:
        return OTLPSpanExporter(endpoint=endpoint, insecure=endpoint.startswith("http://"), timeout=EXPORT_S), endpoint
    except Exception as error:  # of certificates and headers that the environment names
        name = settings.TRACING_OTLP_ENDPOINT.name
        raise InvalidConfigError(
            f"{name}={endpoint}: the exporter cannot be made ({error}): check the OTEL_EXPORTER_OTLP_... variables of "
            "the environment",
            field=name,
        ) from error
