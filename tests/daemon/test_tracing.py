"""A node's spans by OpenTelemetry: what is exported, and a collector that is down, slow or missing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from streamlog.config import Config, PropertiesFile, load_node
from streamlog.daemon import tracing
from streamlog.daemon.logs.log_lines import LogLines
from streamlog.daemon.main import USAGE_ERROR, main
from streamlog.daemon.span_exporters import REPORT_S, ReportingExporter
from streamlog.daemon.tracing import NodeSpans
from streamlog.errors import InvalidConfigError
from streamlog.ports import SpanKind
from streamlog.ports.tracing import SpanCounts
from tests.support.otlp_receiver import receiving

PARENT = f"00-{'a' * 32}-{'b' * 16}-01"
WAIT_S = 60.0


class Lines:
    """The node's log."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.lines = LogLines(1, self)

    def write(self, text: str, /) -> None:
        self.written.append(text)

    def flush(self) -> None:
        """Nothing is kept back."""

    def containing(self, text: str) -> list[str]:
        return [line for line in self.written if text in line]


def settings(**more: str) -> Config:
    values = {"node.id": "1", **{name.replace("_", "."): value for name, value in more.items()}}
    return load_node(PropertiesFile("test", "".join(f"{name}={value}\n" for name, value in values.items()))).config


def test_spans_reach_the_collector() -> None:
    with receiving() as (receiver, endpoint):
        spans = NodeSpans(settings(tracing_exporter="otlp", tracing_otlp_endpoint=endpoint), Lines().lines)
        request = spans.start("request", SpanKind.SERVER, {"rpc.system": "grpc"}, parent=PARENT)
        assert request is not None
        other = f"00-{'c' * 32}-{'d' * 16}-01"
        append = spans.start(
            "append", SpanKind.INTERNAL, {}, parent=request.traceparent, links=[other, "nonsense", *[other] * 50]
        )
        assert append is not None
        append.set("count", 3)
        append.event("acknowledged", {"streamlog.node.id": 2})
        append.end("NOT_LEADER", "another node leads")
        append.end()
        append.set("count", 4)
        request.end()
        found = {span.name: span for span in receiver.wait_until(lambda all_spans: len(all_spans) == 2, WAIT_S)}
        asyncio.run(spans.close())
    assert len(receiver.spans) == 2
    assert found["request"].trace == "a" * 32
    assert found["request"].parent == "b" * 16
    assert found["request"].span.kind == trace_pb2.Span.SPAN_KIND_SERVER
    assert found["append"].parent == found["request"].identity
    assert found["append"].attributes == {"count": 3, "error.type": "NOT_LEADER"}
    assert found["append"].span.status.message == "another node leads"
    assert [event.name for event in found["append"].span.events] == ["acknowledged"]
    assert {link.span_id.hex() for link in found["append"].span.links} == {"d" * 16}
    assert len(found["append"].span.links) < 32
    assert found["append"].resource["streamlog.node.id"] == 1
    assert found["append"].resource["service.name"] == "streamlog"


def test_who_is_sampled() -> None:
    lines = Lines()
    for ratio, without in (("0", False), ("1", True)):
        spans = NodeSpans(settings(tracing_exporter="console", tracing_sample_ratio=ratio), lines.lines)
        assert (spans.start("n", SpanKind.SERVER, {}) is not None) is without
        assert (spans.start("n", SpanKind.SERVER, {}, parent="nonsense") is not None) is without
        assert spans.start("n", SpanKind.SERVER, {}, parent=PARENT) is not None
        assert spans.start("n", SpanKind.SERVER, {}, parent=PARENT[:-1] + "0") is None
        asyncio.run(spans.close())


def test_spans_in_the_nodes_log_are_lines_that_cannot_be_forged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "FLUSH_S", WAIT_S)
    lines = Lines()
    spans = NodeSpans(settings(tracing_exporter="console"), lines.lines)
    span = spans.start("append t", SpanKind.INTERNAL, {"user.name": "a\nb\x1b[0m"}, parent=PARENT)
    assert span is not None
    span.end()
    asyncio.run(spans.close())
    (line,) = lines.containing("append t")
    assert f"trace={'a' * 32}" in line
    assert f"parent={'b' * 16}" in line
    assert "user.name=a\\nb\\x1b[0m" in line


class _Blocked(SpanExporter):
    """A collector that does not answer until it is released."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.released = threading.Event()
        self.exported = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.entered.set()
        self.released.wait()
        self.exported += len(spans)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self.released.set()


def test_a_slow_collector_neither_blocks_the_node_nor_grows_its_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = _Blocked()
    monkeypatch.setattr(tracing, "_exporter", lambda config, lines: (blocked, "http://slow:4317"))
    monkeypatch.setattr(tracing, "FLUSH_S", 0.01)
    lines = Lines()
    spans = NodeSpans(settings(tracing_exporter="otlp", tracing_queue_max_spans="600"), lines.lines)

    def one() -> None:
        span = spans.start("n", SpanKind.SERVER, {}, parent=PARENT)
        assert span is not None
        span.end()

    for _ in range(300):
        one()
    assert blocked.entered.wait(WAIT_S)
    for _ in range(5_000):  # returns, although nothing is exported
        one()
    monkeypatch.setattr(tracing, "ABORT_S", WAIT_S)
    assert spans.counts.ended == 5_300
    dropped = spans.counts.overflowed
    asyncio.run(spans.close())  # gives up after FLUSH_S, and releases it
    assert 600 <= blocked.exported <= 600 + 300
    assert dropped == 5_300 - blocked.exported
    assert spans.counts.failed == 0
    assert len(lines.written) == 1  # where spans are exported to


def test_a_collector_that_is_down_is_reported_once_a_minute() -> None:
    results = iter([SpanExportResult.FAILURE] * 200 + [SpanExportResult.SUCCESS] * 2 + [SpanExportResult.FAILURE])

    class Down(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            return next(results)

    written: list[tuple[str, str]] = []
    now_s = 1_000.0
    counts = SpanCounts()
    exporter = ReportingExporter(
        Down(),
        "http://c:4317",
        lambda level, text: written.append((level, text)),
        lambda: "refused",
        counts,
        lambda: now_s,
    )
    for _ in range(200):
        exporter.export([ReadableSpan("n")])
        now_s += REPORT_S / 100
    assert [level for level, _ in written] == ["WARN", "WARN"]
    assert "http://c:4317: 1 were dropped" in written[0][1]
    assert "(refused)" in written[0][1]
    exporter.export([ReadableSpan("n")])
    exporter.export([ReadableSpan("n")])
    assert written[2:] == [("INFO", "exports spans to http://c:4317 again; 200 were dropped")]
    exporter.export([ReadableSpan("n")])
    assert written[3][0] == "WARN"
    assert (counts.taken, counts.failed) == (203, 201)


def test_an_exporter_that_raises_is_a_failure() -> None:
    class Broken(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            raise ValueError("no")

    written: list[str] = []
    exporter = ReportingExporter(Broken(), "c", lambda level, text: written.append(text), lambda: "", SpanCounts())
    assert exporter.export([ReadableSpan("n")]) is SpanExportResult.FAILURE
    assert "(ValueError: no)" in written[0]


def test_without_the_package_the_node_does_not_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamlog.daemon.tracing_choice.NEEDED", ("opentelemetry.of.another.world",))
    path = tmp_path / "server.properties"
    path.write_text("node.id=1\ntracing.exporter=otlp\n")
    assert main([str(path)]) == USAGE_ERROR
    assert capsys.readouterr().err == (
        "streamlogd: tracing.exporter=otlp needs OpenTelemetry, which is not installed: pip install 'streamlog[otel]'\n"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tracing.exporter", "jaeger"),
        ("tracing.otlp.endpoint", "127.0.0.1:4317"),
        ("tracing.otlp.endpoint", "ftp://127.0.0.1:4317"),
        ("tracing.otlp.endpoint", "http://127.0.0.1"),
        ("tracing.otlp.endpoint", "http://127.0.0.1:4317/v1/traces"),
        ("tracing.otlp.endpoint", "http://0.0.0.0:4317"),
        ("tracing.sample.ratio", "1.1"),
        ("tracing.sample.ratio", "nan"),
        ("tracing.queue.max.spans", "1"),
    ],
)
def test_settings_that_are_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidConfigError, match=name):
        settings(**{name.replace(".", "_"): value})


def test_an_environment_that_the_exporter_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "bzip7")
    config = settings(tracing_exporter="otlp")
    with pytest.raises(InvalidConfigError, match="OTEL_EXPORTER_OTLP"):
        NodeSpans(config, Lines().lines)


def test_off_nothing_of_it_is_imported() -> None:
    program = (
        "import sys, streamlog.daemon.main, streamlog.daemon.serving;"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True)
    assert ended.stdout == "[]\n"
