"""The exporter thread's side of a node's spans: into the node's log, and reports of what could not be exported.

    batch --exported--> "exports spans again", once after failures
          --failed----> dropped; a warning at first, then one a minute with the number

OpenTelemetry logs each attempt; here only the last reason is kept, for the warning.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import format_span_id, format_trace_id

from streamlog.ports.tracing import SpanCounts
from streamlog.printable import escaped

REPORT_S: Final = 60.0
REASON_LENGTH_MAX: Final = 300


class WriteLine(Protocol):
    def __call__(self, level: str, text: str) -> object: ...


class LogExporter(SpanExporter):
    """tracing.exporter=console: one line a span."""

    def __init__(self, write: WriteLine) -> None:
        self._write = write

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        for span in spans:
            self._write("INFO", span_line(span))
        return SpanExportResult.SUCCESS


def span_line(span: ReadableSpan) -> str:
    context, parent = span.get_span_context(), span.parent
    parts = [f"span {span.name!r}"]
    if context is not None:
        parts += [f"trace={format_trace_id(context.trace_id)}", f"span={format_span_id(context.span_id)}"]
    if parent is not None:
        parts.append(f"parent={format_span_id(parent.span_id)}")
    if span.start_time is not None and span.end_time is not None:
        parts.append(f"ms={(span.end_time - span.start_time) / 1e6:.3f}")
    for name, value in (span.attributes or {}).items():
        parts.append(f"{name}={value if isinstance(value, str) else repr(value)}")
    if span.links:
        parts.append(f"links={len(span.links)}")
    return escaped(" ".join(parts))


class _Reason(logging.Handler):
    """Keeps the last error of OpenTelemetry's loggers."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()[:REASON_LENGTH_MAX]


def captured_reasons() -> Callable[[], str]:
    """From now on OpenTelemetry logs nowhere else. Returns what reads the last reason."""
    handler = _Reason()
    logger = logging.getLogger("opentelemetry")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(logging.ERROR)
    return lambda: handler.last


class ReportingExporter(SpanExporter):
    """Called by one thread."""

    def __init__(
        self,
        exporter: SpanExporter,
        where: str,
        write: WriteLine,
        reason: Callable[[], str],
        counts: SpanCounts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._exporter = exporter
        self._where = where
        self._write = write
        self._reason = reason
        self._counts = counts
        self._clock = clock
        self._dropped = 0  # since the exports fail
        self._reported_s: float | None = None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._counts.taken += len(spans)
        try:
            result = self._exporter.export(spans)
            reason = self._reason()
        except Exception as error:  # noqa: BLE001  a defect of the exporter is no reason to end its thread
            result, reason = SpanExportResult.FAILURE, f"{type(error).__name__}: {error}"[:REASON_LENGTH_MAX]
        if result is SpanExportResult.SUCCESS:
            self._on_success()
        else:
            self._on_failure(len(spans), reason)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def _on_success(self) -> None:
        if self._dropped:
            self._write("INFO", f"exports spans to {self._where} again; {self._dropped} were dropped")
        self._dropped, self._reported_s = 0, None

    def _on_failure(self, count: int, reason: str) -> None:
        self._dropped += count
        self._counts.failed += count
        now = self._clock()
        if self._reported_s is None or now - self._reported_s >= REPORT_S:
            self._reported_s = now
            self._write(
                "WARN",
                f"cannot export spans to {self._where}: {self._dropped} were dropped, and those that do not fit into "
                f"the queue are; check the collector, or set tracing.exporter=none ({escaped(reason)})",
            )
