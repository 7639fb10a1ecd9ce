"""ProduceStream over the simulated network, from raw messages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.pb import common_pb2
from streamlog.errors import StreamlogError
from tests.services.world import BATCHES, Calls, Cluster, simulate
from tests.storage.batches import batch

STREAM = BATCHES + "ProduceStream"


def message(number: int, *, partition: int = 0, topic: str = "t", **fields: Any) -> pb.ProduceStreamRequest:
    part = pb.PartitionBatches(topic=topic, partition=partition, correlation_id=number, batches=batch([b"%d" % number]))
    return pb.ProduceStreamRequest(partitions=[part], **fields)


async def results(calls: Calls[pb.ProduceStreamResponse], count: int) -> list[pb.ProduceResult]:
    found: list[pb.ProduceResult] = []
    while len(found) < count:
        response = await asyncio.wait_for(calls.recv(), 60)
        assert response is not None
        found += response.results
    return found


def test_pipelined_appends_are_answered_in_order() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(partitions=2)
        async with cluster.stream(STREAM, pb.ProduceStreamResponse) as calls:
            for number in range(100):
                await calls.send(message(number, partition=number % 2))
            got = await results(calls, 100)
            for index in range(2):
                own = [result for result in got if result.partition == index]
                assert [result.correlation_id for result in own] == list(range(index, 100, 2))
                assert [result.base_offset for result in own] == list(range(50))
            await calls.done_sending()
            assert await asyncio.wait_for(calls.recv(), 30) is None

    simulate(story)


def test_one_message_may_carry_many_batches_of_one_partition() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        many = pb.ProduceStreamRequest()
        for number in range(50):
            many.partitions.extend(message(number).partitions)
        async with cluster.stream(STREAM, pb.ProduceStreamResponse) as calls:
            await calls.send(many)
            assert [result.base_offset for result in await results(calls, 50)] == list(range(50))

    simulate(story)


def test_a_refusal_does_not_overtake_what_came_before_it() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(replicas=(1, 2))
        async with cluster.stream(STREAM, pb.ProduceStreamResponse) as calls:
            await calls.send(message(1))
            broken = message(2)
            broken.partitions[0].batches = broken.partitions[0].batches[:-1]
            await calls.send(broken)
            await calls.send(message(3, topic="missing"))
            (other,) = await results(calls, 1)
            assert (other.correlation_id, other.error.code) == (3, "UNKNOWN_TOPIC_OR_PARTITION")
            await cluster.follow(2, 1)
            first, second = await results(calls, 2)
            assert (first.correlation_id, first.base_offset) == (1, 0)
            assert (second.correlation_id, second.error.code) == (2, "CORRUPT_MESSAGE")

    simulate(story)


def test_acks_none_answers_failures_alone() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        async with cluster.stream(STREAM, pb.ProduceStreamResponse) as calls:
            await calls.send(message(1, acks=common_pb2.ACKS_NONE))
            await calls.send(message(2, topic="missing", acks=common_pb2.ACKS_NONE))
            await calls.send(message(3, acks=common_pb2.ACKS_LEADER))
            assert [result.correlation_id for result in await results(calls, 2)] == [2, 3]
            assert cluster.node.leader().log_end_offset == 2
            await calls.done_sending()
            assert await asyncio.wait_for(calls.recv(), 30) is None

    simulate(story)


def test_what_is_not_confirmed_in_time_is_unknown() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(replicas=(1, 2))
        async with cluster.stream(STREAM, pb.ProduceStreamResponse) as calls:
            begin = cluster.loop.now
            await calls.send(message(1, timeout_ms=5_000))
            await calls.send(message(2, timeout_ms=1_000))
            got = await results(calls, 2)
            assert [result.error.code for result in got] == ["OUTCOME_UNKNOWN"] * 2
            assert [result.correlation_id for result in got] == [1, 2]
            assert 5 <= cluster.loop.now - begin < 6
            await calls.send(message(3))
            await asyncio.sleep(1)
            await cluster.follow(2, 3)
            (third,) = await results(calls, 1)
            assert (third.correlation_id, third.base_offset) == (3, 2)

    simulate(story)


def test_half_closing_waits_for_the_missing_answers() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(replicas=(1, 2))
        async with cluster.stream(STREAM, pb.ProduceStreamResponse) as calls:
            await calls.send(message(1))
            await calls.done_sending()
            await asyncio.sleep(2)
            await cluster.follow(2, 1)
            assert [result.base_offset for result in await results(calls, 1)] == [0]
            assert await asyncio.wait_for(calls.recv(), 30) is None

    simulate(story)


def test_a_leader_that_goes_leaves_the_outcome_unknown() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(replicas=(1, 2))
        async with cluster.stream(STREAM, pb.ProduceStreamResponse) as calls:
            await calls.send(message(1))
            await asyncio.sleep(1)
            await cluster.move_leader(2)
            await calls.send(message(2))
            first, second = await results(calls, 2)
            assert (first.error.code, second.error.code) == ("OUTCOME_UNKNOWN", "NOT_LEADER")

    simulate(story)


def test_a_client_that_breaks_off_leaves_nothing_behind() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(replicas=(1, 2))
        async with cluster.stream(STREAM, pb.ProduceStreamResponse) as calls:
            await calls.send(message(1))
            await asyncio.sleep(1)
            assert cluster.node.leader().state.waiting == 1
        await asyncio.sleep(1)
        await cluster.follow(2, 1)
        assert cluster.node.leader().state.waiting == 0

    simulate(story)


@pytest.mark.parametrize(
    ("bad", "path"),
    [
        (pb.ProduceStreamRequest(), "partitions"),
        (message(1, timeout_ms=-4), "timeout_ms"),
        (message(1, topic="a/b"), "partitions[0].topic"),
    ],
)
def test_a_bad_message_ends_the_stream(bad: pb.ProduceStreamRequest, path: str) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        async with cluster.stream(STREAM, pb.ProduceStreamResponse) as calls:
            await calls.send(bad)
            with pytest.raises(StreamlogError) as caught:
                await results(calls, 1)
            assert caught.value.details["field"] == path

    simulate(story)
