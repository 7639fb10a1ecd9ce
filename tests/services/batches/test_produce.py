"""Produce over the simulated network, from raw messages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.pb import common_pb2
from streamlog.errors import StreamlogError
from tests.services.world import BATCHES, Cluster, simulate
from tests.storage.batches import batch


def test_offsets_come_back_for_every_kind_of_acknowledgement() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        first = await cluster.produce(b"a", b"b")
        second = await cluster.produce(b"c", acks=common_pb2.ACKS_LEADER)
        third = await cluster.produce(b"d", acks=common_pb2.ACKS_NONE)
        assert (first.base_offset, second.base_offset, third.base_offset) == (0, 2, -1)
        assert not any(result.HasField("error") for result in (first, second, third))
        assert cluster.node.leader().log_end_offset == 4

    simulate(story)


def test_acks_all_waits_for_the_followers() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(replicas=(1, 2))
        begin = cluster.loop.now
        producing = asyncio.ensure_future(cluster.produce(b"a"))
        await asyncio.sleep(3)
        assert not producing.done()
        await cluster.follow(2, 1)
        result = await producing
        assert (result.base_offset, result.HasField("error")) == (0, False)
        assert 3 <= cluster.loop.now - begin < 4

    simulate(story)


def test_what_is_not_confirmed_in_time_is_unknown_and_not_failed() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(replicas=(1, 2))
        begin = cluster.loop.now
        result = await cluster.produce(b"a", timeout_ms=700)
        assert (result.error.code, result.error.retriable) == ("OUTCOME_UNKNOWN", True)
        assert 0.7 <= cluster.loop.now - begin < 0.8
        assert cluster.node.leader().log_end_offset == 1
        assert cluster.node.leader().state.waiting == 1  # passed over when its turn comes
        await cluster.follow(2, 1)
        assert (await cluster.produce(b"b", timeout_ms=1)).error.code == "OUTCOME_UNKNOWN"

    simulate(story)


def test_the_answer_comes_before_the_callers_deadline() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(replicas=(1, 2))
        part = pb.PartitionBatches(topic="t", batches=batch([b"a"]))
        request = pb.ProduceRequest(partitions=[part])
        response = await cluster.call(BATCHES + "Produce", request, pb.ProduceResponse, timeout_s=2)
        assert response.results[0].error.code == "OUTCOME_UNKNOWN"

    simulate(story)


def test_too_few_in_sync_appends_nothing() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(replicas=(1, 2), min_insync_replicas="2")
        cluster.rig.alter_isr([1])
        await cluster.spread()
        result = await cluster.produce(b"a")
        assert (result.error.code, result.error.retriable) == ("NOT_ENOUGH_REPLICAS", True)
        assert cluster.node.leader().log_end_offset == 0
        assert not (await cluster.produce(b"a", acks=common_pb2.ACKS_LEADER)).HasField("error")

    simulate(story)


def test_a_repeated_batch_gets_the_offset_of_the_first_time() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        data = batch([b"a", b"b"], producer=(7, 0, 0))
        first, again = await cluster.produce(batches=data), await cluster.produce(batches=data)
        assert (first.base_offset, again.base_offset, cluster.node.leader().log_end_offset) == (0, 0, 2)

    simulate(story)


def test_a_sequence_gap_and_a_stale_producer_are_refused() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        await cluster.produce(batches=batch([b"a"], producer=(7, 1, 0)))
        gap = await cluster.produce(batches=batch([b"c"], producer=(7, 1, 2)))
        stale = await cluster.produce(batches=batch([b"b"], producer=(7, 0, 1)))
        assert (gap.error.code, stale.error.code) == ("OUT_OF_ORDER_SEQUENCE", "PRODUCER_FENCED")
        assert cluster.node.leader().log_end_offset == 1

    simulate(story)


def test_a_node_that_does_not_lead_tells_who_does() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(replicas=(2, 1))
        result = await cluster.produce(b"a")
        assert result.error.code == "NOT_LEADER"
        assert dict(result.error.details) == {"leader": "2", "address": "node2:9092", "leader_epoch": "0"}

    simulate(story)


def test_each_partition_has_its_own_answer() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(partitions=2)
        parts = [
            pb.PartitionBatches(topic="t", partition=index, correlation_id=10 + index, batches=batch([b"x"]))
            for index in range(3)
        ]
        request = pb.ProduceRequest(partitions=parts)
        results = (await cluster.call(BATCHES + "Produce", request, pb.ProduceResponse)).results
        assert [result.correlation_id for result in results] == [10, 11, 12]
        assert [result.error.code for result in results] == ["", "", "UNKNOWN_TOPIC_OR_PARTITION"]
        assert results[2].error.details["limit"] == "2"

    simulate(story)


GOOD = batch([b"value"])
BAD = [
    ("nothing at all", {"batches": b"\0"}, "CORRUPT_MESSAGE"),
    ("cut off", {"batches": GOOD[:-3]}, "CORRUPT_MESSAGE"),
    ("trailing bytes", {"batches": GOOD + b"abc"}, "CORRUPT_MESSAGE"),
    ("wrong CRC", {"batches": GOOD[:-1] + b"\xff"}, "CORRUPT_MESSAGE"),
    ("zeros, which look like messages of magic 0", {"batches": bytes(4096)}, "CORRUPT_MESSAGE"),
    ("negative length", {"batches": GOOD[:8] + b"\xff\xff\xff\xff" + GOOD[12:]}, "INVALID_RECORD"),
    ("no records", {"batches": batch([])}, "INVALID_RECORD"),
    ("future magic", {"batches": GOOD[:16] + b"\x09" + GOOD[17:]}, "UNSUPPORTED_VERSION"),
    ("unknown codec", {"batches": batch([b"a"], attributes=6)}, "UNSUPPORTED_COMPRESSION_TYPE"),
    ("too large", {"batches": batch([bytes(2 << 20)])}, "MESSAGE_TOO_LARGE"),
    ("stale leader epoch", {"leader_epoch": 0}, "FENCED_LEADER_EPOCH"),
    ("future leader epoch", {"leader_epoch": 9}, "UNKNOWN_LEADER_EPOCH"),
    ("unknown topic", {"topic": "missing"}, "UNKNOWN_TOPIC_OR_PARTITION"),
    ("unknown id", {"topic": "", "topic_id": bytes(16)}, "UNKNOWN_TOPIC_ID"),
    ("another id", {"topic": "other"}, "UNKNOWN_TOPIC_ID"),
]


@pytest.mark.parametrize(("fields", "code"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_batches_get_their_error_and_change_nothing(fields: dict[str, Any], code: str) -> None:
    """FAULTS, "Bad input"."""

    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        await cluster.create("other")
        await cluster.raise_leader_epoch()
        if fields.get("topic") == "other":
            fields["topic_id"] = cluster.rig.topic("t").topic_id
        result = await cluster.produce(b"value", acks=common_pb2.ACKS_ALL, **fields)
        assert result.error.code == code, result.error
        assert result.error.message
        assert cluster.node.leader().log_end_offset == 0

    simulate(story)


def test_an_unknown_topic_names_the_command_that_creates_it() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        result = await cluster.produce(b"a", topic="new")
        assert "streamlogctl topic create new" in result.error.message

    simulate(story)


REFUSED = [
    ("acks", {"acks": 9}, "INVALID_REQUEST", "acks"),
    ("negative time-out", {"timeout_ms": -1}, "INVALID_REQUEST", "timeout_ms"),
    ("name with a slash", {"topic": "../x"}, "INVALID_TOPIC", "partitions[0].topic"),
    ("NUL", {"topic": "a\0"}, "INVALID_TOPIC", "partitions[0].topic"),
    ("dots", {"topic": ".."}, "INVALID_TOPIC", "partitions[0].topic"),
    ("250 characters", {"topic": "a" * 250}, "INVALID_TOPIC", "partitions[0].topic"),
    ("no topic", {"topic": ""}, "INVALID_REQUEST", "partitions[0].topic"),
    ("negative partition", {"partition": -1}, "INVALID_REQUEST", "partitions[0].partition"),
    ("no batches", {"batches": b""}, "INVALID_REQUEST", "partitions[0].batches"),
    ("a short id", {"topic_id": b"x"}, "INVALID_REQUEST", "partitions[0].topic_id"),
    ("a long id", {"transactional_id": "t" * 250}, "INVALID_REQUEST", "transactional_id"),
]


@pytest.mark.parametrize(("fields", "code", "path"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_bad_requests_are_refused_as_a_whole(fields: dict[str, Any], code: str, path: str) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        with pytest.raises(StreamlogError) as caught:
            await cluster.produce(b"a", **fields)
        assert (caught.value.code, caught.value.details["field"]) == (code, path)

    simulate(story)


def test_a_partition_twice_in_one_call_and_none_are_refused() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        part = pb.PartitionBatches(topic="t", batches=batch([b"a"]))
        for parts, complaint in (([part, part], "twice: each may occur once"), ([], "has 0 entries")):
            with pytest.raises(StreamlogError, match=complaint):
                await cluster.call(BATCHES + "Produce", pb.ProduceRequest(partitions=parts), pb.ProduceResponse)

    simulate(story)
