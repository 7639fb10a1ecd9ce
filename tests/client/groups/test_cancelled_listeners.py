"""A poll that is cancelled while it calls a listener: the next one calls it again."""

from __future__ import annotations

import asyncio
from typing import Any

from streamlog.client import AsyncConsumer

from .group_stage import GroupStage, perform


async def record(consumer: AsyncConsumer) -> object:
    """By polls of half a second, each of which is cancelled."""
    while True:
        try:
            async with asyncio.timeout(0.5):
                found = await consumer.poll(1, timeout_s=None)
        except TimeoutError:
            continue
        return found


def test_on_assigned_has_ended_before_a_record_is_returned() -> None:
    async def story(stage: GroupStage) -> None:
        await stage.write(1)
        calls: list[Any] = []
        takes_s = [1.0, 1.0, 0.0]

        async def assigned(partitions: Any) -> None:
            calls.append(partitions)
            await asyncio.sleep(takes_s[len(calls) - 1])
            calls.append("ended")
            for one in partitions:
                consumer.seek(one, 0)

        async with stage.consumer(stage.ports) as consumer:
            consumer.subscribe(["t"], on_assigned=assigned)
            assert await record(consumer)
            both = list(consumer.assignment)
            assert calls == [both, both, both, "ended"]
            assert await record(consumer)
            assert len(calls) == 4

    async def on_the_client(stage: GroupStage) -> None:
        await stage.client.spawn(story(stage))

    perform(on_the_client)


def test_partitions_that_were_given_up_meanwhile_are_not_assigned() -> None:
    async def story(stage: GroupStage) -> None:
        calls: list[str] = []

        async def assigned(_: object) -> None:
            calls.append("assigned")
            await asyncio.sleep(1)

        async with stage.consumer(stage.ports) as consumer:
            consumer.subscribe(["t"], on_assigned=assigned, on_revoked=lambda _: calls.append("revoked"))
            while not calls:
                polling = asyncio.ensure_future(consumer.poll(timeout_s=None))
                await asyncio.sleep(0.3)
                polling.cancel()
                await asyncio.gather(polling, return_exceptions=True)
            await consumer.unsubscribe()
            await consumer.poll(timeout_s=1)
            assert calls == ["assigned", "revoked"]

    async def on_the_client(stage: GroupStage) -> None:
        await stage.client.spawn(story(stage))

    perform(on_the_client)
