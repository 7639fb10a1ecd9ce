"""Spans of the node, and those that no collector has. All are 0 where tracing is off."""

from __future__ import annotations

from streamlog.metrics.families import Family, counter, single
from streamlog.ports.tracing import SpanCounts, Tracing


def span_families(tracing: Tracing | None) -> list[Family]:
    counts = SpanCounts() if tracing is None else tracing.counts
    return [
        counter("streamlog_spans_total", "Spans that this node has ended.", single(counts.ended)),
        counter(
            "streamlog_spans_dropped_total",
            "Spans that were ended and not exported: the exporter failed, or tracing.queue.max.spans waited for it.",
            [(("export",), counts.failed), (("queue",), counts.overflowed)],
            ("reason",),
        ),
    ]
