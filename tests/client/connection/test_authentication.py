"""A client that is refused, or refuses the nodes, fails at once: retries for delivery.timeout.ms would not help."""

from __future__ import annotations

import random
from typing import Any

import pytest

from streamlog.api import calls
from streamlog.api.errors import to_rpc
from streamlog.api.pb import batches_pb2 as pb
from streamlog.client.connection.any_node import AnyNode, AskTimes
from streamlog.client.connection.backoff import Backoff
from streamlog.client.connection.connections import Connections
from streamlog.client.connection.metadata import METADATA
from streamlog.errors import (
    RequestTimedOutError,
    SaslAuthenticationError,
    SslAuthenticationError,
    Status,
    StreamlogError,
    ThrottledError,
)
from streamlog.model import PartitionId, TopicPartition
from streamlog.ports import HandshakeError
from tests.client.fake_broker import FakeBroker

from ..stage import Stage, play

DELETED = SaslAuthenticationError("user alice was deleted or its password changed: log in again")
AT_ONCE_S = 2.0


async def refuse(*_: Any) -> None:
    raise DELETED


def test_all_batches_of_a_refused_producer_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    produce, deleted = FakeBroker.produce_stream, False

    async def produce_or_refuse(broker: FakeBroker, *call: Any) -> None:
        await (refuse() if deleted else produce(broker, *call))

    monkeypatch.setattr(FakeBroker, "produce_stream", produce_or_refuse)

    async def story(stage: Stage) -> None:
        nonlocal deleted
        deleted = False
        stage.cluster.create("t", partitions=4)
        async with stage.producer(linger_ms=5) as producer:
            await producer.send("t", b"before", partition=0)
            began = stage.loop.time()
            deleted = True
            stage.reset()
            sent = [producer.send("t", b"%d" % number, partition=number % 4) for number in range(40)]
            for one in sent:
                with pytest.raises(SaslAuthenticationError, match="was deleted"):
                    await one
            assert stage.loop.time() - began < AT_ONCE_S

    play(story)


def test_a_refused_consumer_without_a_group_raises_it_from_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeBroker, "fetch_stream", refuse)

    async def story(stage: Stage) -> None:
        stage.cluster.create("t")
        async with stage.consumer(auto_offset_reset="earliest") as consumer:
            await consumer.assign([TopicPartition("t", PartitionId(0))])
            began = stage.loop.time()
            with pytest.raises(SaslAuthenticationError, match="was deleted"):
                await consumer.poll(timeout_s=100)
            assert stage.loop.time() - began < AT_ONCE_S

    play(story)


class _Handshakes:
    """A network whose handshakes fail."""

    def __init__(self, refused_here: set[str]) -> None:
        self.refused_here = refused_here
        self.tried: list[str] = []

    def connect(self, address: str) -> Any:
        return _Channel(self, address)


class _Channel:
    def __init__(self, network: _Handshakes, address: str) -> None:
        self._network = network
        self._address = address

    async def unary(self, *_: Any, **__: Any) -> bytes:
        self._network.tried.append(self._address)
        here = self._address in self._network.refused_here
        raise HandshakeError(Status.UNAVAILABLE, f"{self._address} cannot be used", is_refused_here=here)


@pytest.mark.parametrize("asks_any_node", [False, True])
def test_every_node_is_tried_before_the_certificates_of_all_are_refused(*, asks_any_node: bool) -> None:
    async def story(stage: Stage) -> None:
        network: Any = _Handshakes({"a:1", "b:1", "c:1"})
        error = await failure(stage, network, asks_any_node=asks_any_node)
        assert isinstance(error, SslAuthenticationError)
        assert not error.retriable
        assert sorted(network.tried) == ["a:1", "b:1", "c:1"]

    play(story)


@pytest.mark.parametrize("asks_any_node", [False, True])
def test_a_node_that_closes_the_connection_may_only_be_stopping(*, asks_any_node: bool) -> None:
    async def story(stage: Stage) -> None:
        network: Any = _Handshakes({"a:1", "b:1"})
        error = await failure(stage, network, asks_any_node=asks_any_node)
        assert isinstance(error, SslAuthenticationError if asks_any_node else RequestTimedOutError)
        assert len(network.tried) > 3

    play(story)


def test_a_login_that_nodes_slow_down_is_tried_again_until_they_check_it() -> None:
    """Others may have guessed at the user's password."""

    async def story(stage: Stage) -> None:
        began = stage.loop.time()

        class Throttling(_Handshakes):
            async def unary(self, *_: Any, **__: Any) -> bytes:
                if stage.loop.time() < began + 20:
                    raise to_rpc(ThrottledError("too many failed logins", retry_after_ms=20_000))
                return pb.MetadataResponse(cluster_id="found").SerializeToString()

            def connect(self, address: str) -> Any:
                return self

        network: Any = Throttling(set())
        connections = Connections(network, stage.ports.clock, random.Random(1), ["a:1", "b:1", "c:1"])
        response = await connections.ask_any(METADATA, pb.MetadataRequest(), timeout_s=30.0)
        assert response.cluster_id == "found"
        began = stage.loop.time()
        with pytest.raises(RequestTimedOutError, match="too many failed logins"):
            await connections.ask_any(METADATA, pb.MetadataRequest(), timeout_s=10.0)

    play(story)


async def failure(stage: Stage, network: Any, *, asks_any_node: bool) -> StreamlogError:
    generator, clock = random.Random(1), stage.ports.clock
    connections = Connections(network, clock, generator, ["a:1", "b:1", "c:1"])
    any_node = AnyNode(connections, clock, Backoff(generator), AskTimes(total_s=5.0, unreachable_s=5.0))
    if asks_any_node:
        call = any_node.ask(METADATA, pb.MetadataRequest())
    else:
        call = connections.ask_any(METADATA, pb.MetadataRequest(), timeout_s=5.0)
    with pytest.raises(StreamlogError) as raised:
        await call
    return raised.value


def test_what_the_node_refuses_may_be_retried_and_what_the_caller_refuses_may_not() -> None:
    theirs = calls.call_error(HandshakeError(Status.UNAVAILABLE, "closed"), "m")
    ours = calls.call_error(HandshakeError(Status.UNAVAILABLE, "expired", is_refused_here=True), "m")
    assert (type(theirs), theirs.retriable) == (SslAuthenticationError, True)
    assert (type(ours), ours.retriable) == (SslAuthenticationError, False)
