"""The short ways of the synchronous `send`: each record is the same as by the general way, whatever is between."""

from __future__ import annotations

import asyncio
import linecache
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Struct

from streamlog.client import Producer, RecordMetadata
from streamlog.client.producer.threaded_producer import ThreadedProducer
from streamlog.errors import InvalidRequestError, ThrottledError, UnknownTopicOrPartitionError
from streamlog.model import Offset
from streamlog.ports import Clock, Network, Random, Workers
from streamlog.records import Record

from ..stage import Stage, lines, play

PARTITIONS = 3
T0 = 1_700_000_000_000


class Given(NamedTuple):
    """One record, and how many milliseconds pass before it."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None
    after_ms: int = 0


KEYS = st.sampled_from([None, None, None, b"", b"a", b"b", b"longer key"])
RECORDS = st.builds(
    Given,
    st.one_of(st.none(), st.binary(max_size=40), st.just(b"v" * 500)),
    KEYS,
    st.sampled_from([(), (), (), (("h", b"1"),), (("h", None), ("i", b""))]),
    st.sampled_from([None, None, None, 0, PARTITIONS - 1]),
    st.sampled_from([None, None, None, 0, T0, T0 + 1, 1 << 62]),
    st.sampled_from([0, 0, 0, 0, 1, 70]),
)


class SetClock:
    """Stands still between the records of a test."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.now_ms = T0

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def wall_ms(self) -> int:
        return self.now_ms

    def wall_s(self) -> float:
        return self.now_ms / 1000


class PortsOfTest(Struct):
    network: Network
    clock: SetClock
    random: Random
    workers: Workers


class Front:
    """A Producer without its thread: `send` is Producer's own."""

    def __init__(self, client: ThreadedProducer) -> None:
        self._client = client
        self._value_ways, self._keyed_ways = client.value_ways, client.keyed_ways

    send = Producer.send


@asynccontextmanager
async def front(stage: Stage, **settings: object) -> Any:
    clock = SetClock(stage.ports.clock)
    ports = PortsOfTest(stage.ports.network, clock, stage.ports.random, stage.ports.workers)
    config = {"bootstrap.servers": stage.cluster.bootstrap, **settings}
    async with ThreadedProducer(config, None, None, ports=ports, wall_s=clock.wall_s) as client:
        await client.partition_count("t")
        yield Front(client), client, clock


Written = tuple[list[list[Record]], list[RecordMetadata]]


def written(records: list[Given], *, short: bool, batch_bytes: int) -> Written:
    """The logs of the partitions, and what the futures returned."""
    found: list[Written] = []

    async def story(stage: Stage) -> None:
        logs = stage.cluster.create("t", PARTITIONS)
        async with front(stage, **{"batch.size": batch_bytes}) as (producer, client, clock):
            sent = []
            for one in records:
                clock.now_ms += one.after_ms
                send = producer.send if short else client.send
                sent.append(
                    send(
                        "t",
                        one.value,
                        key=one.key,
                        headers=one.headers,
                        partition=one.partition,
                        timestamp_ms=one.timestamp_ms,
                    )
                )
            places = [await one for one in sent]
        found.append(([log.records() for log in logs], places))

    play(story, seeds=1)
    return found[0]


@given(st.lists(RECORDS, max_size=30), st.sampled_from([200, 700, 16_384]))
@example([Given(b"1"), Given(b"2"), Given(b"3", headers=(("h", b""),)), Given(b"4"), Given(b"5", b"a")], 16_384)
@example([Given(b"1", b"a"), Given(b"2", b"a"), Given(b"3", partition=0, timestamp_ms=T0), Given(b"4", b"a")], 16_384)
@example([Given(b"1", timestamp_ms=5), Given(b"2"), Given(b"3"), Given(b"4", after_ms=1), Given(b"5")], 16_384)
def test_a_record_is_the_same_by_each_way(records: list[Given], batch_bytes: int) -> None:
    logs, places = written(records, short=True, batch_bytes=batch_bytes)
    assert (logs, places) == written(records, short=False, batch_bytes=batch_bytes)
    for one, place in zip(records, places, strict=True):
        [record] = [each for each in logs[place.partition] if each.offset == place.offset]
        assert (record.value, record.key, record.headers) == (one.value, one.key, one.headers)
        assert record.timestamp == place.timestamp_ms
        assert one.timestamp_ms in (None, record.timestamp)


def test_the_short_ways_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other tests would pass without them."""
    general: Counter[bytes | None] = Counter()
    send_here = ThreadedProducer.send_here

    def counting(self: ThreadedProducer, topic: str, value: bytes | None, key: bytes | None, *rest: Any) -> Any:
        general[key] += 1
        return send_here(self, topic, value, key, *rest)

    monkeypatch.setattr(ThreadedProducer, "send_here", counting)

    async def story(stage: Stage) -> None:
        stage.cluster.create("t", PARTITIONS)
        async with front(stage) as (producer, _, _):
            for _ in range(100):
                producer.send("t", b"x")
            for _ in range(100):
                producer.send("t", b"x", key=b"k")

    play(story, seeds=1)
    assert general == {None: 1, b"k": 1}


def test_a_bad_record_is_refused_by_the_short_ways_too() -> None:
    async def story(stage: Stage) -> None:
        stage.cluster.create("t", 1)
        async with front(stage) as (producer, _, _):
            producer.send("t", b"1")
            producer.send("t", b"2", key=b"k")
            for bad in ({"value": "text"}, {"value": bytearray(b"x")}, {"key": "k"}, {"key": bytearray(b"k")}):
                with pytest.raises(InvalidRequestError, match="must be bytes or None"):
                    producer.send(**{"topic": "t", "value": b"x", **bad})
            for topic in (["t"], None, ""):
                with pytest.raises(InvalidRequestError):
                    producer.send(topic, b"x")
            producer.send("t", b"3")
        assert [value for log in stage.cluster.logs.values() for value in log.values()] == [b"1", b"2", b"3"]

    play(story, seeds=1)


def test_no_batch_and_no_buffer_gets_larger_than_allowed() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        settings = {"batch.size": 1000, "buffer.memory": 10_000, "max.request.size": 5_000}
        async with front(stage, **settings) as (producer, client, _):
            with pytest.raises(ThrottledError):  # the simulation does not wait
                [producer.send("t", b"x" * 100) for _ in range(100)]
            assert client._buffer.used_bytes == 10_000
        assert len(log.values()) == 10 * 8
        assert all(len(batch.data) <= 1000 for batch in log.batches)

    play(story, seeds=1)


def test_a_topic_that_is_deleted_and_created_again() -> None:
    async def story(stage: Stage) -> None:
        stage.cluster.create("t", 1)
        async with front(stage) as (producer, client, _):
            await producer.send("t", b"1")
            await producer.send("t", b"2", key=b"k")
            stage.cluster.delete("t")
            await asyncio.sleep(5)  # virtual time
            assert client.value_ways["t"](b"lost") is None
            assert client.keyed_ways["t"](b"lost", b"k") is None
            [log] = stage.cluster.create("t", 1)
            while True:
                try:
                    await producer.send("t", b"3")
                    break
                except UnknownTopicOrPartitionError:
                    await asyncio.sleep(0.1)
            await producer.send("t", b"4", key=b"k")
            futures = [producer.send("t", b"5"), producer.send("t", b"6", key=b"k")]
            assert [(await one).offset for one in futures] == [2, 3]
        assert log.values()[:4] == [b"3", b"4", b"5", b"6"]

    play(story, seeds=2)


class _InterruptedError(BaseException):
    pass


def interrupted_sends(send: Any, count: int) -> Iterator[bytes]:
    """Values whose `send` returned; each call is interrupted at another line, as by Ctrl-C; but for
    those before which an interpreter does not look for signals."""
    for number, value in enumerate(lines(count)):
        left = number * 7 % 90

        def trace(frame: Any, event: str, _: object) -> Any:
            nonlocal left
            if not frame.f_code.co_filename.endswith(("/short_ways.py", "/accumulator.py", "/producer_batch.py")):
                return None
            line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
            if event == "line" and "release()" not in line and "acquire()" not in line:
                left -= 1
                if left == 0:
                    raise _InterruptedError
            return trace

        sys.settrace(trace)
        try:
            send(value)
        except _InterruptedError:
            continue
        finally:
            sys.settrace(None)
        yield value


def is_free(client: ThreadedProducer) -> bool:
    """Whether another thread can acquire the guard."""
    free: list[bool] = []

    def acquire() -> None:
        free.append(client._lock.acquire(timeout=5))
        if free[0]:
            client._lock.release()

    other = threading.Thread(target=acquire)
    other.start()
    other.join()
    return free[0]


@pytest.mark.parametrize("key", [None, b"k"])
def test_an_interrupt_leaves_no_half_of_a_record_and_no_held_guard(key: bytes | None) -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t", 1)
        async with front(stage, **{"batch.size": 400}) as (producer, client, _):
            producer.send("t", b"first", key=key)
            returned = list(interrupted_sends(lambda value: producer.send("t", value, key=key), 800))
            assert 100 < len(returned) < 800
            assert is_free(client)
            producer.send("t", b"last", key=key)
            await asyncio.wait_for(client.flush(), 60)
        records = log.records()
        assert {record.key for record in records} == {key}
        values = [record.value for record in records]
        numbers = [lines(800).index(value) for value in values[1:-1] if value is not None]
        assert all(one < after for one, after in pairwise(numbers))  # in order, none twice
        assert set(returned) <= set(values)
        assert client._buffer.used_bytes == 0

    play(story, seeds=1)


def test_a_batch_that_was_opened_and_got_no_record_is_done() -> None:
    async def story(stage: Stage) -> None:
        stage.cluster.create("t", 1)
        async with front(stage) as (_, client, _):
            table = client._tables["t"]
            client._next_batch(table, 0, 100)
            await asyncio.wait_for(client.flush(), 5)
            assert client._buffer.used_bytes == 0
            assert await client.send("t", b"x") == RecordMetadata("t", 0, Offset(0), T0)

    play(story, seeds=1)
