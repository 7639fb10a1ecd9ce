"""One trace through three real nodes: from the send to the followers' disks, and to the commit of its reader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from opentelemetry.sdk.trace import ReadableSpan

from streamlog.cli.main import main
from streamlog.client import Admin, Consumer, Producer
from streamlog.client.admin.values import NewTopic
from streamlog.client.tracing import processing
from streamlog.daemon.local_cluster import LocalCluster
from tests.support.otlp_receiver import OtlpReceiver, ReceivedSpan, receiving, tree
from tests.support.spans import collected, only

pytestmark = pytest.mark.process

WAIT_S = 60.0
START_S = "60"
REQUEST = "streamlog.v1.Batches/ProduceStream"
COMMIT = "streamlog.v1.Groups/CommitOffsets"


@pytest.fixture
def receiver() -> Iterator[tuple[OtlpReceiver, str]]:
    with receiving() as found:
        yield found


@pytest.fixture
def servers(tmp_path: Path, receiver: tuple[OtlpReceiver, str]) -> Iterator[str]:
    directory = tmp_path / "cluster"
    overrides = ["tracing.exporter=otlp", f"tracing.otlp.endpoint={receiver[1]}"]
    options = [part for one in overrides for part in ("--override", one)]
    cluster = LocalCluster(directory)
    try:
        started = CliRunner().invoke(
            main, ["local", "start", "--dir", str(directory), "--port", "0", "--timeout-s", START_S, *options]
        )
        assert started.exit_code == 0, started.output
        yield ",".join(node.address for node in cluster.nodes)
    finally:
        for node in cluster.nodes:
            cluster.kill(node)


def identity(span: ReadableSpan) -> tuple[str, str]:
    assert span.context is not None
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"


def test_a_trace_leads_from_the_send_through_three_nodes_to_the_commit(
    receiver: tuple[OtlpReceiver, str], servers: str
) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic("t", partitions=1, replication_factor=3)])
    with collected() as sent:
        with Producer(bootstrap_servers=servers, tracing_enable=True, max_block_ms=60_000) as producer:
            producer.send("t", b"v").result()
        with Consumer(
            bootstrap_servers=servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            tracing_enable=True,
        ) as consumer:
            consumer.subscribe(["t"])
            (record,) = consumer.poll(timeout_s=WAIT_S)
            with processing(record):
                consumer.commit(record)
        send, poll, process, commit = (only(sent, f"{name} t") for name in ("send", "poll", "process", "commit"))
    trace, sender = identity(send)

    def of_trace(spans: list[ReceivedSpan], name: str, role: str | None = None) -> list[ReceivedSpan]:
        return [
            span
            for span in spans
            if (span.trace, span.name) == (trace, name)
            and role in (None, span.attributes.get("streamlog.replica.role"))
        ]

    def is_complete(spans: list[ReceivedSpan]) -> bool:
        """A busy machine may have made retries, which have spans, too."""
        replicated = of_trace(spans, "replicate t")
        requests = {span.identity for span in of_trace(spans, REQUEST)}
        everywhere = all(
            {span.process for span in of_trace(spans, f"{name} t")} == {"node-1", "node-2", "node-3"}
            for name in ("append", "sync")
        )
        return everywhere and bool(replicated) and replicated[0].parent in requests and bool(of_trace(spans, COMMIT))

    spans = receiver[0].wait_until(is_complete, WAIT_S)
    replicate = of_trace(spans, "replicate t")[0]
    (request,) = (span for span in of_trace(spans, REQUEST) if span.identity == replicate.parent)
    assert request.parent == sender
    assert replicate.process == request.process
    for name in ("append t", "sync t"):
        assert request.identity in {span.parent for span in of_trace(spans, name, "leader")}, tree(spans)
        assert {span.process for span in of_trace(spans, name, "leader")} == {request.process}
    copies = of_trace(spans, "append t", "follower")
    assert {span.parent for span in copies} == {replicate.identity}, tree(spans)
    assert {request.process, *(span.process for span in copies)} == {"node-1", "node-2", "node-3"}
    synced = of_trace(spans, "sync t", "follower")
    assert {span.parent for span in synced} <= {span.identity for span in copies}, tree(spans)
    assert {event.name for event in replicate.span.events} == {"acknowledged"}
    assert [(link.context.trace_id, link.context.span_id) for link in poll.links] == [(int(trace, 16), int(sender, 16))]
    assert identity(process)[0] == trace
    assert {span.parent for span in of_trace(spans, COMMIT)} == {identity(commit)[1]}
