"""Fetch and its stream over the simulated network, from raw messages."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any
from unittest.mock import Mock, patch

import pytest

from streamlog.api.pb import batches_pb2 as pb
from streamlog.config.settings.node_settings import FETCH_MAX_BYTES
from streamlog.errors import StreamlogError, UnknownTopicOrPartitionError
from streamlog.model import Offset, PartitionId, TopicPartition
from streamlog.records import decode_batch, scan_headers
from streamlog.services.batches.fetch_stream import _Stream
from streamlog.services.batches.partition_fetch import batches_to, read_batches
from streamlog.services.common.outgoing import OutgoingBytes
from streamlog.sim import SimLoop, run
from tests.services.batches.fetch_calls import fetch
from tests.services.world import BATCHES, Calls, Cluster, simulate
from tests.storage.batches import batch

READ_BATCHES = "streamlog.services.batches.fetch.read_batches"


def values(batches: bytes) -> list[bytes | None]:
    found: list[bytes | None] = []
    for position, _ in scan_headers(batches, 0, len(batches)):
        found += [record.value for record in decode_batch(batches, position)]
    return found


def test_what_is_there_comes_at_once() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        await cluster.produce(b"a", b"b")
        begin = cluster.loop.now
        (got,) = await fetch(cluster, pb.FetchPartition(topic="t", correlation_id=5), wait_ms_max=30_000)
        assert values(got.batches) == [b"a", b"b"]
        assert (got.high_watermark, got.last_stable_offset, got.log_start, got.correlation_id) == (2, 2, 0, 5)
        assert cluster.loop.now - begin < 1

    simulate(story)


def test_a_poll_is_woken_by_the_partition_that_it_waits_for() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(partitions=3)
        parts = [pb.FetchPartition(topic="t", partition=index) for index in range(3)]
        waiting = asyncio.ensure_future(fetch(cluster, *parts, wait_ms_max=60_000))
        await asyncio.sleep(14)
        assert not waiting.done()
        steps = cluster.loop.steps
        await asyncio.sleep(14)
        assert cluster.loop.steps - steps < 2_000  # of the nodes' own timers: a poll that waits does nothing
        await cluster.produce(b"a", partition=1)
        begin = cluster.loop.now
        (got,) = await waiting
        assert (got.partition, values(got.batches)) == (1, [b"a"])
        assert cluster.loop.now - begin < 1

    simulate(story)


def test_a_poll_ends_empty_with_the_high_watermarks() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        await cluster.produce(b"a")
        begin = cluster.loop.now
        (got,) = await fetch(cluster, pb.FetchPartition(topic="t", fetch_offset=1), wait_ms_max=2_000)
        assert (got.batches, got.high_watermark) == (b"", 1)
        assert 2 <= cluster.loop.now - begin < 2.5

    simulate(story)


def test_nothing_above_the_high_watermark_is_read() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(replicas=(1, 2))
        producing = asyncio.ensure_future(cluster.produce(b"a"))
        (got,) = await fetch(cluster, wait_ms_max=1_000)
        assert (got.batches, got.high_watermark) == (b"", 0)
        waiting = asyncio.ensure_future(fetch(cluster, wait_ms_max=10_000))
        await asyncio.sleep(1)
        await cluster.follow(2, 1)
        (got,) = await waiting
        assert values(got.batches) == [b"a"]
        await producing

    simulate(story)


def test_long_polls_that_began_together_do_not_end_together() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        began = cluster.loop.now

        async def waits_s(wait_ms: int) -> float:
            (got,) = await fetch(cluster, wait_ms_max=wait_ms)
            assert got.batches == b""
            return cluster.loop.now - began

        ends = sorted(await asyncio.gather(*(waits_s(30_000) for _ in range(60))))
        assert 15 <= ends[0] < 17
        assert 28 < ends[-1] < 30.1
        assert max(later - earlier for earlier, later in pairwise(ends)) < 2
        began = cluster.loop.now
        assert min(await asyncio.gather(*(waits_s(2_000) for _ in range(20)))) >= 2

    simulate(story)


def test_a_poll_waits_for_as_many_bytes_as_it_asks_for() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(partitions=2)
        parts = [pb.FetchPartition(topic="t", partition=index) for index in range(2)]
        await cluster.produce(bytes(600))
        waiting = asyncio.ensure_future(fetch(cluster, *parts, wait_ms_max=30_000, bytes_min=1_000))
        await asyncio.sleep(1)
        assert not waiting.done()
        await cluster.produce(bytes(600), partition=1)
        assert [part.partition for part in await waiting] == [0, 1]

    simulate(story)


@pytest.mark.parametrize("is_enough", [True, False])
def test_a_poll_that_waits_reads_nothing_before_its_end(*, is_enough: bool) -> None:
    """Thousands of polls for more than there is would each read all there is, and drop it."""

    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(partitions=2)
        parts = [pb.FetchPartition(topic="t", partition=index) for index in range(2)]
        for partition in (0, 1):
            await cluster.produce(bytes(600), partition=partition)
        with patch(READ_BATCHES, wraps=read_batches) as reads:
            waiting = asyncio.ensure_future(fetch(cluster, *parts, wait_ms_max=10_000, bytes_min=2_500))
            await asyncio.sleep(1)
            await cluster.produce(bytes(100))
            await asyncio.sleep(1)
            assert (waiting.done(), reads.call_count) == (False, 0)
            if is_enough:
                await cluster.produce(bytes(2_500), partition=1)
            got = await waiting
            assert reads.call_count == 2
        assert [len(values(part.batches)) for part in got] == [2, 1 + is_enough]
        sent = sum(len(part.batches) for part in got)
        traffic = (await cluster.on(lambda: cluster.node.leader())).traffic
        assert traffic.bytes_out == sent  # of the topic

    simulate(story)


def test_a_poll_whose_response_is_full_below_its_least_size_is_answered() -> None:
    """Whole batches may fill a response to less than `bytes_min`, while more is there: waiting again would be a busy
    loop."""

    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(partitions=2)
        parts = [pb.FetchPartition(topic="t", partition=index) for index in range(2)]
        for partition in (0, 1):
            await cluster.produce(bytes(700), partition=partition)
        begin = cluster.loop.now
        with patch(READ_BATCHES, wraps=read_batches) as reads:
            got = await fetch(cluster, *parts, wait_ms_max=10_000, bytes_min=1_000, response_bytes_max=1_000)
        assert [len(values(part.batches)) for part in got] == [1]
        assert cluster.loop.now - begin < 1
        assert reads.call_count <= 8

    simulate(story)


def test_a_poll_hears_that_the_leadership_has_ended() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(replicas=(1, 2))
        waiting = asyncio.ensure_future(fetch(cluster, wait_ms_max=60_000))
        await asyncio.sleep(1)
        cluster.rig.fence(1)
        await cluster.spread()
        (got,) = await waiting
        assert (got.error.code, got.error.details["leader"]) == ("NOT_LEADER", "2")

    simulate(story)


def test_responses_are_bounded_and_the_first_batch_comes_whole() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(partitions=3)
        for index in range(3):
            for _ in range(2):
                await cluster.produce(bytes(40_000), partition=index)
        parts = [pb.FetchPartition(topic="t", partition=index) for index in (2, 0, 1)]
        got = await fetch(cluster, *parts, response_bytes_max=100_000)
        assert [(part.partition, len(part.batches) // 40_000) for part in got] == [(2, 2)]
        got = await fetch(cluster, *parts, response_bytes_max=10)
        assert [(part.partition, len(part.batches) // 40_000) for part in got] == [(2, 1)]
        tight = [pb.FetchPartition(topic="t", partition=index, partition_bytes_max=1) for index in range(3)]
        got = await fetch(cluster, *tight)
        assert [len(part.batches) // 40_000 for part in got] == [1, 1, 1]

    simulate(story)


def test_a_batch_that_the_client_cannot_take_is_announced() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        await cluster.produce(bytes(300_000))
        (got,) = await fetch(cluster, receive_bytes_max=100_000)
        assert (got.error.code, got.error.details["limit"]) == ("MESSAGE_TOO_LARGE", "100000")

    simulate(story)


def test_another_history_is_reported_with_where_it_diverges() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        await cluster.produce(b"a", b"b")
        await cluster.raise_leader_epoch()
        await cluster.produce(b"c")
        (got,) = await fetch(cluster, pb.FetchPartition(topic="t", fetch_offset=3, last_fetched_epoch=0))
        assert (got.diverging_epoch.leader_epoch, got.diverging_epoch.end_offset) == (0, 2)
        assert got.batches == b""
        (got,) = await fetch(cluster, pb.FetchPartition(topic="t", fetch_offset=2, last_fetched_epoch=0))
        assert values(got.batches) == [b"c"]

    simulate(story)


BAD = [
    ("beyond the end", {"fetch_offset": 9}, "OFFSET_OUT_OF_RANGE", {"log_start": "0", "log_end": "1"}),
    ("stale epoch", {"leader_epoch": 0}, "FENCED_LEADER_EPOCH", {"limit": "1"}),
    ("future epoch", {"leader_epoch": 7}, "UNKNOWN_LEADER_EPOCH", {"limit": "1"}),
    ("read of a later leader", {"fetch_offset": 1, "last_fetched_epoch": 7}, "UNKNOWN_LEADER_EPOCH", {"limit": "1"}),
    ("unknown partition", {"partition": 4}, "UNKNOWN_TOPIC_OR_PARTITION", {"limit": "1"}),
    ("unknown topic", {"topic": "missing"}, "UNKNOWN_TOPIC_OR_PARTITION", {"topic": "missing"}),
    ("unknown id", {"topic": "", "topic_id": bytes(16)}, "UNKNOWN_TOPIC_ID", {}),
]


@pytest.mark.parametrize(("fields", "code", "facts"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_bad_place_gets_its_error(fields: dict[str, Any], code: str, facts: dict[str, str], streamed: bool) -> None:
    """FAULTS, "Bad input"."""

    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        await cluster.raise_leader_epoch()
        await cluster.produce(b"a")
        part = pb.FetchPartition(**{"topic": "t", **fields})
        if streamed:
            async with cluster.stream(BATCHES + "FetchStream", pb.FetchStreamResponse) as calls:
                await calls.send(pb.FetchStreamRequest(add=[part]))
                (got,) = (await received(calls)).partitions
        else:
            (got,) = await fetch(cluster, part, wait_ms_max=30_000)
        assert got.error.code == code
        assert facts.items() <= dict(got.error.details).items()

    simulate(story)


REFUSED = [
    (pb.FetchRequest(), "partitions"),
    (pb.FetchRequest(partitions=[pb.FetchPartition(topic="t", fetch_offset=-1)]), "partitions[0].fetch_offset"),
    (
        pb.FetchRequest(partitions=[pb.FetchPartition(topic="t", fetch_offset=3, end_offset=3)]),
        "partitions[0].end_offset",
    ),
    (pb.FetchRequest(partitions=[pb.FetchPartition(topic="t")] * 2), "partitions[1]"),
    (pb.FetchRequest(partitions=[pb.FetchPartition(topic="t")] * 10_001), "partitions"),
    (
        pb.FetchRequest(settings=pb.FetchSettings(bytes_min=-1), partitions=[pb.FetchPartition(topic="t")]),
        "settings.bytes_min",
    ),
    (
        pb.FetchRequest(settings=pb.FetchSettings(isolation_level=7), partitions=[pb.FetchPartition(topic="t")]),  # type: ignore[arg-type]  # an unknown number
        "settings.isolation_level",
    ),
]


@pytest.mark.parametrize(("request_", "path"), REFUSED, ids=[path for _, path in REFUSED])
def test_bad_requests_are_refused_as_a_whole(request_: pb.FetchRequest, path: str) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        with pytest.raises(StreamlogError) as caught:
            await cluster.call(BATCHES + "Fetch", request_, pb.FetchResponse)
        assert (caught.value.code, caught.value.details["field"]) == ("INVALID_REQUEST", path)

    simulate(story)


def test_huge_sizes_and_waits_are_lowered() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        begin = cluster.loop.now
        await fetch(cluster, wait_ms_max=2**31 - 1, response_bytes_max=2**31 - 1, bytes_min=2**31 - 1)
        assert cluster.loop.now - begin <= 61

    simulate(story)


# -- the stream


async def received(calls: Calls[pb.FetchStreamResponse], within_s: float = 30) -> pb.FetchStreamResponse:
    response = await asyncio.wait_for(calls.recv(), within_s)
    assert response is not None
    return response


async def collect(calls: Calls[pb.FetchStreamResponse], count: int) -> list[tuple[int, bytes | None]]:
    """(partition, value) of so many records."""
    found: list[tuple[int, bytes | None]] = []
    while len(found) < count:
        for part in (await received(calls)).partitions:
            assert not part.HasField("error"), part.error
            found += [(part.partition, value) for value in values(part.batches)]
    return found


def test_batches_are_pushed_as_they_come() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(partitions=2)
        await cluster.produce(b"old")
        async with cluster.stream(BATCHES + "FetchStream", pb.FetchStreamResponse) as calls:
            add = [pb.FetchPartition(topic="t", partition=index, correlation_id=7) for index in range(2)]
            await calls.send(pb.FetchStreamRequest(add=add))
            assert await collect(calls, 1) == [(0, b"old")]
            for index in range(20):
                await cluster.produce(b"%d" % index, partition=index % 2)
            got = await collect(calls, 20)
            for index in range(2):
                assert [v for p, v in got if p == index] == [b"%d" % v for v in range(20) if v % 2 == index]
            await calls.done_sending()
            while await asyncio.wait_for(calls.recv(), 30) is not None:
                pass

    simulate(story)


def test_a_client_that_ends_its_side_at_once_learns_what_it_may_not_read() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        async with cluster.stream(BATCHES + "FetchStream", pb.FetchStreamResponse) as calls:
            await calls.send(pb.FetchStreamRequest(add=[pb.FetchPartition(topic="t"), pb.FetchPartition(topic="u")]))
            await calls.done_sending()
            refused = [part for part in (await received(calls)).partitions if part.HasField("error")]
            assert [(part.topic, part.error.code) for part in refused] == [("u", "UNKNOWN_TOPIC_OR_PARTITION")]
            while await asyncio.wait_for(calls.recv(), 30) is not None:
                pass

    simulate(story)


def test_a_seek_and_a_removal_take_effect() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        for index in range(4):
            await cluster.produce(b"%d" % index)
        async with cluster.stream(BATCHES + "FetchStream", pb.FetchStreamResponse) as calls:
            await calls.send(pb.FetchStreamRequest(add=[pb.FetchPartition(topic="t", correlation_id=1)]))
            assert len(await collect(calls, 4)) == 4
            again = pb.FetchPartition(topic="t", fetch_offset=2, correlation_id=2)
            await calls.send(pb.FetchStreamRequest(add=[again]))
            (part,) = (await received(calls)).partitions
            assert (part.correlation_id, values(part.batches)) == (2, [b"2", b"3"])
            await calls.send(pb.FetchStreamRequest(remove=[pb.FetchPartition(topic="t")]))
            await cluster.produce(b"unseen")
            with pytest.raises(TimeoutError):
                await received(calls, within_s=5)

    simulate(story)


def test_nothing_is_sent_beyond_the_end_that_is_wanted() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        for index in range(4):
            await cluster.produce(b"%d" % index, b"%d'" % index)
        to_the_end = pb.FetchPartition(topic="t", fetch_offset=1, end_offset=3)
        (got,) = await fetch(cluster, to_the_end)
        assert values(got.batches) == [b"0", b"0'", b"1", b"1'"]  # whole batches
        async with cluster.stream(BATCHES + "FetchStream", pb.FetchStreamResponse) as calls:
            await calls.send(pb.FetchStreamRequest(add=[to_the_end]))
            (part,) = (await received(calls)).partitions
            assert part.batches == got.batches
            await calls.send(pb.FetchStreamRequest(add=[pb.FetchPartition(topic="t", fetch_offset=6, end_offset=10)]))
            await cluster.produce(b"news")
            assert await collect(calls, 3) == [(0, b"3"), (0, b"3'"), (0, b"news")]
            await cluster.produce(b"the last")
            assert await collect(calls, 1) == [(0, b"the last")]  # offset 9
            await cluster.produce(b"not seen any more")
            with pytest.raises(TimeoutError):
                await received(calls, within_s=5)

    simulate(story)


def test_the_end_is_reached_where_a_cleaner_has_left_a_gap() -> None:
    before, after, more = (batch([b"v", b"w"], base_offset=offset) for offset in (0, 10, 12))
    assert [batches_to(before + after + more, Offset(end)) for end in (2, 3, 10, 12, 13)] == [
        before,
        before + after,
        before + after,
        before + after,
        before + after + more,
    ]


def test_the_end_of_a_leadership_is_reported_and_the_others_continue() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(replicas=(1, 2))
        await cluster.create("u")
        async with cluster.stream(BATCHES + "FetchStream", pb.FetchStreamResponse) as calls:
            await calls.send(pb.FetchStreamRequest(add=[pb.FetchPartition(topic=name) for name in "tu"]))
            await received(calls)
            await cluster.move_leader(2)
            (part,) = (await received(calls)).partitions
            assert (part.topic, part.error.code, part.error.details["leader"]) == ("t", "NOT_LEADER", "2")
            await cluster.produce(b"more", topic="u")
            assert await collect(calls, 1) == [(0, b"more")]

    simulate(story)


def test_a_reader_that_does_not_read_slows_only_itself() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        async with (
            cluster.stream(BATCHES + "FetchStream", pb.FetchStreamResponse) as slow,
            cluster.stream(BATCHES + "FetchStream", pb.FetchStreamResponse) as quick,
        ):
            for calls in (slow, quick):
                await calls.send(pb.FetchStreamRequest(add=[pb.FetchPartition(topic="t")]))
            expected = []
            for index in range(60):
                expected.append(b"%d" % index * 30_000)
                await cluster.produce(expected[-1])
                assert await collect(quick, 1) == [(0, expected[-1])]
            assert [value for _, value in await collect(slow, 60)] == expected

    simulate(story)


def test_partitions_take_turns_and_messages_are_bounded() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(partitions=2)
        for _ in range(10):
            for index in range(2):
                await cluster.produce(bytes(50_000), partition=index)
        async with cluster.stream(BATCHES + "FetchStream", pb.FetchStreamResponse) as calls:
            settings = pb.FetchSettings(response_bytes_max=120_000)
            add = [pb.FetchPartition(topic="t", partition=index, partition_bytes_max=60_000) for index in range(2)]
            await calls.send(pb.FetchStreamRequest(settings=settings, add=add))
            got: list[int] = []
            while sum(got) < 20 * 50_000:
                response = await received(calls)
                assert response.ByteSize() <= 121_000
                assert {part.partition for part in response.partitions} == {0, 1}
                got += [len(part.batches) for part in response.partitions]

    simulate(story)


def test_more_partitions_than_a_stream_takes_end_it() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        async with cluster.stream(BATCHES + "FetchStream", pb.FetchStreamResponse) as calls:
            many = [pb.FetchPartition(topic="t", partition=index) for index in range(10_001)]
            await calls.send(pb.FetchStreamRequest(add=many))
            with pytest.raises(StreamlogError) as caught:
                await received(calls)
            assert (caught.value.details["field"], caught.value.details["limit"]) == ("add", 10_000)

    simulate(story)


def test_reading_old_batches_whole_though_the_offset_lies_within_one() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        await cluster.produce(batches=batch([b"a", b"b", b"c"]))
        (got,) = await fetch(cluster, pb.FetchPartition(topic="t", fetch_offset=2))
        assert values(got.batches) == [b"a", b"b", b"c"]

    simulate(story)


class Exchange:
    """The client's side of a stream, whose requests are there at once."""

    def __init__(self, requests: list[pb.FetchStreamRequest]) -> None:
        self.requests = requests
        self.answered: list[int] = []  # correlation ids

    async def recv(self) -> pb.FetchStreamRequest | None:
        return self.requests.pop(0) if self.requests else None

    async def send_encoded(self, data: bytes) -> None:
        self.answered += [part.correlation_id for part in pb.FetchStreamResponse.FromString(data).partitions]


def fetch_stream(leaders: Any) -> Any:
    return _Stream(leaders, Mock(), Mock(node={FETCH_MAX_BYTES: 1 << 20}), OutgoingBytes(1 << 20).reader())


def test_requests_are_received_as_fast_as_their_refusals_are_read() -> None:
    """A client that adds unknown partitions and does not read would fill the node's memory."""

    async def story(_: SimLoop) -> None:
        adds = [pb.FetchPartition(topic="t", correlation_id=number) for number in range(5)]
        exchange: Any = Exchange([pb.FetchStreamRequest(add=[add]) for add in adds])
        refusal = UnknownTopicOrPartitionError("topic 't' does not exist")
        stream = fetch_stream(Mock(leader=Mock(side_effect=refusal)))
        reading = asyncio.ensure_future(stream.read(exchange))
        await asyncio.sleep(60)
        assert (len(exchange.requests), reading.done()) == (4, False)
        writing = asyncio.ensure_future(stream.write(exchange))
        await reading
        assert exchange.answered == list(range(5))
        writing.cancel()
        await asyncio.wait([writing])

    run(story, seed=0)


def test_a_partition_that_is_sought_again_is_due_once() -> None:
    async def story(_: SimLoop) -> None:
        replica = Mock(partition=TopicPartition("t", PartitionId(0)))
        stream = fetch_stream(Mock(leader=Mock(return_value=replica)))
        add = pb.FetchPartition(topic="t")
        await stream.read(Exchange([pb.FetchStreamRequest(add=[add]) for _ in range(100)]))
        assert len(stream._due) == 1
        await stream.read(Exchange([pb.FetchStreamRequest(remove=[add])]))
        assert len(stream._due) == 0

    run(story, seed=0)
