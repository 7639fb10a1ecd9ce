"""Futures of sent records as those of concurrent.futures: `exception`; a failing callback affects nothing else."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from streamlog.client import Producer, RecordFuture, SentMany, SentRecord
from streamlog.client.producer.batches.producer_batch import ManyFuture
from streamlog.errors import MessageTooLargeError

from ..stage import Stage, play


def failing(_: object) -> None:
    raise KeyError("a defect of the caller's")


class _Raising:
    def partition(self, topic: str, key: bytes | None, value: bytes | None, partition_count: int) -> int:
        if value == b"raises":
            raise KeyError("no such customer")
        return 0


@pytest.mark.parametrize("known", [False, True], ids=["topic-unknown-yet", "topic-known"])
def test_a_callback_that_raises_is_logged_and_changes_nothing_else(
    caplog: pytest.LogCaptureFixture, *, known: bool
) -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        called: list[RecordFuture] = []
        async with stage.producer() as producer:
            if known:
                await producer.partition_count("t")
            first = producer.send("t", b"1")
            first.add_done_callback(failing)
            first.add_done_callback(called.append)
            second = producer.send("t", b"2")
            many = await producer.send_many("t", [b"3", b"4"])
            many.add_done_callback(failing)
            await many
            first.add_done_callback(failing)  # done already: called at once
            assert called == [first]
            assert [(await one).offset for one in (first, second, producer.send("t", b"5"))] == [0, 1, 4]
            await producer.flush()
        assert log.values() == [b"1", b"2", b"3", b"4", b"5"]

    with caplog.at_level(logging.ERROR):
        play(story, seeds=1)
    logged = [one for one in caplog.records if one.name == "streamlog.client.producer.batches.producer_batch"]
    assert len(logged) == 3
    assert all("done callback" in one.getMessage() for one in logged)
    assert [one.exc_info[0] for one in logged if one.exc_info] == [KeyError] * 3


def test_exception_is_what_result_raises() -> None:
    async def story(stage: Stage) -> None:
        stage.cluster.create("t")
        async with stage.producer(partitioner=_Raising()) as producer:
            refused = producer.send("t", b"raises")  # the topic is unknown yet: the partitioner is called later
            refused_seen: list[Exception | None] = []
            refused.add_done_callback(lambda one: refused_seen.append(one.exception()))
            await producer.send("t", b"0")
            sent = producer.send("t", b"1")
            many = await producer.send_many("t", [b"2", b"3"], partition=0)
            for future in (sent, many):
                with pytest.raises(asyncio.InvalidStateError):
                    future.exception()
                with pytest.raises(asyncio.InvalidStateError):
                    future.result()
            await sent
            await many
            assert (sent.exception(), many.exception()) == (None, None)
            assert [part.record_count for part in many.result()] == [2]
            with pytest.raises(KeyError):
                await refused
            assert [type(error) for error in refused_seen] == [KeyError]
            await producer.flush()  # `exception` has returned the error: it is not raised again

    play(story)


def test_an_error_of_the_cluster_is_returned() -> None:
    async def story(stage: Stage) -> None:
        stage.cluster.create("t")
        async with stage.producer() as producer:
            await producer.partition_count("t")
            sent = producer.send("t", b"x")
            many = ManyFuture([])
            assert many.exception() is None
            sent.promise.fail(MessageTooLargeError("larger than the topic allows"))  # type: ignore[attr-defined]
            assert isinstance(sent.exception(), MessageTooLargeError)
            with pytest.raises(MessageTooLargeError, match="larger than the topic allows"):
                sent.result()

    play(story, seeds=1)


@pytest.mark.timeout(180)
def test_without_an_event_loop(streamlog_cluster: Any, caplog: pytest.LogCaptureFixture) -> None:
    streamlog_cluster.create_topic("t")
    called: list[SentRecord | SentMany] = []
    with Producer(bootstrap_servers=streamlog_cluster.bootstrap_servers) as producer:
        sent = producer.send("t", b"1", partition=0)
        sent.add_done_callback(failing)
        sent.add_done_callback(called.append)
        many = producer.send_many("t", [b"2", b"3"], partition=0)
        many.add_done_callback(failing)
        many.add_done_callback(called.append)
        assert (sent.exception(60), many.exception(60)) == (None, None)
        assert producer.send("t", b"4", partition=0).result(60).offset == 3
    assert sorted(called, key=id) == sorted([sent, many], key=id)
    # The outcomes remain after the producer is closed.
    assert [part.record_count for part in many.result()] == [2]
    assert (sent.exception(), many.exception()) == (None, None)
    sent.add_done_callback(called.append)
    many.add_done_callback(called.append)
    assert called[2:] == [sent, many]
    assert len([one for one in caplog.records if "done callback" in one.getMessage()]) == 2
