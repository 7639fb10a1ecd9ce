"""Where the spans of a node go (`streamlog.ports.tracing`), and which requests have any."""

from __future__ import annotations

from typing import Final

from streamlog.config.addresses import EndpointKind
from streamlog.config.kinds import OneOf, Real, count
from streamlog.config.setting import Setting, section

# A table reads best with an entry's facts on one line and its sentence below.
# fmt: off

TRACING_EXPORTER: Final = Setting(
    "tracing.exporter", OneOf(("none", "otlp", "console")), "none", ours=True,
    doc="Where OpenTelemetry spans of requests, appends, syncs and replication go: a collector by OTLP, the node's "
        "log, or nowhere. Needs `pip install 'streamlog[otel]'`.")
TRACING_OTLP_ENDPOINT: Final = Setting(
    "tracing.otlp.endpoint", EndpointKind(), "http://127.0.0.1:4317", ours=True,
    doc="The collector of tracing.exporter=otlp, by gRPC; https:// for TLS.")
TRACING_SAMPLE_RATIO: Final = Setting(
    "tracing.sample.ratio", Real(0.0, 1.0), 0.0, ours=True,
    doc="The share of requests without a trace context that begin a trace; those with one follow its sampled flag.")
TRACING_QUEUE_MAX_SPANS: Final = Setting(
    "tracing.queue.max.spans", count(512, 1_000_000), 4_096, ours=True,
    doc="Ended spans that wait for the exporter, some 3 KB each; beyond that the oldest are dropped.")
# fmt: on

NODE_TRACING: Final = section("Tracing of nodes", globals())
