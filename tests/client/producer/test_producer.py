"""The producer against a fake cluster: what it sends, and what it does when the cluster is in trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from streamlog.client.connection.metadata import Leader, MetadataCache
from streamlog.client.producer.async_producer import AsyncProducer
from streamlog.errors import (
    ClientClosedError,
    InvalidConfigError,
    InvalidRequestError,
    MessageTooLargeError,
    RequestTimedOutError,
    ThrottledError,
    UnknownTopicOrPartitionError,
)
from streamlog.model import PartitionId, TopicPartition

from ..stage import Stage, lines, play


def test_a_record_is_acknowledged_with_its_place() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        async with stage.producer() as producer:
            first = await producer.send("t", b"one", key=b"k", headers=(("h", b"v"),), timestamp_ms=7)
            second = await producer.send("t", None)
        assert (first.topic, first.partition, first.offset, first.timestamp_ms) == ("t", 0, 0, 7)
        assert second.offset == 1
        one, two = log.records()
        assert (one.key, one.value, one.headers, one.timestamp) == (b"k", b"one", (("h", b"v"),), 7)
        assert (two.key, two.value, two.headers) == (None, None, ())
        assert two.timestamp == second.timestamp_ms > 7

    play(story)


def test_records_share_batches_and_one_message() -> None:
    async def story(stage: Stage) -> None:
        logs = stage.cluster.create("t", 3)
        async with stage.producer(linger_ms=20) as producer:
            await producer.partition_count("t")
            sent = [producer.send("t", b"x" * 100, partition=number % 3) for number in range(300)]
            for future in sent:
                await future
        assert [len(log.batches) for log in logs] == [1, 1, 1]
        assert stage.cluster.requests == 3  # one a leader

    play(story)


def test_records_sent_before_the_topic_is_known_keep_their_order() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        async with stage.producer() as producer:
            sent = [producer.send("t", line) for line in lines(50)]
            assert [(await future).offset for future in sent] == list(range(50))
        assert log.values() == lines(50)

    play(story)


def test_flush_does_not_wait_for_the_linger() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        async with stage.producer(linger_ms=60_000, delivery_timeout_ms=200_000) as producer:
            begin = stage.loop.now
            future = producer.send("t", b"x")
            await producer.flush()
            assert future.done()
            assert future.result().offset == 0
            assert stage.loop.now - begin < 5
            producer.send("t", b"y")
        assert log.values() == [b"x", b"y"]

    play(story)


def test_send_many_gives_the_ranges() -> None:
    async def story(stage: Stage) -> None:
        logs = stage.cluster.create("t", 4)
        async with stage.producer() as producer:
            keyless = await (await producer.send_many("t", lines(3000)))
            keys = [b"%d" % (number % 50) for number in range(3000)]
            keyed = await (await producer.send_many("t", lines(3000), keys=keys))
        assert sum(part.record_count for part in keyless) == sum(part.record_count for part in keyed) == 3000
        assert sum(len(log.records()) for log in logs) == 6000
        by_key: dict[bytes | None, list[bytes | None]] = {}
        for log in logs:
            for record in log.records():
                if record.key is not None:
                    by_key.setdefault(record.key, []).append(record.value)
        assert len(by_key) == 50
        for key, values in by_key.items():
            assert values == [line for line, its in zip(lines(3000), keys, strict=True) if its == key]

    play(story, seeds=2)


async def send_all(stage: Stage, count: int, **settings: object) -> None:
    """Lines at random moments, each of which must be acknowledged."""
    async with stage.producer(**settings) as producer:
        futures = []
        for line in lines(count):
            futures.append(producer.send("t", line, partition=0))
            if stage.dice.random() < 0.2:
                await asyncio.sleep(stage.dice.uniform(0, 0.01))
        for future in futures:
            await future


def test_a_leader_that_moves_is_followed() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        sending = asyncio.ensure_future(send_all(stage, 2000, batch_size=300, linger_ms=1))
        for leader in (1, 2, 0, 2, 1):
            await asyncio.sleep(0.2)
            stage.cluster.move(log, leader, announce=stage.dice.random() < 0.5)
        await sending
        assert log.values() == lines(2000)

    play(story, seeds=10)


def test_a_change_of_some_leaders_costs_nothing_for_the_other_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """They change in many reports: with work for each partition in each of them a fail-over of 2,000 took 4 s."""
    looked_up: list[TopicPartition] = []
    leader = MetadataCache.leader

    def counted(self: MetadataCache, partition: TopicPartition) -> Leader | None:
        looked_up.append(partition)
        return leader(self, partition)

    monkeypatch.setattr(MetadataCache, "leader", counted)
    partitions, moves = 200, 100

    async def story(stage: Stage) -> None:
        logs = stage.cluster.create("t", partitions)
        async with stage.producer() as producer, stage.consumer(auto_offset_reset="earliest") as consumer:
            await asyncio.gather(*(producer.send("t", b"x", partition=one) for one in range(partitions)))
            await consumer.assign([("t", one) for one in range(partitions)])
            while len(await consumer.poll(partitions, timeout_s=1.0)):
                pass
            looked_up.clear()
            for number in range(moves):
                stage.cluster.move(logs[number], (logs[number].leader + 1) % 3)
                await asyncio.sleep(0.1)
            assert {one.partition for one in looked_up} >= set(range(moves))
            others = [one for one in looked_up if one.partition >= moves]
            # NOT_LEADER doubts the watch, and the next one begins with a whole report: at most each second.
            assert len(others) <= (partitions - moves) * moves * 0.1 * 2
            for number in range(partitions):
                await producer.send("t", b"y", partition=number)
            assert all(log.values() == [b"x", b"y"] for log in logs)

    play(story, seeds=2)


def test_a_leader_that_dies_is_replaced() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        sending = asyncio.ensure_future(send_all(stage, 2000, batch_size=300, linger_ms=1))
        await asyncio.sleep(0.3)
        host = stage.world.host("b0")
        if stage.dice.random() < 0.5:
            host.crash()
        else:
            host.power_cut()
        await asyncio.sleep(0.3)
        stage.cluster.move(log, 1)
        began = stage.loop.now
        end = log.end
        while log.end == end:  # noqa: ASYNC110  virtual time
            await asyncio.sleep(0.01)
        assert stage.loop.now - began < 1.5
        await sending
        assert log.values() == lines(2000)

    play(story, seeds=10)


def test_broken_streams_neither_double_nor_reorder() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        stage.cluster.delay_s = lambda: stage.dice.choice((0, 0, 0.02, 0.2))
        sending = asyncio.ensure_future(send_all(stage, 2000, batch_size=300, linger_ms=1))
        while not sending.done():
            await asyncio.sleep(stage.dice.uniform(0.05, 0.3))
            stage.reset()
        await sending
        assert log.values() == lines(2000)

    play(story, seeds=10)


def test_refusals_before_and_after_the_append_neither_double_nor_reorder() -> None:
    from streamlog.errors import NotEnoughReplicasAfterAppendError, NotEnoughReplicasError, OutcomeUnknownError

    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        dice = stage.dice
        stage.cluster.before_append = lambda p: NotEnoughReplicasError("too few") if dice.random() < 0.2 else None
        stage.cluster.after_append = lambda p: (
            dice.choice((NotEnoughReplicasAfterAppendError("fewer"), OutcomeUnknownError("late")))
            if dice.random() < 0.2
            else None
        )
        await send_all(stage, 1000, batch_size=300, linger_ms=1, retry_backoff_ms=5, retry_backoff_max_ms=20)
        assert log.values() == lines(1000)

    play(story, seeds=10)


def test_everything_at_once() -> None:
    from streamlog.errors import NotEnoughReplicasAfterAppendError, NotEnoughReplicasError

    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        dice = stage.dice
        stage.cluster.before_append = lambda p: NotEnoughReplicasError("too few") if dice.random() < 0.1 else None
        stage.cluster.after_append = lambda p: (
            NotEnoughReplicasAfterAppendError("fewer") if dice.random() < 0.1 else None
        )
        stage.cluster.delay_s = lambda: dice.choice((0, 0, 0.01, 0.1))
        sending = asyncio.ensure_future(send_all(stage, 1500, batch_size=200, linger_ms=1, retry_backoff_ms=10))
        while not sending.done():
            await asyncio.sleep(dice.uniform(0.05, 0.3))
            match dice.randrange(3):
                case 0:
                    stage.reset()
                case 1:
                    stage.cluster.move(log, dice.randrange(3), announce=dice.random() < 0.5)
                case 2:
                    if log.leader == 1:
                        stage.cluster.move(log, 0)
                    stage.world.host("b1").crash()
                    stage.cluster.restart(1)
        await sending
        assert log.values() == lines(1500)

    play(story, seeds=20)


def test_a_leader_that_lost_the_producers_state_begins_a_new_epoch() -> None:
    from streamlog.errors import UnknownProducerIdError

    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        async with stage.producer(batch_size=200, linger_ms=0) as producer:
            for line in lines(20):
                await producer.send("t", line)
            refusals = [UnknownProducerIdError("who?")]
            stage.cluster.before_append = lambda p: refusals.pop() if refusals else None
            for line in lines(40)[20:]:
                await producer.send("t", line)
        assert log.values() == lines(40)
        epochs = {producer.epoch for producer in log.producers}
        assert epochs == {1}

    play(story)


def test_an_unclean_election_costs_what_was_lost_and_no_more() -> None:
    """What was acknowledged and lost is the cluster's to answer for; what comes after must get on, in order."""

    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        async with stage.producer(batch_size=200, linger_ms=0) as producer:
            for line in lines(20):
                await producer.send("t", line)
            log.truncate(10)
            stage.cluster.move(log, 1)
            for line in lines(40)[20:]:
                await producer.send("t", line)
        assert log.values() == lines(10) + lines(40)[20:]

    play(story)


def test_a_batch_too_large_for_the_topic_is_sent_in_halves() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        partition = next(iter(stage.cluster.logs))
        limit = 1000

        append = log.append

        def bounded(data: bytes) -> int:
            if len(data) > limit:
                raise MessageTooLargeError(f"{len(data)} bytes", limit=limit)
            return append(data)

        log.append = bounded  # type: ignore[method-assign]  # the topic's max.message.bytes
        async with stage.producer(batch_size=16_000, linger_ms=50) as producer:
            sent = [producer.send("t", line) for line in lines(500)]
            too_large = producer.send("t", b"x" * 2000)
            after = producer.send("t", b"after")
            assert [(await future).offset for future in sent] == list(range(500))
            with pytest.raises(MessageTooLargeError):
                await too_large
            assert (await after).offset == 500
        assert log.values() == [*lines(500), b"after"]
        assert partition.topic == "t"

    play(story)


def test_delivery_timeout_says_what_it_waited_for() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        async with stage.producer(delivery_timeout_ms=3000, request_timeout_ms=1000, linger_ms=0) as producer:
            await producer.send("t", b"fine")
            stage.cluster.move(log, -1)
            begin = stage.loop.now
            future = producer.send("t", b"late")
            with pytest.raises(RequestTimedOutError, match=r"t-0 were not acknowledged within 3 s .*no known leader"):
                await future
            assert 2.9 < stage.loop.now - begin < 3.5
            stage.cluster.move(log, 1)
            await producer.send("t", b"again")
        assert log.values() == [b"fine", b"again"]

    play(story)


def test_unknown_topics_and_partitions_are_reported_soon() -> None:
    async def story(stage: Stage) -> None:
        stage.cluster.create("t", 2)
        async with stage.producer() as producer:
            begin = stage.loop.now
            with pytest.raises(UnknownTopicOrPartitionError, match="no topic nope"):
                await producer.send("nope", b"x")
            assert stage.loop.now - begin < 3
            await producer.send("t", b"x")
            with pytest.raises(UnknownTopicOrPartitionError, match="t has no partition 2"):
                producer.send("t", b"x", partition=2)

    play(story)


def test_a_topic_made_a_moment_later_is_found() -> None:
    async def story(stage: Stage) -> None:
        async with stage.producer() as producer:
            future = producer.send("t", b"x")
            await asyncio.sleep(0.3)
            stage.cluster.create("t")
            assert (await future).offset == 0

    play(story)


def test_a_topic_that_grows_gets_records_in_its_new_partitions() -> None:
    async def story(stage: Stage) -> None:
        from ..fake_broker import FakeLog

        stage.cluster.create("t")
        async with stage.producer() as producer:
            await producer.send("t", b"x")
            stage.cluster.logs[TopicPartition("t", PartitionId(1))] = FakeLog(leader=1)
            stage.cluster.change()
            await asyncio.sleep(1)
            assert (await producer.send("t", b"y", partition=1)).partition == 1

    play(story)


def test_a_full_buffer_is_refused_and_waited_for() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        async with stage.producer(
            buffer_memory=20_000, max_request_size=10_000, batch_size=1000, max_block_ms=2000
        ) as producer:
            await producer.partition_count("t")
            stage.cluster.move(log, -1)
            await asyncio.sleep(0.5)
            while not producer.is_full:
                producer.send("t", b"x" * 900)
            with pytest.raises(ThrottledError, match=r"buffer\.memory"):
                producer.send("t", b"x" * 900)
            with pytest.raises(RequestTimedOutError, match=r"bytes free for 2 s"):
                await producer.wait_until_room()
            stage.cluster.move(log, 1)
            await producer.wait_until_room()
            await (await producer.send_many("t", [b"y" * 100] * 1000))
        assert log.values().count(b"y" * 100) == 1000

    play(story)


class ContendedGuard(AbstractContextManager[None]):
    """Another thread holds it before."""

    def __init__(self) -> None:
        self.other: Callable[[], object] = lambda: None

    def __enter__(self) -> None:
        other, self.other = self.other, lambda: None
        other()

    def __exit__(self, *error: object) -> None:
        pass


def test_send_many_waits_where_another_thread_takes_the_space() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        guard = ContendedGuard()
        sizes = {"buffer.memory": 4000, "max.request.size": 2000, "batch.size": 1000}
        config = {"bootstrap.servers": stage.cluster.bootstrap, **sizes}
        async with AsyncProducer(config, ports=stage.ports, guard=guard) as producer:
            await producer.partition_count("t")

            def fill() -> None:
                for _ in range(4):
                    producer.send("t", b"x" * 900, partition=0)

            guard.other = fill
            sent = await (await producer.send_many("t", [b"y" * 100] * 20, partition=0))
            assert sum(part.record_count for part in sent) == 20
        assert [value[:1] for value in log.values() if value] == [b"x"] * 4 + [b"y"] * 20

    play(story, seeds=1)


@pytest.mark.parametrize("known", [False, True], ids=["topic-unknown-yet", "topic-known"])
def test_enqueue_waits_while_the_buffer_is_full(*, known: bool) -> None:
    """What it returns is awaited later, so the buffer is all that bounds the loop."""

    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        async with stage.producer(
            buffer_memory=20_000, max_request_size=10_000, batch_size=1000, max_block_ms=60_000
        ) as producer:
            if known:
                await producer.partition_count("t")
            sent = [
                await producer.enqueue("t", b"x" * 300, headers=(pair for pair in [("n", b"%d" % number)]))
                for number in range(300)
            ]
            assert [(await one).offset for one in sent] == list(range(300))
        assert [record.headers for record in log.records()] == [(("n", b"%d" % number),) for number in range(300)]

    play(story)


def test_enqueue_waits_for_max_block_ms_at_most() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        async with stage.producer(
            buffer_memory=20_000, max_request_size=10_000, batch_size=1000, max_block_ms=2000
        ) as producer:
            await producer.partition_count("t")
            stage.cluster.move(log, -1)
            await asyncio.sleep(0.5)
            while not producer.is_full:
                await producer.enqueue("t", b"x" * 900)
            begin = stage.loop.now
            with pytest.raises(RequestTimedOutError, match=r"buffer\.memory"):
                await producer.enqueue("t", b"x" * 900)
            assert 1.9 < stage.loop.now - begin < 2.5
            stage.cluster.move(log, 1)
            assert (await (await producer.enqueue("t", b"last"))).offset == len(log.values()) - 1
        with pytest.raises(ClientClosedError):
            await producer.enqueue("t", b"late")

    play(story)


def test_acks_none_does_not_wait_for_answers() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        async with stage.producer(acks="0") as producer:
            for line in lines(10):
                assert (await producer.send("t", line)).offset == -1
            await asyncio.sleep(1)
            assert log.values() == lines(10)
            stage.cluster.move(log, 2, announce=False)
            await producer.send("t", b"lost")
            await asyncio.sleep(1)
            await producer.send("t", b"found")
            await asyncio.sleep(1)
        assert log.values() == [*lines(10), b"found"]

    play(story)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compression(codec: str) -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        async with stage.producer(compression_type=codec, batch_size=200_000, linger_ms=20) as producer:
            await (await producer.send_many("t", lines(20_000)))
        assert log.values() == lines(20_000)
        assert sum(len(batch.data) for batch in log.batches) < 150_000

    play(story, seeds=1)


def test_flush_raises_an_error_that_no_future_raised() -> None:
    async def story(stage: Stage) -> None:
        stage.cluster.create("t")
        async with stage.producer() as producer:
            producer.send("nope", b"x")
            with pytest.raises(UnknownTopicOrPartitionError):
                await producer.flush()
            await producer.flush()

    play(story, seeds=1)


def test_values_are_bytes() -> None:
    async def story(stage: Stage) -> None:
        stage.cluster.create("t")
        async with stage.producer(max_request_size=2000) as producer:
            await producer.partition_count("t")
            with pytest.raises(InvalidRequestError, match="not str"):
                producer.send("t", "text")
            with pytest.raises(InvalidRequestError, match="not str"):
                producer.send("t", b"", key="text")
            with pytest.raises(MessageTooLargeError, match=r"max\.request\.size, which is 2000"):
                producer.send("t", b"x" * 3000)

    play(story, seeds=1)


def test_settings_are_checked() -> None:
    from streamlog.client.producer.async_producer import AsyncProducer

    with pytest.raises(InvalidConfigError, match=r"linger\.ms"):
        AsyncProducer({"linger.ms": "soon"})
    with pytest.raises(InvalidConfigError, match=r"transactional\.id"):
        AsyncProducer(transactional_id="x", acks="1")
    with pytest.warns(UserWarning, match=r"did you mean linger\.ms"):
        AsyncProducer(lingr_ms=5)
