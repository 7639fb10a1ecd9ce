"""Calls beyond a bound are refused by an error that names it; others are not affected."""

from __future__ import annotations

import asyncio

import pytest

from streamlog.api.pb import batches_pb2 as pb
from streamlog.broker.append.admission import QueuedBytes
from streamlog.errors import StreamlogError, ThrottledError
from tests.services.world import BATCHES, Cluster, simulate


def test_calls_beyond_the_bound_are_refused_until_others_end() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(max_concurrent_calls="16")
        await cluster.create()
        request = pb.FetchRequest(
            settings=pb.FetchSettings(wait_ms_max=20_000), partitions=[pb.FetchPartition(topic="t")]
        )

        async def poll() -> pb.FetchResponse:
            return await cluster.call(BATCHES + "Fetch", request, pb.FetchResponse)

        waiting = [asyncio.ensure_future(poll()) for _ in range(16)]
        await asyncio.sleep(1)
        with pytest.raises(StreamlogError) as caught:
            await poll()
        assert (caught.value.code, caught.value.details["limit"]) == ("THROTTLED", 16)
        for one in waiting:
            await one
        assert len((await poll()).partitions) == 1

    simulate(story)


def test_a_stream_that_breaks_gives_its_place_back() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(max_concurrent_calls="16")
        for _ in range(40):
            async with cluster.stream(BATCHES + "FetchStream", pb.FetchStreamResponse) as calls:
                await calls.send(pb.FetchStreamRequest())
                await asyncio.sleep(0.1)
        await cluster.create()

    simulate(story)


def test_queued_bytes_are_bounded_but_a_request_alone_fits() -> None:
    queued = QueuedBytes(100)
    with queued.holding(500):
        assert queued.queued == 500
        with pytest.raises(ThrottledError) as caught, queued.holding(1):
            pass
        assert caught.value.details["limit"] == 100
        assert queued.refused_count == 1
    with queued.holding(60), queued.holding(40):
        assert queued.queued == 100
    assert queued.queued == 0
