"""A consumer that is closed while it is being closed: by another task, another thread, or its own listener."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from streamlog.client import AsyncConsumer, Consumer

from ..groups.group_stage import GroupStage, perform

pytestmark = pytest.mark.timeout(120)


async def joined(stage: GroupStage, on_revoked: Callable[[Any], object]) -> AsyncConsumer:
    await stage.write(1)
    consumer = await stage.consumer(stage.ports).start()
    consumer.subscribe(["t"], on_revoked=on_revoked)
    while not await consumer.poll(timeout_s=1):
        pass
    return consumer


def play(story: Callable[[GroupStage], Coroutine[Any, Any, None]]) -> None:
    async def on_the_client(stage: GroupStage) -> None:
        await stage.client.spawn(story(stage))

    perform(on_the_client)


def test_a_second_close_calls_no_listener_and_waits_for_the_first() -> None:
    async def story(stage: GroupStage) -> None:
        calls: list[str] = []

        async def revoked(_: object) -> None:
            calls.append("begins")
            await asyncio.sleep(0.5)
            calls.append("ends")

        consumer = await joined(stage, revoked)
        first = asyncio.ensure_future(consumer.close())
        await asyncio.sleep(0.1)
        async with asyncio.timeout(10):
            await consumer.close()
        assert calls == ["begins", "ends"]
        assert not consumer._reader.is_running
        await first
        await consumer.close()
        assert calls == ["begins", "ends"]

    play(story)


def test_a_second_close_shortens_the_first() -> None:
    async def story(stage: GroupStage) -> None:
        async def never(_: object) -> None:
            await asyncio.Event().wait()

        consumer = await joined(stage, never)
        first = asyncio.ensure_future(consumer.close())
        await asyncio.sleep(0.1)
        begin = stage.nodes.world.loop.now
        await consumer.close(timeout_s=1)
        await first
        assert stage.nodes.world.loop.now - begin < 1.1

    play(story)


@pytest.mark.parametrize("in_a_task", [False, True])
def test_a_listener_may_close(in_a_task: bool) -> None:
    async def story(stage: GroupStage) -> None:
        calls: list[str] = []

        async def revoked(_: object) -> None:
            calls.append("begins")
            await (asyncio.ensure_future(consumer.close()) if in_a_task else consumer.close())
            calls.append("ends")

        consumer = await joined(stage, revoked)
        begin = stage.nodes.world.loop.now
        await consumer.close()
        assert calls == ["begins", "ends"]
        assert stage.nodes.world.loop.now - begin < 1

    play(story)


@pytest.fixture
def group_consumer(streamlog_cluster: Any) -> Consumer:
    """With a group."""
    streamlog_cluster.create_topic("t")
    return Consumer(bootstrap_servers=streamlog_cluster.bootstrap_servers, group_id="g")


def test_a_listener_of_the_synchronous_consumer_may_close(group_consumer: Consumer) -> None:
    calls: list[str] = []
    assigned = threading.Event()

    def revoked(_: object) -> None:
        calls.append("begins")
        group_consumer.close()
        calls.append("ends")

    group_consumer.subscribe(["t"], on_assigned=lambda _: assigned.set(), on_revoked=revoked)
    while not assigned.is_set():
        group_consumer.poll(timeout_s=1)
    group_consumer.close(timeout_s=20)
    assert calls == ["begins", "ends"]
    assert group_consumer._thread.closed


def test_a_listener_of_a_poll_may_close(group_consumer: Consumer) -> None:
    calls: list[str] = []

    def assigned(_: object) -> None:
        group_consumer.close(timeout_s=20)
        calls.append("closed")

    def revoked(_: object) -> None:
        group_consumer.close()
        calls.append("revoked")

    group_consumer.subscribe(["t"], on_assigned=assigned, on_revoked=revoked)
    with pytest.raises(Exception, match="closed"):
        group_consumer.poll(timeout_s=60)
    assert calls == ["revoked", "closed"]


def test_a_close_in_another_thread_waits_and_calls_no_listener(group_consumer: Consumer) -> None:
    calls: list[str] = []
    begun, go_on, assigned = threading.Event(), threading.Event(), threading.Event()

    def revoked(_: object) -> None:
        calls.append("begins")
        begun.set()
        go_on.wait(20)
        calls.append("ends")

    group_consumer.subscribe(["t"], on_assigned=lambda _: assigned.set(), on_revoked=revoked)
    while not assigned.is_set():
        group_consumer.poll(timeout_s=1)
    first = threading.Thread(target=group_consumer.close)
    first.start()
    begun.wait(20)
    second = threading.Thread(target=group_consumer.close)
    second.start()
    go_on.set()
    second.join()
    assert calls == ["begins", "ends"]
    assert group_consumer._thread.closed
    first.join()
