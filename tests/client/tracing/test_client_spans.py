"""Spans of producers and consumers: names, attributes, and the context in the headers of records."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from streamlog.client import EARLIEST, AsyncConsumer, AsyncProducer
from streamlog.client.tracing import processing
from streamlog.errors import InvalidConfigError, InvalidRequestError, MessageTooLargeError, StreamlogError
from streamlog.ports import Ports
from streamlog.sim import SimLoop, World, run
from tests.node.calls import Calls, until_done
from tests.node.kit import Nodes
from tests.support.spans import collected, named, only

SERVERS = "n1:9092"
Story = Callable[[Ports, InMemorySpanExporter], Awaitable[None]]


def traced_story(story: Story) -> None:
    """With one node, and topics `t` of one partition and `u` of two."""

    async def main(loop: SimLoop) -> None:
        nodes = Nodes(World(loop, 1), 1)
        nodes.start()
        await nodes.ready()
        host = nodes.world.host("client")
        ports = host.boot()

        async def work() -> None:
            calls = Calls(ports.network)
            await until_done(partial(calls.create_topic, SERVERS, "t", 1, 1))
            await until_done(partial(calls.create_topic, SERVERS, "u", 2, 1))
            await calls.close()
            with collected() as spans:
                await story(ports, spans)

        await host.spawn(work())
        nodes.world.stop()

    run(main, seed=1)


def producing(ports: Ports, **settings: Any) -> AsyncProducer:
    return AsyncProducer(bootstrap_servers=SERVERS, ports=ports, tracing_enable=True, **settings)


def consuming(ports: Ports, **settings: Any) -> AsyncConsumer:
    return AsyncConsumer(
        bootstrap_servers=SERVERS, ports=ports, auto_offset_reset="earliest", tracing_enable=True, **settings
    )


def identity(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def traceparent(span: ReadableSpan) -> bytes:
    return b"00-%032x-%016x-01" % identity(span)


def test_a_trace_leads_from_the_send_to_poll_process_and_commit() -> None:
    async def story(ports: Ports, spans: InMemorySpanExporter) -> None:
        async with producing(ports, client_id="meter") as producer:
            await producer.send("t", b"v", headers=[("mine", b"1")])
        send = only(spans, "send t")
        assert send.kind is SpanKind.PRODUCER
        assert dict(send.attributes or {}) == {
            "messaging.system": "streamlog",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.client.id": "meter",
            "messaging.destination.name": "t",
            "messaging.destination.partition.id": "0",
            "messaging.streamlog.offset": 0,
        }
        async with consuming(ports, group_id="g", enable_auto_commit=False) as consumer:
            consumer.subscribe(["t"])
            (record,) = await consumer.poll(timeout_s=30)
            assert record.headers == (("mine", b"1"), ("traceparent", traceparent(send)))
            with processing(record):
                await consumer.commit(record)
        poll, process, commit = only(spans, "poll t"), only(spans, "process t"), only(spans, "commit t")
        assert [(link.context.trace_id, link.context.span_id) for link in poll.links] == [identity(send)]
        assert poll.kind is SpanKind.CLIENT
        attributes = dict(poll.attributes or {})
        assert attributes["messaging.batch.message_count"] == 1
        assert attributes["messaging.consumer.group.name"] == "g"
        assert process.kind is SpanKind.CONSUMER
        assert process.parent is not None
        assert (process.parent.trace_id, process.parent.span_id) == identity(send)
        assert commit.parent is not None
        assert (commit.parent.trace_id, commit.parent.span_id) == identity(process)
        assert dict(commit.attributes or {})["messaging.operation.type"] == "settle"

    traced_story(story)


def test_each_record_has_one_span_and_one_context() -> None:
    """Also those that wait for their topic, and those that waited for free bytes."""

    async def story(ports: Ports, spans: InMemorySpanExporter) -> None:
        async with producing(ports, buffer_memory=20_000, batch_size=10_000, max_request_size=20_000) as producer:
            for number in range(60):
                await producer.enqueue("u", b"%d" % number * 500, partition=number % 2)
        sent = named(spans, "send u")
        assert len(sent) == 60
        assert all(span.status.status_code is StatusCode.UNSET for span in sent)
        async with consuming(ports) as consumer:
            await consumer.assign_topics(["u"], start=EARLIEST)
            found = []
            async for record in consumer:
                found.append(record)
                if len(found) == 60:
                    break
        carried = [value for record in found for _, value in record.headers]
        assert sorted(filter(None, carried)) == sorted(map(traceparent, sent))
        polls = named(spans, "poll u")
        assert len(polls) == 60
        assert {len(span.links) for span in polls} == {1}

    traced_story(story)


def test_many_records_share_a_span() -> None:
    async def story(ports: Ports, spans: InMemorySpanExporter) -> None:
        async with producing(ports, batch_size=2_000) as producer:
            await (await producer.send_many("t", [b"v" * 100] * 300, headers={"mine": None}))
            send = only(spans, "send t")
            await (await producer.send_many("t", []))
        async with consuming(ports) as consumer:
            await consumer.assign([("t", 0)], start=EARLIEST)
            batch = await consumer.poll_batch(timeout_s=30)
            assert batch is not None
            assert {record.headers for record in batch.records()} == {
                (("mine", None), ("traceparent", traceparent(send)))
            }
            assert len(batch.records()) * 170 < 2_000  # batch.size counts the headers
        assert dict(only(spans, "poll t").attributes or {})["messaging.batch.message_count"] == len(batch.records())
        assert {len(span.attributes or {}) for span in named(spans, "send t")} == {5}

    traced_story(story)


def test_failures_are_in_the_span_and_still_raised_by_flush() -> None:
    async def story(ports: Ports, spans: InMemorySpanExporter) -> None:
        async with producing(ports, max_block_ms=500) as producer:
            with pytest.raises(InvalidRequestError):
                producer.send("t", "text")
            await producer.partition_count("t")
            with pytest.raises(MessageTooLargeError):
                producer.send("t", b"v" * 2_000_000)
            producer.send("missing", b"v")
            with pytest.raises(StreamlogError):
                await producer.flush()
        kinds = [dict(span.attributes or {})["error.type"] for span in spans.get_finished_spans()]
        assert kinds == ["INVALID_REQUEST", "MESSAGE_TOO_LARGE", "REQUEST_TIMED_OUT"]
        assert {span.status.status_code for span in spans.get_finished_spans()} == {StatusCode.ERROR}

    traced_story(story)


def test_background_work_belongs_to_no_span_of_the_program() -> None:
    async def story(ports: Ports, spans: InMemorySpanExporter) -> None:
        tracer = trace.get_tracer("test")
        async with producing(ports) as producer:
            await producer.send("t", b"v")
        with tracer.start_as_current_span("outer"):
            consumer = await consuming(ports, group_id="auto", auto_commit_interval_ms=100).start()
        consumer.subscribe(["t"])
        assert await consumer.poll(timeout_s=30)
        await consumer.poll(timeout_s=1)
        assert named(spans, "commit t")[0].parent is None
        await consumer.close()
        assert len(named(spans, "poll t")) == 1  # the second returned nothing

    traced_story(story)


def test_off_nothing_is_imported_and_records_have_no_headers() -> None:
    async def story(ports: Ports, spans: InMemorySpanExporter) -> None:
        async with AsyncProducer(bootstrap_servers=SERVERS, ports=ports) as producer:
            assert "send" not in vars(producer)
            await producer.send("t", b"v")
        async with AsyncConsumer(bootstrap_servers=SERVERS, ports=ports) as consumer:
            assert not {"poll", "_records"} & vars(consumer).keys()
            await consumer.assign([("t", 0)], start=EARLIEST)
            (record,) = await consumer.poll(timeout_s=30)
        assert record.headers == ()
        assert spans.get_finished_spans() == ()

    traced_story(story)
    program = (
        "import sys; from streamlog.client import AsyncConsumer, AsyncProducer; AsyncProducer(); AsyncConsumer();"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "[]\n"


@pytest.mark.parametrize("client", [AsyncProducer, AsyncConsumer])
def test_without_the_package_the_setting_is_refused(client: type, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("streamlog.client.tracing.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "streamlog.client.tracing")
    monkeypatch.setitem(sys.modules, "opentelemetry.context", None)
    with pytest.raises(InvalidConfigError, match=r"pip install 'streamlog\[otel\]'"):
        client(tracing_enable=True)
