"""Producers with serializers: each way of sending, and records that cannot be serialized, which are refused alone."""

from __future__ import annotations

from typing import Any

import pytest

from streamlog.client import EARLIEST, AsyncProducer, Consumer, Producer
from streamlog.client.serialization.pending import Pending
from streamlog.errors import InvalidConfigError, InvalidRequestError, SerializationError

from ..stage import Stage, play

pytestmark = pytest.mark.timeout(120)


def picky(value: Any) -> bytes:
    if value == "bad":
        raise LookupError("no such thing")
    if value == "text":
        return "text"  # type: ignore[return-value]  # a serializer at fault
    return f"<{value}>".encode()


@pytest.mark.parametrize("known", [False, True], ids=["topic-unknown-yet", "topic-known"])
def test_each_way_of_sending(*, known: bool) -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        async with stage.producer(key_serializer="long", value_serializer=picky) as producer:
            if known:
                await producer.partition_count("t")
            sent = [producer.send("t", 1, key=7), await producer.enqueue("t", 2), producer.send("t", None, key=None)]
            assert [(await one).offset for one in sent] == [0, 1, 2]
            await (await producer.send_many("t", [3, None], keys=[1, None]))
        found = [(record.key, record.value) for record in log.records()]
        assert found == [
            (bytes(7) + b"\x07", b"<1>"),
            (None, b"<2>"),
            (None, None),
            (bytes(7) + b"\x01", b"<3>"),
            (None, None),
        ]

    play(story)


def test_a_record_that_cannot_be_serialized_is_refused_alone() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        async with stage.producer(value_serializer=picky, linger_ms=20) as producer:
            before = producer.send("t", "before")
            with pytest.raises(
                SerializationError, match="the value of a record for t cannot be serialized: LookupError: "
            ):
                producer.send("t", "bad")
            with pytest.raises(SerializationError, match="returned str for t, not bytes"):
                await producer.enqueue("t", "text")
            with pytest.raises(SerializationError) as refused:
                await producer.send_many("t", ["good", "bad"])
            assert refused.value.details == {"topic": "t", "field": "value"}
            with pytest.raises(InvalidRequestError, match="a key must be bytes or None, not str"):
                producer.send("t", "v", key="no serializer")
            with pytest.raises(InvalidRequestError, match="values must be a list or tuple"):
                await producer.send_many("t", "good")
            with pytest.raises(InvalidRequestError, match="a topic must be a name"):
                await producer.enqueue(7, "v")  # type: ignore[arg-type]  # refused
            after = producer.send("t", "after")
            assert [(await before).offset, (await after).offset] == [0, 1]
        assert log.values() == [b"<before>", b"<after>"]

    play(story)


class Loaded:
    """Has to load something for each new value."""

    def __init__(self) -> None:
        self.known: set[str] = set()

    def serialize(self, topic: str, value: str) -> bytes:
        if value == "endless":
            raise Pending(lambda: None, "nothing")
        if value not in self.known:
            raise Pending(lambda: self.known.add(value), f"schema {value}")
        return value.encode()


async def test_what_must_be_loaded_is_loaded_where_sending_may_wait(streamlog_cluster: Any) -> None:
    streamlog_cluster.create_topic("t")
    servers = streamlog_cluster.bootstrap_servers
    async with AsyncProducer(bootstrap_servers=servers, value_serializer=Loaded()) as producer:
        with pytest.raises(SerializationError, match=r"schema a must be loaded first, .* use `await enqueue"):
            producer.send("t", "a")
        await producer.enqueue("t", "a")
        await producer.send("t", "a")
        await (await producer.send_many("t", ["b", "c"]))
        with pytest.raises(SerializationError, match="needed more than 16 loads"):
            await producer.enqueue("t", "endless")


def test_the_synchronous_producer(streamlog_cluster: Any) -> None:
    streamlog_cluster.create_topic("t")
    servers = streamlog_cluster.bootstrap_servers
    with Producer(bootstrap_servers=servers, key_serializer=str, value_serializer=Loaded()) as producer:
        for number in range(3):
            producer.send("t", f"v{number}", key=f"k{number}")
        with pytest.raises(
            SerializationError, match=r"the key of a record for t cannot .*: TypeError: a str is needed"
        ):
            producer.send("t", "v", key=7)
        with pytest.raises(SerializationError, match="needed more than 16 loads"):
            producer.send("t", "endless")
        producer.send_many("t", ["many"], keys=["k"]).result(30)
    with Consumer(bootstrap_servers=servers, key_deserializer=str, value_deserializer=str) as consumer:
        consumer.assign_topics(["t"], start=EARLIEST)
        found: list[tuple[object, object]] = []
        while len(found) < 4:
            found += [(record.key, record.value) for record in consumer.poll(timeout_s=30)]
    assert found == [("k0", "v0"), ("k1", "v1"), ("k2", "v2"), ("k", "many")]


def test_a_setting_at_fault_is_named() -> None:
    with pytest.raises(InvalidConfigError, match="key_serializer='nope'"):
        Producer(bootstrap_servers="127.0.0.1:1", key_serializer="nope")
    with pytest.raises(InvalidConfigError, match="value_serializer='nope'"):
        AsyncProducer(bootstrap_servers="127.0.0.1:1", value_serializer="nope")
