"""Consumers with deserializers: a record that cannot be deserialized is an error of its own; it can be stepped over."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from streamlog.client import EARLIEST, AsyncConsumer, Consumer, ConsumerRecord, Producer
from streamlog.client.serialization.pending import Pending
from streamlog.errors import DeserializationError, InvalidConfigError, StreamlogError
from streamlog.model import PartitionId, TopicPartition
from streamlog.records import encode_batch

from ..stage import Stage, play

pytestmark = pytest.mark.timeout(120)
T0 = TopicPartition("t", PartitionId(0))
VALUES = [b"0", b"1", b"x", b"3", b"y", None, b"6"]


def fill(stage: Stage) -> None:
    [log] = stage.cluster.create("t")
    log.append(encode_batch(VALUES[:4], [b"k"] * 4, timestamps=[1] * 4))
    log.append(encode_batch(VALUES[4:], [b"k"] * 3, timestamps=[1] * 3))


async def polled(consumer: AsyncConsumer, count: int) -> list[ConsumerRecord]:
    return await consumer.poll(count, timeout_s=None)


async def outcome(
    reading: Coroutine[Any, Any, list[ConsumerRecord]],
) -> tuple[list[ConsumerRecord], DeserializationError | None]:
    try:
        return await reading, None
    except DeserializationError as error:
        return [], error


async def looped(consumer: AsyncConsumer, count: int) -> list[ConsumerRecord]:
    found = []
    async for record in consumer:
        found.append(record)
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_an_error_comes_after_the_records_before_it_and_can_be_stepped_over(count: int) -> None:
    async def story(stage: Stage) -> None:
        fill(stage)
        async with stage.consumer(value_deserializer="json", key_deserializer=str) as consumer:
            await consumer.assign([T0], start=EARLIEST)
            found: list[object] = []
            while len(found) < len(VALUES):
                records, error = await outcome(polled(consumer, count))
                assert 1 <= len(records) <= count or error is not None
                assert {record.key for record in records} <= {"k"}
                found += [record.value for record in records]
                assert await consumer.position(T0) == len(found)
                if error is not None:
                    _, again = await outcome(polled(consumer, count))
                    assert again is not None
                    assert again.message == error.message
                    assert "seek to offset" in error.message
                    assert (error.topic, error.partition, error.details["field"]) == ("t", 0, "value")
                    assert (error.record.offset, error.record.key) == (error.offset, b"k")
                    found.append(error.record.value)
                    consumer.seek(T0, error.offset + 1)
            assert found == [0, 1, b"x", 3, b"y", None, 6]

    play(story)


def test_a_loop_stops_at_the_record_and_goes_on_after_it() -> None:
    async def story(stage: Stage) -> None:
        fill(stage)
        async with stage.consumer(value_deserializer="json") as consumer:
            await consumer.assign([T0], start=EARLIEST)
            found: list[object] = []
            at: list[tuple[int, int]] = []
            while len(found) < len(VALUES):
                try:
                    async for record in consumer:
                        found.append(record.value)
                        if len(found) == len(VALUES):
                            break
                except DeserializationError as error:
                    at.append((await consumer.position(T0), error.offset))
                    found.append(error.record.value)
                    consumer.seek(T0, error.offset + 1)
            assert at == [(2, 2), (4, 4)]
            assert found == [0, 1, b"x", 3, b"y", None, 6]

    play(story)


@pytest.mark.parametrize("read", [polled, looped])
def test_records_are_skipped(read: Callable[[AsyncConsumer, int], Any]) -> None:
    async def story(stage: Stage) -> None:
        fill(stage)
        dead: list[DeserializationError] = []
        async with stage.consumer(value_deserializer="json", on_deserialization_error=dead.append) as consumer:
            await consumer.assign([T0], start=EARLIEST)
            found: list[object] = []
            while len(found) < 5:
                found += [record.value for record in await read(consumer, 1)]
            assert found == [0, 1, 3, None, 6]
            assert [error.offset for error in dead] == [2, 4]
            assert consumer.undecodable_records_skipped == 2

    play(story)


def test_a_skip_is_logged_and_a_poll_of_skipped_records_waits_on(caplog: pytest.LogCaptureFixture) -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        log.append(encode_batch([b"x", b"y"], timestamps=[1, 1]))
        async with stage.consumer(value_deserializer="json", on_deserialization_error="skip") as consumer:
            await consumer.assign([T0], start=EARLIEST)
            began = stage.loop.time()
            assert await consumer.poll(timeout_s=5) == []
            assert 5 <= stage.loop.time() - began < 6
            log.append(encode_batch([b"7"], timestamps=[1]))
            stage.cluster.wake()
            assert [record.value for record in await polled(consumer, 1)] == [7]

    play(story, seeds=1)
    assert caplog.text.count("it is skipped (on_deserialization_error='skip')") == 2


class Registry:
    """Has to load something for each value, which fails once."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.known: set[bytes] = set()
        self.threads: set[int] = set()

    def deserialize(self, topic: str, data: bytes) -> str:
        if data in self.known:
            return data.decode()

        def load() -> None:
            self.threads.add(threading.get_ident())
            if self.failures:
                self.failures -= 1
                error = StreamlogError("the registry does not answer")
                error.retriable = True
                raise error
            self.known.add(data)

        raise Pending(load, "a schema")


def write(cluster: Any, values: list[bytes]) -> str:
    cluster.create_topic("t")
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send_many("t", values).result(60)
    servers: str = cluster.bootstrap_servers
    return servers


async def test_what_must_be_loaded_is_loaded_in_a_thread(streamlog_cluster: Any) -> None:
    servers = write(streamlog_cluster, [b"a", b"b", b"a"])
    registry = Registry(failures=2)
    async with AsyncConsumer(
        bootstrap_servers=servers, value_deserializer=registry, on_deserialization_error="skip"
    ) as consumer:
        await consumer.assign_topics(["t"], start=EARLIEST)
        for _ in range(2):
            _, error = await outcome(consumer.poll(timeout_s=None))
            assert error is not None
            assert error.retriable
            assert "the next poll tries again" in error.message
        found: list[str] = []
        while len(found) < 3:
            found += [record.value for record in await consumer.poll(timeout_s=30)]
    assert found == ["a", "b", "a"]
    assert threading.get_ident() not in registry.threads


async def test_a_poll_that_is_cancelled_while_it_loads_loses_nothing(streamlog_cluster: Any) -> None:
    servers = write(streamlog_cluster, [b"a", b"b"])
    loading, go_on = threading.Event(), threading.Event()

    class Slow(Registry):
        def deserialize(self, topic: str, data: bytes) -> str:
            if data == b"b" and not go_on.is_set():

                def load() -> None:
                    loading.set()
                    go_on.wait(60)

                raise Pending(load, "a schema")
            return data.decode()

    async with AsyncConsumer(bootstrap_servers=servers, value_deserializer=Slow()) as consumer:
        await consumer.assign_topics(["t"], start=EARLIEST)
        poll = asyncio.ensure_future(consumer.poll(timeout_s=None))
        await asyncio.to_thread(loading.wait, 60)
        poll.cancel()
        go_on.set()
        await asyncio.wait([poll])
        assert poll.cancelled()
        assert await consumer.position(("t", 0)) == 0
        found: list[str] = []
        while len(found) < 2:
            found += [record.value for record in await consumer.poll(timeout_s=30)]
        assert found == ["a", "b"]


@pytest.mark.parametrize("way", ["poll", "loop"])
def test_the_synchronous_consumer(streamlog_cluster: Any, way: str) -> None:
    servers = write(streamlog_cluster, [value or b"null" for value in VALUES])
    threads: set[int] = set()

    def decode(data: bytes) -> object:
        threads.add(threading.get_ident())
        return int(data) if data != b"null" else None

    found: list[object] = []
    at: list[tuple[int, int]] = []
    with Consumer(bootstrap_servers=servers, value_deserializer=decode) as consumer:
        consumer.assign_topics(["t"], start=EARLIEST)
        while len(found) < len(VALUES):
            try:
                for record in consumer.poll(3, timeout_s=30) if way == "poll" else consumer:
                    found.append(record.value)
                    if len(found) == len(VALUES):
                        break
            except DeserializationError as error:
                at.append((consumer.position(("t", 0)), error.offset))
                found.append(error.record.value)
                consumer.seek(("t", error.partition), error.offset + 1)
    assert found == [0, 1, b"x", 3, b"y", None, 6]
    assert at == [(2, 2), (4, 4)]
    assert threads == {threading.get_ident()}
    with Consumer(bootstrap_servers=servers, value_deserializer=int, on_deserialization_error="skip") as consumer:
        consumer.assign_topics(["t"], start=EARLIEST)
        while consumer.undecodable_records_skipped < len(VALUES):  # none has the 8 bytes of a long
            assert consumer.poll(timeout_s=1) == []


async def test_a_load_that_fails_for_good_is_skipped_in_the_loops_thread(streamlog_cluster: Any) -> None:
    servers = write(streamlog_cluster, [b"a", b"endless", b"b"])
    seen: list[tuple[int, str, int]] = []

    class Refusing(Registry):
        def deserialize(self, topic: str, data: bytes) -> str:
            if data == b"b":
                return "b"

            def load() -> None:
                if data == b"a":
                    raise StreamlogError("no such schema")

            raise Pending(load, "a schema")

    def note(error: DeserializationError) -> None:
        seen.append((threading.get_ident(), str(error.details["reason"]), error.offset))

    async with AsyncConsumer(
        bootstrap_servers=servers, value_deserializer=Refusing(), on_deserialization_error=note
    ) as consumer:
        await consumer.assign_topics(["t"], start=EARLIEST)
        async for record in consumer:
            assert (record.offset, record.value) == (2, "b")
            break
    here = threading.get_ident()
    assert seen == [(here, "no such schema", 0), (here, "it needed more than 16 loads", 1)]


def test_a_setting_at_fault_is_named() -> None:
    wrong: list[dict[str, Any]] = [{"value_deserializer": "nope"}, {"on_deserialization_error": "ignore"}]
    for settings in wrong:
        for kind in (Consumer, AsyncConsumer):
            with pytest.raises(InvalidConfigError, match=next(iter(settings))):
                kind(bootstrap_servers="127.0.0.1:1", **settings)
