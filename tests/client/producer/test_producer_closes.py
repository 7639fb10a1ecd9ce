"""The end of a producer: what it waits for, for how long, and what it says of records that are not acknowledged."""

from __future__ import annotations

import asyncio

import pytest

from streamlog.errors import (
    ClientClosedError,
    RequestTimedOutError,
)

from ..stage import Stage, lines, play


def test_acks_none_closes_when_the_nodes_have_read() -> None:
    """The end of a stream takes back what is on its way (`streamlogctl produce --acks 0` on a busy machine)."""

    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        for line in lines(20):
            async with stage.producer(acks="0") as producer:
                producer.send("t", line)
        assert log.values() == lines(20)

    play(story)


def test_acks_none_closes_where_a_node_has_gone() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        producer = await stage.producer(acks="0").start()
        await producer.send("t", b"first")
        await asyncio.sleep(1)
        stage.world.host(f"b{log.leader}").crash()
        await producer.close()
        assert log.values() == [b"first"]

    play(story)


def test_a_later_close_waits_for_the_first() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        producer = await stage.producer(linger_ms=60_000, delivery_timeout_ms=200_000).start()
        producer.send("t", b"x")
        first = asyncio.ensure_future(producer.close())
        await asyncio.sleep(0)
        await producer.close()
        assert log.values() == [b"x"]
        await first
        await producer.close()

    play(story)


@pytest.mark.parametrize(("timeout_s", "takes_s"), [(0, 0), (1, 1), (50, 3), (None, 3)])
def test_a_later_close_shortens_the_first(timeout_s: float | None, takes_s: float) -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        producer = await stage.producer().start()
        await producer.send("t", b"x")
        stage.cluster.move(log, -1)
        await asyncio.sleep(0.5)
        unwritten = producer.send("t", b"y")
        begin = stage.loop.now
        first = asyncio.ensure_future(producer.close(timeout_s=4))
        await asyncio.sleep(1)
        await producer.close(timeout_s=timeout_s)
        assert stage.loop.now - begin == pytest.approx(1 + takes_s, abs=0.1)
        with pytest.raises(RequestTimedOutError, match="1 records were not acknowledged within"):
            await first
        with pytest.raises(ClientClosedError):
            await unwritten

    play(story)


def test_a_later_close_shortens_the_wait_of_acks_none() -> None:
    async def story(stage: Stage) -> None:
        stage.cluster.create("t")
        producer = await stage.producer(acks="0").start()
        await producer.send("t", b"first")
        never = asyncio.Event()
        for link in producer._delivery._links.values():
            link.finish = never.wait  # type: ignore[assignment,method-assign]
        begin = stage.loop.now
        first = asyncio.ensure_future(producer.close())
        await asyncio.sleep(1)
        await producer.close(timeout_s=1)
        await first
        assert stage.loop.now - begin == pytest.approx(2, abs=0.1)

    play(story)


def test_a_closed_producer_says_so() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        producer = stage.producer()
        with pytest.raises(ClientClosedError, match="not started"):
            producer.send("t", b"x")
        await producer.start()
        await producer.send("t", b"x")
        stage.cluster.move(log, -1)
        await asyncio.sleep(0.5)
        future = producer.send("t", b"y")
        with pytest.raises(RequestTimedOutError, match="not acknowledged within 1 s of the flush"):
            await producer.close(timeout_s=1)
        with pytest.raises(ClientClosedError):
            await future
        with pytest.raises(ClientClosedError):
            producer.send("t", b"x")
        await producer.close()

    play(story)


def test_records_that_fail_as_the_close_ends_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are due at one moment: none is left without an outcome, and none is written."""

    async def story(stage: Stage) -> None:
        stage.cluster.create("t")
        producer = await stage.producer().start()
        unwritten = producer.send("t", b"x")

        async def expired() -> None:
            producer._fail_all(RequestTimedOutError("delivery.timeout.ms has passed"))
            raise TimeoutError

        monkeypatch.setattr(producer._flushing, "settle", expired)
        with pytest.raises(RequestTimedOutError, match=r"delivery\.timeout\.ms has passed"):
            await producer.close(timeout_s=1)
        with pytest.raises(RequestTimedOutError):
            await unwritten

    play(story, seeds=1)


def test_an_error_of_the_programs_own_partitioner_is_raised_at_the_close() -> None:
    class Slow:
        def partition(self, *_: object) -> int:
            raise TimeoutError("no answer of its database")

    async def story(stage: Stage) -> None:
        stage.cluster.create("t")
        producer = await stage.producer(partitioner=Slow()).start()
        unwritten = producer.send("t", b"x")
        with pytest.raises(TimeoutError, match="no answer of its database"):
            await producer.close(timeout_s=5)
        with pytest.raises(TimeoutError):
            await unwritten

    play(story, seeds=1)
