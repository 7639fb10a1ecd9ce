"""What a node holds for its readers is bounded, shared, and taken from those who do not read."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from streamlog.api.pb import batches_pb2 as pb
from streamlog.errors import StreamlogError, ThrottledError
from streamlog.services.common.outgoing import FIRST_BYTES, MESSAGE_BYTES_MIN, OutgoingBytes, Reader
from streamlog.sim import SimLoop, run
from tests.services.world import BATCHES, Cluster, simulate

KIB = 1 << 10
MIB = 1 << 20


def in_virtual_time(story: Coroutine[Any, Any, None]) -> None:
    async def main(_: SimLoop) -> None:
        await story

    run(main, seed=0)


def test_a_grant_is_a_part_of_what_is_free() -> None:
    async def story() -> None:
        budget = OutgoingBytes(16 * MIB)
        sizes = [await budget.reader(copies=1).reserve(100 * MIB) for _ in range(12)]
        assert sizes[:2] == [4 * MIB, 3 * MIB]
        assert sizes == sorted(sizes, reverse=True)
        assert budget.used_bytes == sum(sizes) < budget.limit

    in_virtual_time(story())


def test_readers_beyond_the_bound_wait_in_line_and_get_the_same() -> None:
    async def story() -> None:
        budget = OutgoingBytes(4 * MESSAGE_BYTES_MIN)
        holding = [budget.reader(copies=1) for _ in range(4)]
        for reader in holding:
            await reader.reserve(MESSAGE_BYTES_MIN)
        order: list[int] = []

        async def wait(number: int) -> None:
            reader = budget.reader(copies=1)
            assert await reader.reserve(MIB) == MESSAGE_BYTES_MIN
            order.append(number)
            await asyncio.sleep(0.01)
            reader.sent()

        waiting = [asyncio.ensure_future(wait(number)) for number in range(6)]
        await asyncio.sleep(0.1)
        assert (order, budget.waiting_count, budget.used_bytes) == ([], 6, budget.limit)
        holding[0].release()
        await asyncio.gather(*waiting)
        assert sorted(order) == list(range(6))
        assert budget.used_bytes == 3 * MESSAGE_BYTES_MIN

    in_virtual_time(story())


def test_one_who_waits_no_longer_leaves_the_line() -> None:
    async def story() -> None:
        budget = OutgoingBytes(MESSAGE_BYTES_MIN)
        first, second, third = (budget.reader(copies=1) for _ in range(3))
        await first.reserve(MIB)
        gone = asyncio.ensure_future(second.reserve(MIB))
        last = asyncio.ensure_future(third.reserve(MIB))
        await asyncio.sleep(0)
        gone.cancel()
        first.release()  # before the one that is cancelled has noticed it
        assert await last == MESSAGE_BYTES_MIN
        await asyncio.wait([gone])
        third.release()
        assert (budget.used_bytes, budget.waiting_count) == (0, 0)

    in_virtual_time(story())


def test_a_grant_that_comes_with_the_cancellation_is_given_back() -> None:
    async def story() -> None:
        budget = OutgoingBytes(MESSAGE_BYTES_MIN)
        first, second = budget.reader(copies=1), budget.reader(copies=1)
        await first.reserve(MIB)
        gone = asyncio.ensure_future(second.reserve(MIB))
        await asyncio.sleep(0)
        first.release()
        gone.cancel()
        await asyncio.wait([gone])
        assert budget.used_bytes == 0

    in_virtual_time(story())


def test_what_is_larger_than_the_bound_fits_alone() -> None:
    async def story() -> None:
        budget = OutgoingBytes(100)
        one, other = budget.reader(copies=1), budget.reader(copies=1)
        assert await one.reserve(1_000, 1_000) == 1_000
        assert one.try_keep(2_000)
        one.release()
        await other.reserve(10, 10)
        await one.reserve(10, 10)
        assert not one.try_keep(2_000)

    in_virtual_time(story())


def test_messages_grow_while_they_are_taken_promptly() -> None:
    async def story() -> None:
        reader = OutgoingBytes(64 * MIB).reader()
        sizes = []
        for wait_s in (0, 0, 0, 0, 3, 0):
            sizes.append(await reader.reserve_next(MIB))
            await asyncio.sleep(wait_s)
            reader.sent()
        assert [size // KIB for size in sizes] == [128, 256, 512, 1024, 1024, 128]

    in_virtual_time(story())


def test_readers_that_do_not_read_are_ended_when_others_wait_and_not_before() -> None:
    async def story() -> None:
        budget = OutgoingBytes(4 * MESSAGE_BYTES_MIN)
        ends: list[str] = []

        async def stuck(name: str) -> None:
            try:
                async with budget.reader(copies=1) as reader:
                    await reader.reserve(MESSAGE_BYTES_MIN)
                    await asyncio.Event().wait()
            except ThrottledError as error:
                ends.append(f"{name} {error.details['field']}")

        tasks = [asyncio.ensure_future(stuck(str(number))) for number in range(4)]
        await asyncio.sleep(60)
        assert ends == []  # no other reader waits
        reader = budget.reader(copies=1)
        assert await reader.reserve(MESSAGE_BYTES_MIN) == MESSAGE_BYTES_MIN
        assert len(ends) == 1  # no more than it takes
        assert ends[0].endswith("queued.max.response.bytes")
        assert budget.throttled_count == 1
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    in_virtual_time(story())


def test_a_reader_without_bytes_is_not_ended_for_those_who_wait() -> None:
    """A stream to another node whose last answer had no batches: the oldest of all, and there is nothing to free."""

    async def story() -> None:
        budget = OutgoingBytes(MESSAGE_BYTES_MIN)
        ends: list[str] = []
        idle, stuck = budget.reader(copies=1), budget.reader(copies=1)

        def end(name: str, reader: Reader) -> None:
            ends.append(name)
            reader.close()

        idle.on_end, stuck.on_end = partial(end, "idle", idle), partial(end, "stuck", stuck)
        assert await idle.reserve(0, 0) == 0
        await stuck.reserve(MESSAGE_BYTES_MIN)
        assert await budget.reader(copies=1).reserve(MESSAGE_BYTES_MIN) == MESSAGE_BYTES_MIN
        assert ends == ["stuck"]

    in_virtual_time(story())


def test_an_answer_without_batches_is_paced() -> None:
    async def story() -> None:
        idle = OutgoingBytes(MESSAGE_BYTES_MIN).reader()
        pace = idle.pace = Mock(active=True, bytes_max=1, wait=AsyncMock())
        assert await idle.reserve(0, 0) == 0
        pace.wait.assert_awaited_once()

    in_virtual_time(story())


def test_a_cancellation_from_outside_stays_one() -> None:
    async def story() -> None:
        budget = OutgoingBytes(MIB)

        async def work() -> None:
            async with budget.reader():
                await asyncio.Event().wait()

        task = asyncio.ensure_future(work())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    in_virtual_time(story())


def test_unread_streams_hold_little_and_give_way_with_an_error_that_says_why() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(queued_max_response_bytes=str(4 * MIB))
        await cluster.create()
        for _ in range(20):
            await cluster.produce(bytes(100_000))
        held: list[Any] = []
        streams = [cluster.stream(BATCHES + "FetchStream", pb.FetchStreamResponse) for _ in range(40)]
        for stream in streams:
            calls = await stream.__aenter__()
            await calls.send(pb.FetchStreamRequest(add=[pb.FetchPartition(topic="t")]))
            held.append(calls)
        await asyncio.sleep(30)
        request = pb.FetchRequest(partitions=[pb.FetchPartition(topic="t")])
        response = await cluster.call(BATCHES + "Fetch", request, pb.FetchResponse)
        assert len(response.partitions[0].batches) >= FIRST_BYTES // 2
        ends: list[str] = []
        for calls in held:
            try:
                for _ in range(2):
                    await asyncio.wait_for(calls.recv(), 5)
            except StreamlogError as error:
                ends.append(error.code)
        assert set(ends) == {"THROTTLED"}
        for stream in streams:
            await stream.__aexit__(None, None, None)

    simulate(story)
