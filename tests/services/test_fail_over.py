"""Records through whole nodes of which one dies: nothing acknowledged is lost, nothing is there twice, all in order."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from streamlog.api.pb import common_pb2
from streamlog.api.pb import records_pb2 as pb
from streamlog.errors import OutcomeUnknownError
from tests.node.calls import Calls, leader_of, until_done
from tests.node.kit import Nodes, run_story

COUNT = 60


async def publish_all(nodes: Nodes, at: int) -> list[int]:
    """Offsets of COUNT requests on one stream."""
    channel = nodes.world.host("client").ports.network.connect(f"n{at}:9092")
    async with channel.stream("/streamlog.v1.Records/PublishStream") as stream:

        async def send() -> None:
            for number in range(COUNT):
                records = [pb.PublishRecord(value=b"%d" % number)]
                await stream.send(pb.PublishStreamRequest(topic="t", records=records).SerializeToString())
                await asyncio.sleep(0.01)

        sending = asyncio.ensure_future(send())
        offsets: list[int] = []
        while len(offsets) < COUNT:
            data = await stream.recv()
            assert data is not None
            (result,) = pb.PublishStreamResponse.FromString(data).results
            assert not result.HasField("error"), result
            offsets.append(result.offset)
        await sending
    return offsets


async def read_all(nodes: Nodes, at: int) -> list[bytes]:
    """Until all that was published is there."""
    channel = nodes.world.host("client").ports.network.connect(f"n{at}:9092")
    earliest = pb.StartPosition(bound=common_pb2.OFFSET_BOUND_EARLIEST)
    request = pb.SubscribeRequest(subscriptions=[pb.SubscribePartitions(topic="t", start=earliest)])
    found: list[bytes] = []
    async with channel.stream("/streamlog.v1.Records/Subscribe") as stream:
        await stream.send(request.SerializeToString())
        await stream.done_sending()
        while len(found) < COUNT:
            data = await stream.recv()
            assert data is not None
            for news in pb.SubscribeResponse.FromString(data).partitions:
                found += [record.value for record in news.records]
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_leader_is_killed_under_a_stream_and_a_subscription(seed: int) -> None:
    async def story(nodes: Nodes) -> None:
        nodes.start()
        await nodes.ready()
        host = nodes.world.host("client")
        calls = Calls(host.boot().network)
        await host.spawn(until_done(partial(calls.create_topic, "n2:9092", "t")))
        await nodes.until(lambda: all(node.view.image.topic_named("t") is not None for node in nodes.alive()))
        leader = leader_of(nodes.node(2).view, "t")
        writer, reader = (number for number in (1, 2, 3) if number != leader)
        writing = host.spawn(publish_all(nodes, writer))
        reading = host.spawn(read_all(nodes, reader))
        await asyncio.sleep(0.2)
        nodes.host(int(leader)).crash()
        offsets = await writing
        expected = [b"%d" % number for number in range(COUNT)]
        assert await reading == expected
        assert [offset for offset in offsets if offset >= 0] == sorted(offset for offset in offsets if offset >= 0)
        assert await host.spawn(read_all(nodes, writer)) == expected
        await host.spawn(calls.close())

    run_story(story, seed=seed)


@pytest.mark.parametrize("seed", range(3))
def test_publish_without_a_token_is_unknown_only_where_it_may_have_been_written(seed: int) -> None:
    async def story(nodes: Nodes) -> None:
        nodes.start()
        await nodes.ready()
        host = nodes.world.host("client")
        calls = Calls(host.boot().network)
        await host.spawn(until_done(partial(calls.create_topic, "n2:9092", "t")))
        await nodes.until(lambda: all(node.view.image.topic_named("t") is not None for node in nodes.alive()))
        leader = leader_of(nodes.node(2).view, "t")
        writer = next(number for number in (1, 2, 3) if number != leader)

        async def publish(number: int) -> int | None:
            """The offset; None: the outcome is unknown."""
            request = pb.PublishRequest(topic="t", records=[pb.PublishRecord(value=b"%d" % number)])
            try:
                response = await calls.call(
                    f"n{writer}:9092", "Records/Publish", request, pb.PublishResponse, timeout_s=30
                )
            except OutcomeUnknownError:
                return None
            return response.results[0].offset

        async def publish_all() -> list[int | None]:
            going = []
            for number in range(COUNT):
                going.append(asyncio.ensure_future(publish(number)))
                await asyncio.sleep(0.01)
            return list(await asyncio.gather(*going))

        writing = host.spawn(publish_all())
        await asyncio.sleep(0.2)
        nodes.host(int(leader)).crash()
        offsets = await writing
        written = [offset for offset in offsets if offset is not None]
        assert len(set(written)) == len(written)
        unknown = [number for number, offset in enumerate(offsets) if offset is None]
        # Those on their way when the connection broke; all later ones waited for the next leader.
        assert unknown == list(range(min(unknown, default=0), max(unknown, default=-1) + 1))
        assert len(unknown) <= 10
        assert offsets[-1] is not None
        await host.spawn(calls.close())

    run_story(story, seed=seed)
