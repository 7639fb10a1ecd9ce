"""Fetch, its stream and ListOffsets for readers of committed records (SEMANTICS 7, KIP-98)."""

from __future__ import annotations

import asyncio

from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.pb import common_pb2
from streamlog.model import Acks, ProducerEpoch, ProducerId
from streamlog.records import scan_headers
from streamlog.records.header import TRANSACTIONAL_BIT
from tests.services.batches.fetch_calls import fetch
from tests.services.world import BATCHES, Calls, Cluster, simulate
from tests.storage.batches import batch

COMMITTED = common_pb2.ISOLATION_LEVEL_READ_COMMITTED


async def begin(cluster: Cluster, *values: bytes, pid: int = 7, epoch: int = 0) -> None:
    """A verified transaction of one batch. It is of the node's time, as markers are: or a segment would end between."""
    now_ms = cluster.node.ports.clock.wall_ms()
    data = batch(values, producer=(pid, epoch, 0), attributes=TRANSACTIONAL_BIT, timestamp=now_ms)

    def append() -> None:
        leader = cluster.node.leader()
        with leader.appends.verifications.begin(ProducerId(pid), ProducerEpoch(epoch)) as guard:
            leader.appends.append_encoded(data, Acks.LEADER, guard)

    await cluster.on(append)


async def end(cluster: Cluster, *, commit: bool, pid: int = 7, epoch: int = 1) -> None:
    def mark() -> None:
        cluster.node.leader().markers.append(ProducerId(pid), ProducerEpoch(epoch), 0, commit=commit)

    await cluster.on(mark)
    await asyncio.sleep(0.1)  # virtual: to the disk


async def pushed(stream: Calls[pb.FetchStreamResponse]) -> pb.FetchedPartition:
    message = await stream.recv()
    assert message is not None
    (got,) = message.partitions
    return got


def offsets(batches: bytes) -> list[int]:
    return [header.base_offset for _, header in scan_headers(batches, 0, len(batches))]


def response(got: pb.FetchedPartition) -> list[tuple[int, int]]:
    return [(one.producer_id, one.first_offset) for one in got.aborted_transactions]


def test_a_fetch_ends_at_the_last_stable_offset_and_tells_what_was_aborted() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        await begin(cluster, b"no")  # 0
        await begin(cluster, b"yes", pid=8)  # 1
        await end(cluster, commit=False)  # 2
        await end(cluster, commit=True, pid=8)  # 3
        await begin(cluster, b"perhaps", epoch=1)  # 4
        await cluster.produce(b"plain")  # 5
        (got,) = await fetch(cluster, isolation_level=COMMITTED)
        assert (got.high_watermark, got.last_stable_offset) == (6, 4)
        assert (offsets(got.batches), response(got)) == ([0, 1, 2, 3], [(7, 0)])
        (got,) = await fetch(cluster, pb.FetchPartition(topic="t", fetch_offset=3), isolation_level=COMMITTED)
        assert (offsets(got.batches), response(got)) == ([3], [])
        (got,) = await fetch(cluster)
        assert (got.high_watermark, got.last_stable_offset) == (6, 4)
        assert (offsets(got.batches), response(got)) == ([0, 1, 2, 3, 4, 5], [])

    simulate(story)


def test_a_committed_poll_is_woken_by_the_marker_and_by_nothing_before() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        await begin(cluster, b"in")
        waiting = asyncio.ensure_future(fetch(cluster, wait_ms_max=60_000, isolation_level=COMMITTED))
        await asyncio.sleep(5)
        await cluster.produce(b"behind")
        await asyncio.sleep(5)
        assert not waiting.done()
        await end(cluster, commit=True)
        (got,) = await waiting
        assert (got.last_stable_offset, offsets(got.batches)) == (3, [0, 1, 2])

    simulate(story)


def test_many_aborted_transactions_do_not_overfill_an_answer() -> None:
    """Their bytes in the message count; the first batch is returned in any case."""

    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        count = 40
        for pid in range(count):
            await begin(cluster, b"x", pid=2**40 + pid)
        for pid in range(count):
            await end(cluster, commit=False, pid=2**40 + pid)
        seen, offset, room = [], 0, 1_000
        while offset < 2 * count:
            part = pb.FetchPartition(topic="t", fetch_offset=offset)
            (got,) = await fetch(cluster, part, isolation_level=COMMITTED, response_bytes_max=room)
            assert got.ByteSize() <= room + 100  # the partition's own fields
            here = offsets(got.batches)
            assert {first for _, first in response(got)} >= {first for first in here if first < count}
            seen += here
            offset = here[-1] + 1
        assert seen == list(range(2 * count))

    simulate(story)


def test_a_committed_stream_goes_on_with_the_marker() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        await cluster.produce(b"plain")
        await begin(cluster, b"no")
        async with cluster.stream(BATCHES + "FetchStream", pb.FetchStreamResponse) as stream:
            settings = pb.FetchSettings(isolation_level=COMMITTED)
            await stream.send(pb.FetchStreamRequest(settings=settings, add=[pb.FetchPartition(topic="t")]))
            got = await pushed(stream)
            assert (got.last_stable_offset, offsets(got.batches), response(got)) == (1, [0], [])
            await cluster.produce(b"behind")
            await asyncio.sleep(1)
            await end(cluster, commit=False)
            got = await pushed(stream)
            assert (got.last_stable_offset, offsets(got.batches), response(got)) == (4, [1, 2, 3], [(7, 1)])

    simulate(story)


def test_the_latest_offset_is_the_last_stable_one() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        await cluster.produce(b"plain")
        await begin(cluster, b"in")
        await asyncio.sleep(1)
        place = pb.OffsetQuery(topic="t", bound=common_pb2.OFFSET_BOUND_LATEST)
        for isolation, expected in ((COMMITTED, 1), (common_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED, 2)):
            request = pb.ListOffsetsRequest(queries=[place], isolation_level=isolation)
            found = await cluster.call(BATCHES + "ListOffsets", request, pb.ListOffsetsResponse)
            assert found.offsets[0].offset == expected

    simulate(story)
