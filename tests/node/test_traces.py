"""Spans of nodes, recorded through the tracing port: three nodes in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from msgspec.structs import replace
from opentelemetry import trace

from streamlog.api.pb import batches_pb2, records_pb2
from streamlog.client import AsyncAdmin, AsyncProducer
from streamlog.client.admin.values import NewTopic
from streamlog.model import BrokerId, PartitionId
from streamlog.node import Node
from streamlog.ports import Channel, Ports, SpanKind
from streamlog.ports.tracing import LINKS_MAX
from tests.node.calls import Calls, leader_of, until_done
from tests.node.kit import Nodes, properties, run_story
from tests.storage.batches import batch
from tests.support.node_spans import RecordedSpan, SpanStore
from tests.support.spans import collected, context_of, named

TRACE = "a" * 32
SENDER = f"00-{TRACE}-{'b' * 16}-01"
OTHER = f"00-{'c' * 32}-{'d' * 16}-01"
UNSAMPLED = f"00-{TRACE}-{'b' * 16}-00"
SERVERS = "n1:9092,n2:9092,n3:9092"
REQUEST = "streamlog.v1.Batches/ProduceStream"

Story = Callable[["Traced"], Awaitable[None]]


class Traced:
    """Nodes with a tracing port, a topic `t` of one partition and three replicas, and a client's ports."""

    def __init__(self, nodes: Nodes, store: SpanStore, ports: Ports, leader: BrokerId) -> None:
        self.nodes = nodes
        self.store = store
        self.ports = ports
        self.leader = leader

    async def produce(self, *contexts: str, metadata: dict[str, str] | None = None, acks: int = 0) -> None:
        channel = self.ports.network.connect(f"n{self.leader}:9092")
        try:
            await produce(channel, *contexts, metadata=metadata, acks=acks)
        finally:
            await channel.close()

    def below(self, span: RecordedSpan) -> list[tuple[str, int]]:
        return sorted((one.name, one.node) for one in self.store.below(span.traceparent))


async def produce(channel: Channel, *contexts: str, metadata: dict[str, str] | None, acks: int) -> None:
    """One batch of three records, in a unary call."""
    part = batches_pb2.PartitionBatches(topic="t", batches=batch((b"1", b"2", b"3")))
    if contexts:
        part.traceparent = contexts[0]
        part.linked_traceparents.extend(contexts[1:])
    request = batches_pb2.ProduceRequest(partitions=[part], acks=acks)  # type: ignore[arg-type]
    answer = await channel.unary(
        "/streamlog.v1.Batches/Produce", request.SerializeToString(), timeout_s=10, metadata=metadata
    )
    (result,) = batches_pb2.ProduceResponse.FromString(answer).results
    assert not result.HasField("error"), result.error


def traced_story(story: Story, *, ratio: float = 0.0, traced: bool = True, **settings: str) -> SpanStore:
    stores: list[SpanStore] = []

    async def play(nodes: Nodes) -> None:
        loop = nodes.world.loop
        store = SpanStore(lambda: loop.now, ratio)
        stores.append(store)
        for number in (1, 2, 3):

            def make(ports: Ports, number: int = number) -> Node:
                tracing = store.of(number) if traced else None
                return Node(properties(number, 3, **settings), replace(ports, tracing=tracing))

            nodes.host(number).start(make)
        await nodes.ready()
        host = nodes.world.host("client")
        ports = host.boot()

        async def work() -> None:
            calls = Calls(ports.network)
            await until_done(partial(calls.create_topic, "n1:9092", "t", 1, 3))
            await nodes.until(lambda: all(node.view.image.topic_named("t") is not None for node in nodes.alive()))
            await nodes.until(lambda: all(leader_of(node.view, "t") > 0 for node in nodes.alive()))
            leader = leader_of(nodes.node(1).view, "t")
            await until_done(partial(calls.produce, f"n{leader}:9092", "t", 0, b"first"))
            await nodes.until(lambda: len(isr(nodes.node(1))) == 3)
            await calls.close()
            store.spans.clear()
            await story(Traced(nodes, store, ports, leader))

        await host.spawn(work())

    run_story(play)
    return stores[0]


def isr(node: Node) -> tuple[BrokerId, ...]:
    return node.view.image.require_topic("t").partitions[PartitionId(0)].isr


def ended(store: SpanStore) -> bool:
    return all(span.ended for span in store.spans)


def test_a_sampled_batch_is_traced_from_the_request_to_the_followers() -> None:
    async def story(stage: Traced) -> None:
        store = stage.store
        await stage.produce(SENDER, OTHER, metadata={"traceparent": SENDER})
        await stage.nodes.until(lambda: ended(store))
        assert {span.trace for span in store.spans} == {TRACE}
        leader, followers = int(stage.leader), sorted({1, 2, 3} - {int(stage.leader)})
        request = store.only("streamlog.v1.Batches/Produce")
        assert (request.parent, request.kind, request.node) == (SENDER, SpanKind.SERVER, leader)
        assert request.attributes["rpc.grpc.status_code"] == 0
        assert request.attributes["network.peer.address"]
        assert stage.below(request) == [("append t", leader), ("replicate t", leader), ("sync t", leader)]
        append, replicate, sync = (store.only(f"{name} t", leader) for name in ("append", "replicate", "sync"))
        assert append.links == [SENDER, OTHER]
        assert append.attributes["messaging.streamlog.offset"] == 1
        assert append.attributes["messaging.batch.message_count"] == 3
        assert append.attributes["messaging.destination.partition.id"] == "0"
        assert append.attributes["messaging.streamlog.bytes"] == len(batch((b"1", b"2", b"3")))
        assert replicate.kind is SpanKind.PRODUCER
        assert stage.below(replicate) == [("append t", node) for node in followers]
        for node in followers:
            copied = store.only("append t", node)
            assert copied.kind is SpanKind.CONSUMER
            assert stage.below(copied) == [("sync t", node)]
            assert copied.began_s >= append.ended_s
        assert sorted(fields["streamlog.node.id"] for _, fields in replicate.events) == followers
        assert request.ended_s >= replicate.ended_s > sync.began_s
        assert {span.error for span in store.spans} == {""}

    traced_story(story)


def test_a_producers_batches_have_a_request_span_each() -> None:
    """Below the first record's span; the others are linked to."""

    async def story(stage: Traced) -> None:
        settings: dict[str, Any] = {"linger_ms": 50, "tracing_enable": True}
        with collected() as sent:
            async with AsyncProducer(bootstrap_servers=SERVERS, ports=stage.ports, **settings) as producer:
                await producer.partition_count("t")
                for future in [producer.send("t", b"v") for _ in range(40)]:
                    await future
            contexts = [context_of(span) for span in named(sent, "send t")]
        await stage.nodes.until(lambda: ended(stage.store))
        request = stage.store.only(REQUEST)
        assert request.parent == contexts[0]
        assert request.links == contexts[1:LINKS_MAX]
        assert stage.store.only("append t", int(stage.leader)).attributes["messaging.batch.message_count"] == 40
        assert len(stage.store.spans) == 8

    traced_story(story)


def test_a_stream_of_a_plain_client_is_traced_batch_by_batch() -> None:
    async def story(stage: Traced) -> None:
        channel = stage.ports.network.connect(f"n{stage.leader}:9092")
        async with channel.stream(f"/{REQUEST}", metadata={"traceparent": OTHER}) as stream:
            for number, context in enumerate((SENDER, "", UNSAMPLED, "nonsense")):
                part = batches_pb2.PartitionBatches(
                    topic="t", batches=batch((b"v",)), correlation_id=number, traceparent=context
                )
                await stream.send(batches_pb2.ProduceStreamRequest(partitions=[part]).SerializeToString())
                assert await stream.recv() is not None
            refused = batches_pb2.PartitionBatches(topic="t", partition=7, batches=b"x", traceparent=SENDER)
            await stream.send(batches_pb2.ProduceStreamRequest(partitions=[refused]).SerializeToString())
            assert await stream.recv() is not None
            await stream.done_sending()
        await channel.close()
        await stage.nodes.until(lambda: ended(stage.store))
        requests = stage.store.named(REQUEST)
        assert [(span.parent, span.error) for span in requests] == [
            (SENDER, ""),
            (OTHER, ""),
            (SENDER, "UNKNOWN_TOPIC_OR_PARTITION"),
        ]
        assert len(stage.store.named("replicate t")) == 2

    traced_story(story)


def test_without_a_context_the_ratio_decides_and_calls_between_nodes_start_no_trace() -> None:
    async def story(stage: Traced) -> None:
        await stage.produce()
        await stage.nodes.until(lambda: ended(stage.store))
        roots = [span for span in stage.store.spans if not span.parent]
        assert [span.name for span in roots] == ["streamlog.v1.Batches/Produce"]
        assert len(stage.store.spans) == 8

    traced_story(story, ratio=1.0)


def test_acknowledged_by_the_leader_alone_it_is_followed_until_it_is_replicated() -> None:
    async def story(stage: Traced) -> None:
        await stage.produce(SENDER, acks=2)  # ACKS_LEADER
        request = stage.store.only("streamlog.v1.Batches/Produce")
        assert request.ended
        replicate = stage.store.only("replicate t")
        await stage.nodes.until(lambda: ended(stage.store))
        assert replicate.ended_s >= request.ended_s

    traced_story(story)


def test_a_leadership_that_ends_ends_its_spans() -> None:
    async def story(stage: Traced) -> None:
        leader = int(stage.leader)
        for node in {1, 2, 3} - {leader}:
            stage.nodes.world.fabric.block(f"n{node}", f"n{leader}")  # positions do not arrive any more
        await stage.produce(SENDER, acks=2)
        replicate = stage.store.only("replicate t")
        assert not replicate.ended
        await stage.nodes.stopped(leader)
        assert replicate.ended
        assert replicate.error

    traced_story(story)


def test_nodes_without_tracing_ignore_contexts() -> None:
    async def story(stage: Traced) -> None:
        await stage.produce(SENDER, OTHER, "nonsense", metadata={"traceparent": SENDER})

    assert traced_story(story, traced=False).spans == []


def test_published_records_are_traced_at_the_node_that_receives_and_the_one_that_leads() -> None:
    async def publish(stage: Traced, node: int, metadata: dict[str, str] | None, *contexts: str) -> None:
        records = [
            records_pb2.PublishRecord(
                value=b"v", headers=[records_pb2.Header(key="traceparent", value=context.encode())]
            )
            for context in contexts
        ]
        request = records_pb2.PublishRequest(topic="t", records=records)
        channel = stage.ports.network.connect(f"n{node}:9092")
        data = request.SerializeToString()
        await channel.unary("/streamlog.v1.Records/Publish", data, timeout_s=10, metadata=metadata)
        await channel.close()
        await stage.nodes.until(lambda: ended(stage.store))

    async def story(stage: Traced) -> None:
        leader, other = int(stage.leader), int(stage.leader) % 3 + 1
        await publish(stage, other, {"traceparent": SENDER}, SENDER, OTHER)
        request = stage.store.only("streamlog.v1.Records/Publish")
        assert (request.node, request.parent) == (other, SENDER)
        forwarded = stage.store.only("streamlog.v1.Batches/Produce")
        assert (forwarded.node, forwarded.parent, forwarded.links) == (leader, request.traceparent, [SENDER, OTHER])
        assert stage.below(forwarded) == [("append t", leader), ("replicate t", leader), ("sync t", leader)]
        stage.store.spans.clear()
        await publish(stage, leader, {"traceparent": SENDER}, OTHER)
        request = stage.store.only("streamlog.v1.Records/Publish")
        assert stage.below(request) == [("append t", leader), ("replicate t", leader), ("sync t", leader)]
        assert stage.store.only("append t", leader).links == [OTHER]
        stage.store.spans.clear()
        await publish(stage, leader, None, UNSAMPLED, OTHER, SENDER)
        request = stage.store.only("streamlog.v1.Records/Publish")
        assert (request.parent, request.links) == (OTHER, [SENDER])
        assert request.ended_s >= stage.store.only("replicate t").ended_s

    traced_story(story)


def test_unary_calls_of_a_traced_client_carry_the_current_context_and_background_work_none() -> None:
    async def story(stage: Traced) -> None:
        tracer, traced = trace.get_tracer("test"), {"bootstrap.servers": SERVERS, "tracing.enable": True}
        with collected():
            async with AsyncAdmin(traced, ports=stage.ports) as admin:
                await admin.list_topics()
                assert stage.store.spans == []
                with tracer.start_as_current_span("outer") as outer:
                    await admin.create_topics([NewTopic("new", partitions=1, replication_factor=1)])
            created = stage.store.named("streamlog.v1.Admin/CreateTopics")
            assert {span.parent for span in created} == {context_of(outer)}
            stage.store.spans.clear()
            with tracer.start_as_current_span("outer"):
                producer = await AsyncProducer(traced, ports=stage.ports).start()
            await producer.send("t", b"v")
            assert not stage.store.named("streamlog.v1.Batches/InitProducerId")
            with tracer.start_as_current_span("outer"):
                await producer.close()
            await stage.nodes.until(lambda: ended(stage.store))
        assert {span.trace for span in stage.store.spans} == {stage.store.only(REQUEST).trace}

    traced_story(story)


def test_every_span_ends_whatever_happens_to_followers_and_leaders() -> None:
    """A follower that is cut off and comes back, and a leader that stops, below a producer that goes on."""

    async def story(stage: Traced) -> None:
        nodes, leader = stage.nodes, int(stage.leader)
        fabric, follower = nodes.world.fabric, int(stage.leader) % 3 + 1
        async with AsyncProducer(bootstrap_servers=SERVERS, ports=stage.ports, retry_backoff_ms=20) as producer:

            async def send(count: int) -> None:
                for number in range(count):
                    await producer.send("t", b"%d" % number)

            await send(10)
            for one, other in ((leader, follower), (follower, leader)):
                fabric.block(f"n{one}", f"n{other}")
            await send(5)
            await nodes.until(lambda: len(isr(nodes.node(leader))) == 2)
            fabric.heal()
            await nodes.until(lambda: len(isr(nodes.node(leader))) == 3)
            await send(5)
            stopping = asyncio.ensure_future(nodes.stopped(leader))
            await send(20)
            await stopping
        await nodes.until(lambda: ended(stage.store))
        leaders = {span.node for span in stage.store.named("replicate t")}
        assert len(leaders) == 2
        assert len(stage.store.named("append t")) >= 80  # of 40 batches, at the leader and at one follower at least
        assert all(len(span.events) >= 1 for span in stage.store.named("replicate t") if not span.error)

    traced_story(story, ratio=1.0)
