"""Subscribe over the simulated network: any node, any partitions, whichever nodes lead them."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

from streamlog.api import fetched
from streamlog.api.convert.offsets import epoch_end
from streamlog.api.convert.records import subscribe as convert
from streamlog.api.convert.records.fetch import diverged
from streamlog.api.fetched import Fetched
from streamlog.api.pb import common_pb2
from streamlog.api.pb import records_pb2 as pb
from streamlog.api.requests import PartitionFetch
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.errors import StreamlogError
from streamlog.model import Acks, BrokerId, LeaderEpoch, Offset
from streamlog.records import read_header
from streamlog.services.records import subscribe_delivery
from streamlog.services.records.subscribe_placement import PartitionPlacement
from streamlog.services.records.subscribed_partition import SubscribedPartition
from tests.services.records.subscribe_calls import EARLIEST, _Subscribed, everything, subscribing
from tests.services.world import Cluster, simulate
from tests.storage.batches import batch, poison

READ_COMMITTED = common_pb2.ISOLATION_LEVEL_READ_COMMITTED
LATEST = pb.EndPosition(bound=common_pb2.OFFSET_BOUND_LATEST)


@pytest.mark.parametrize("node", [1, 2])
def test_any_node_serves_what_is_there_and_what_comes(node: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create(partitions=2)
        await cluster.produce(b"a", b"b")
        async with subscribing(cluster, everything(), node=node) as reader:
            assert await reader.until(2) == {0: [b"a", b"b"]}
            await cluster.produce(b"c", partition=1)
            await cluster.produce(b"d")
            assert await reader.until(4) == {0: [b"a", b"b", b"d"], 1: [b"c"]}
            news = reader.last[0]
            assert (news.position, news.high_watermark, news.lag) == (3, 3, 0)

    simulate(story)


def test_a_turn_of_the_loop_has_a_bounded_number_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        await cluster.produce(*[b"x"] * 2_500)
        await cluster.produce(*[b"x"] * 2_500)
        turns: Counter[int] = Counter()

        def received_record(*given: Any) -> pb.ReceivedRecord:
            turns[cluster.loop.steps] += 1
            return convert.received_record(*given)

        monkeypatch.setattr(subscribe_delivery, "convert", Mock(received_record=received_record))
        async with subscribing(cluster, everything(end=LATEST)) as reader:
            assert len((await reader.until(5_000))[0]) == 5_000
        assert sorted(turns.values()) == [1_000] * 5

    simulate(story)


def test_partitions_of_several_leaders_come_on_one_stream() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create("t")
        await cluster.create("u", replicas=(2,))
        await cluster.produce(b"one")
        await cluster.produce_at(2, b"two", topic="u")
        async with subscribing(cluster, everything("t", end=LATEST), everything("u", end=LATEST)) as reader:
            topics = set()
            while (response := await reader.next()) is not None:
                topics |= {(news.topic, record.value) for news in response.partitions for record in news.records}
            assert topics == {("t", b"one"), ("u", b"two")}

    simulate(story)


def test_a_partition_that_was_not_requested_ends_the_fetch_stream_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader's answer is false: the partition is placed again, and read."""
    decode = fetched.decode
    falsified: list[str] = []

    def false_once(data: bytes) -> list[Fetched]:
        answer = decode(data)
        if answer and not falsified:
            falsified.append(answer[0].part.topic)
            answer[0].part.topic = "other"
        return answer

    monkeypatch.setattr(fetched, "decode", false_once)

    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create("u", replicas=(2,))
        await cluster.produce_at(2, b"two", topic="u")
        async with subscribing(cluster, everything("u")) as reader:
            assert await reader.until(1) == {0: [b"two"]}
        assert falsified == ["u"]

    simulate(story)


STARTS = [
    (EARLIEST, [b"0", b"1", b"2", b"3"]),
    (pb.StartPosition(offset=2), [b"2", b"3"]),
    (pb.StartPosition(timestamp_ms=1_002), [b"2", b"3"]),
    (pb.StartPosition(timestamp_ms=9_999), []),
    (pb.StartPosition(), []),
]


@pytest.mark.parametrize(("start", "expected"), STARTS)
def test_where_to_begin(start: pb.StartPosition, expected: list[bytes]) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        for index in range(4):
            await cluster.produce(batches=batch([b"%d" % index], timestamp=1_000 + index))
        async with subscribing(cluster, everything(start=start)) as reader:
            await asyncio.sleep(1)
            await cluster.produce(b"new")
            values = await reader.until(len(expected) + 1)
            assert values[0] == [*expected, b"new"]

    simulate(story)


ENDS = [
    (LATEST, [b"0", b"1", b"2", b"3"]),
    (pb.EndPosition(offset=3), [b"0", b"1", b"2"]),
    (pb.EndPosition(offset=0), []),
    (pb.EndPosition(timestamp_ms=1_002), [b"0", b"1"]),
    (pb.EndPosition(timestamp_ms=9_999), [b"0", b"1", b"2", b"3"]),
]


@pytest.mark.parametrize(("end", "expected"), ENDS)
def test_where_to_end(end: pb.EndPosition, expected: list[bytes]) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        await cluster.produce(batches=batch([b"0"], timestamp=1_000))
        await cluster.produce(batches=batch([b"1"], timestamp=1_001))
        await cluster.produce(batches=batch([b"2", b"3"], timestamp=1_002))
        async with subscribing(cluster, everything(end=end)) as reader:
            values = await reader.to_the_end()
            assert values.get(0, []) == expected
            assert reader.last[0].end_reached
            assert reader.last[0].position == len(expected)

    simulate(story)


def test_an_end_within_a_batch() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        await cluster.produce(b"0", b"1", b"2", b"3")
        part = everything(start=pb.StartPosition(offset=1), end=pb.EndPosition(offset=3))
        async with subscribing(cluster, part) as reader:
            assert await reader.to_the_end() == {0: [b"1", b"2"]}

    simulate(story)


def test_heartbeats_have_the_position() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        await cluster.produce(b"a")
        begin = cluster.loop.now
        async with subscribing(cluster, everything(start=pb.StartPosition()), heartbeat_interval_ms=2_000) as reader:
            for _ in range(3):
                await reader.next()
            assert reader.values == {0: []}
            assert (reader.last[0].position, reader.last[0].high_watermark, reader.last[0].lag) == (1, 1, 0)
            assert 6 <= cluster.loop.now - begin < 7

    simulate(story)


RESETS = [
    (pb.OFFSET_RESET_NONE, None),
    (pb.OFFSET_RESET_EARLIEST, [b"a", b"new"]),
    (pb.OFFSET_RESET_LATEST, [b"new"]),
]


@pytest.mark.parametrize(("reset", "expected"), RESETS)
def test_an_offset_that_is_not_there(reset: pb.OffsetReset.ValueType, expected: list[bytes] | None) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        await cluster.produce(b"a")
        part = everything(start=pb.StartPosition(offset=50))
        async with subscribing(cluster, part, offset_reset=reset) as reader:
            if expected is None:
                assert await reader.to_the_end() == {0: []}
                assert reader.last[0].error.code == "OFFSET_OUT_OF_RANGE"
                assert dict(reader.last[0].error.details)["log_end"] == "1"
                return
            await asyncio.sleep(1)
            await cluster.produce(b"new")
            assert (await reader.until(len(expected)))[0] == expected

    simulate(story)


BEYOND = [
    (LATEST, pb.OFFSET_RESET_NONE, "OFFSET_OUT_OF_RANGE", 50),
    (pb.EndPosition(offset=20), pb.OFFSET_RESET_NONE, "OFFSET_OUT_OF_RANGE", 50),
    (LATEST, pb.OFFSET_RESET_LATEST, "", 1),
    (LATEST, pb.OFFSET_RESET_EARLIEST, "", 1),
]


@pytest.mark.parametrize(("end", "reset", "code", "position"), BEYOND)
def test_a_start_beyond_the_end_has_one_answer(
    end: pb.EndPosition, reset: pb.OffsetReset.ValueType, code: str, position: int
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        await cluster.produce(b"a")
        part = everything(start=pb.StartPosition(offset=50), end=end)
        async with subscribing(cluster, part, offset_reset=reset) as reader:
            await reader.to_the_end()
            last = reader.last[0]
            assert (last.error.code, last.end_reached, last.position) == (code, not code, position)
            assert reader.values[0] == ([b"a"] if reset == pb.OFFSET_RESET_EARLIEST else [])

    simulate(story)


@pytest.mark.parametrize("node", [1, 2, 3])
def test_a_leader_that_moves_is_followed(node: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3)
        await cluster.create(replicas=(1, 2))
        acks = common_pb2.ACKS_LEADER
        await cluster.produce(b"0", acks=acks)
        await cluster.copy_to_follower(2, "t")
        async with subscribing(cluster, everything(), node=node) as reader:
            await reader.until(1)
            await cluster.move_leader(2)
            await cluster.until_led("t", 1)
            leader = cluster.nodes[2].leader()
            await cluster.produce_at(2, b"1", acks=acks)
            await cluster.on(lambda: leader.on_position(BrokerId(1), leader.log_end_offset), 2)
            assert (await reader.until(2))[0] == [b"0", b"1"]
            assert reader.last[0].leader_epoch == 1

    simulate(story)


HISTORIES = [
    (pb.OFFSET_RESET_EARLIEST, 2, [b"a", b"b", b"c", b"c"], ""),
    (pb.OFFSET_RESET_EARLIEST, -1, [b"a", b"b", b"c", b"a", b"b", b"c"], ""),
    (pb.OFFSET_RESET_NONE, 2, [b"a", b"b", b"c"], "LOG_TRUNCATED"),
    (pb.OFFSET_RESET_NONE, 3, [b"a", b"b", b"c"], ""),
]


@pytest.mark.parametrize(("reset", "end", "expected", "code"), HISTORIES)
def test_where_the_log_has_another_history_it_goes_back(
    reset: pb.OffsetReset.ValueType, end: int, expected: list[bytes], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read beyond `end` was lost with its leader. The next one is asked with the epoch of what was read."""
    asked = []

    def diverging(fetch: PartitionFetch, replica: LeaderReplica) -> Fetched | None:
        asked.append((fetch.fetch_offset, fetch.last_fetched_epoch))
        if asked[-1] != (3, 0):
            return None
        here = epoch_end(LeaderEpoch(0 if end >= 0 else -1), Offset(end))
        return Fetched(diverged(fetch, here, high_watermark=replica.high_watermark, log_start=Offset(0)))

    async def story(cluster: Cluster) -> None:
        asked.clear()
        await cluster.start()
        await cluster.create()
        for value in (b"a", b"b", b"c"):
            await cluster.produce(value)
        async with subscribing(cluster, everything(), offset_reset=reset) as reader:
            await reader.until(3)
            monkeypatch.setattr("streamlog.services.batches.fetch_stream.diverging", diverging)
            await cluster.raise_leader_epoch()
            while reader.values[0] != expected or (3, 0) not in asked or (code and not reader.last[0].error.code):
                assert await reader.next() is not None
            assert reader.last[0].error.code == code

    simulate(story)


def test_partitions_that_are_added_are_read_from_their_beginning() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(registered=(1,))
        await cluster.create()
        async with subscribing(cluster, everything(start=pb.StartPosition())) as reader:
            await asyncio.sleep(1)
            await cluster.grow("t", 3)
            for index in range(3):
                await cluster.produce_at(None, b"%d" % index, partition=index)
            values = await reader.until(3)
            assert values == {0: [b"0"], 1: [b"1"], 2: [b"2"]}

    simulate(story)


def test_a_topic_that_is_deleted_ends_its_partitions() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(partitions=2)
        async with subscribing(cluster, everything()) as reader:
            await asyncio.sleep(1)
            await cluster.delete("t")
            await reader.to_the_end()
            assert {news.error.code for news in reader.last.values()} == {"UNKNOWN_TOPIC_ID"}

    simulate(story)


def test_the_deletion_of_a_topic_is_kept_once_for_a_client_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[str] = []
    fail = PartitionPlacement._fail

    def counted(placement: PartitionPlacement, partition: SubscribedPartition, error: StreamlogError) -> None:
        failed.append(str(partition.topic_partition))
        fail(placement, partition, error)

    monkeypatch.setattr(PartitionPlacement, "_fail", counted)

    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(partitions=2)
        for _ in range(20):
            await cluster.produce(bytes(100_000))
        async with subscribing(cluster, everything()) as reader:
            await asyncio.sleep(1)
            await cluster.delete("t")
            for number in range(5):
                await cluster.create(f"other-{number}")
            await asyncio.sleep(1)
            assert failed == ["t-0", "t-1"]
            await reader.to_the_end()
            assert {news.error.code for news in reader.last.values()} == {"UNKNOWN_TOPIC_ID"}

    simulate(story)


def test_responses_are_bounded_and_a_record_that_is_too_large_is_announced() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        for _ in range(4):
            await cluster.produce(*[bytes(10_000)] * 5)
        async with subscribing(cluster, everything(end=LATEST), response_bytes_max=40_000) as reader:
            while (response := await reader.next()) is not None:
                assert response.ByteSize() <= 40_000
            assert len(reader.values[0]) == 20
        await cluster.produce(bytes(90_000))
        async with subscribing(cluster, everything(), receive_bytes_max=50_000) as reader:
            await reader.to_the_end()
            assert len(reader.values[0]) == 20
            assert (reader.last[0].error.code, reader.last[0].position) == ("MESSAGE_TOO_LARGE", 20)

    simulate(story)


def test_a_slow_reader_slows_only_itself_and_gets_everything() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create()
        async with subscribing(cluster, everything(), node=2) as slow, subscribing(cluster, everything()) as quick:
            for index in range(50):
                await cluster.produce(b"%d" % index * 20_000)
                await quick.until(index + 1)
            assert (await slow.until(50))[0] == quick.values[0]

    simulate(story)


def test_headers_keys_and_nulls_arrive_as_they_were_written() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        header = [pb.Header(key="h", value=b"v"), pb.Header(key="h")]
        message = pb.PublishRecord(key=b"k", headers=header, timestamp_ms=5)
        for codec in (common_pb2.COMPRESSION_NONE, common_pb2.COMPRESSION_ZSTD):
            options = pb.PublishOptions(compression=codec)
            request = pb.PublishRequest(topic="t", records=[message], options=options)
            await cluster.call("/streamlog.v1.Records/Publish", request, pb.PublishResponse)
        async with subscribing(cluster, everything(end=LATEST)) as reader:
            records = []
            while (response := await reader.next()) is not None:
                records += [record for news in response.partitions for record in news.records]
            for offset, record in enumerate(records):
                assert (record.offset, record.key, record.timestamp_ms) == (offset, b"k", 5)
                assert not record.HasField("value")
                assert [(one.key, one.HasField("value")) for one in record.headers] == [("h", True), ("h", False)]
                assert record.timestamp_type == common_pb2.TIMESTAMP_TYPE_CREATE_TIME
            assert len(records) == 2

    simulate(story)


POISON = [
    poison(),
    poison(codec=1),
    poison(codec=2),
    poison(codec=4),
    bytes([*batch([b"x"])[:-1], 0xEE]),  # damaged since it was written
]


async def poisoned(cluster: Cluster, *bad: bytes) -> None:
    """One record before, and one behind them. They are put into the log as an older release would have."""
    await cluster.start(1)
    await cluster.create(record_validation_enable="false")
    await cluster.produce(b"before")
    for one in bad:
        await cluster.on(partial(append_unchecked, cluster.node.leader(), one))
    await cluster.produce(b"after")


def append_unchecked(leader: LeaderReplica, data: bytes) -> None:
    leader.appends.write(data, [(0, read_header(data, 0))], 1000, Acks.LEADER)


@pytest.mark.parametrize("bad", POISON)
@pytest.mark.parametrize("isolation", [common_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED, READ_COMMITTED])
def test_a_batch_that_cannot_be_decoded_ends_its_partition(bad: bytes, isolation: Any) -> None:
    async def story(cluster: Cluster) -> None:
        await poisoned(cluster, bad)
        await cluster.create("u")
        await cluster.produce(b"other", topic="u")
        wanted = [everything(), everything("u", end=LATEST)]
        async with subscribing(cluster, *wanted, isolation_level=isolation, heartbeat_interval_ms=100) as reader:
            errors = []
            while (response := await reader.next()) is not None:
                errors += [news.error for news in response.partitions if news.HasField("error")]
            [error] = errors
            assert error.code == "CORRUPT_BATCH"
            assert not error.retriable
            details = dict(error.details)
            assert (details["topic"], details["partition"]) == ("t", "0")
            assert (details["offset"], details["next_offset"]) == ("1", "2")
            assert details["reason"]
            assert b"before" in reader.values[0]
        start = pb.StartPosition(offset=2)
        async with subscribing(cluster, everything(start=start, end=LATEST)) as reader:
            assert await reader.to_the_end() == {0: [b"after"]}

    simulate(story)


def test_it_is_skipped_by_choice() -> None:
    async def story(cluster: Cluster) -> None:
        await poisoned(cluster, *POISON)
        skip = pb.CORRUPT_BATCH_POLICY_SKIP
        async with subscribing(cluster, everything(end=LATEST), on_corrupt_batch=skip) as reader:
            skipped: list[pb.SkippedBatch] = []
            while (response := await reader.next()) is not None:
                for news in response.partitions:
                    skipped += news.skipped_batches
                    assert not news.skipped_batches or news.position == news.skipped_batches[-1].next_offset
            assert reader.values[0] == [b"before", b"after"]
            assert [(one.offset, one.next_offset) for one in skipped] == [(1, 2), (2, 3), (3, 4), (4, 5), (5, 6)]
            assert all(one.reason for one in skipped)
            assert cluster.node.replicas.traffic.of("t").skipped_batches == 5

    simulate(story)


@pytest.mark.parametrize("skip", [True, False])
def test_a_marker_that_cannot_be_decoded(*, skip: bool) -> None:
    async def story(cluster: Cluster) -> None:
        await poisoned(cluster, poison(attributes=0x20))
        policy = pb.CORRUPT_BATCH_POLICY_SKIP if skip else pb.CORRUPT_BATCH_POLICY_FAIL
        wanted = everything(end=LATEST)
        async with subscribing(cluster, wanted, isolation_level=READ_COMMITTED, on_corrupt_batch=policy) as reader:
            values = await reader.to_the_end()
            assert values == {0: [b"before", b"after"] if skip else [b"before"]}
            assert reader.last[0].error.code == ("" if skip else "CORRUPT_BATCH")

    simulate(story)


def test_a_time_is_found_in_front_of_a_batch_that_cannot_be_decoded() -> None:
    """And not asked for again and again: the batch itself is where reading begins, and what is reported."""

    async def story(cluster: Cluster) -> None:
        await poisoned(cluster, poison(codec=1))
        start = pb.StartPosition(timestamp_ms=1)
        async with subscribing(cluster, everything(start=start)) as reader:
            await reader.to_the_end()
            assert reader.last[0].error.code == "CORRUPT_BATCH"

    simulate(story)


BAD = [
    (pb.SubscribeRequest(), "INVALID_REQUEST", "subscriptions"),
    (pb.SubscribeRequest(subscriptions=[everything("a/b")]), "INVALID_TOPIC", "subscriptions[0].topic"),
    (pb.SubscribeRequest(subscriptions=[everything("missing")]), "UNKNOWN_TOPIC_OR_PARTITION", "topic"),
    (pb.SubscribeRequest(subscriptions=[everything(partitions=[5])]), "UNKNOWN_TOPIC_OR_PARTITION", "partition"),
    (pb.SubscribeRequest(subscriptions=[everything()] * 2), "INVALID_REQUEST", "subscriptions[1]"),
    (pb.SubscribeRequest(subscriptions=[everything(partitions=[0, 0])]), "INVALID_REQUEST", "subscriptions[0]"),
    (
        pb.SubscribeRequest(subscriptions=[everything(start=pb.StartPosition(offset=-1))]),
        "INVALID_REQUEST",
        "subscriptions[0].start.offset",
    ),
    (
        pb.SubscribeRequest(subscriptions=[everything(end=pb.EndPosition(bound=common_pb2.OFFSET_BOUND_EARLIEST))]),
        "INVALID_REQUEST",
        "subscriptions[0].end.bound",
    ),
    (pb.SubscribeRequest(subscriptions=[everything()], response_bytes_max=-1), "INVALID_REQUEST", "response_bytes_max"),
]


@pytest.mark.parametrize(("request_", "code", "path"), BAD)
def test_bad_requests(request_: pb.SubscribeRequest, code: str, path: str) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        async with _Subscribed(cluster, request_, 1) as reader:
            with pytest.raises(StreamlogError) as caught:
                await reader.next()
            assert (caught.value.code, caught.value.details["field"]) == (code, path)

    simulate(story)


def test_a_reader_that_leaves_leaves_nothing_behind() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create()
        for node in (1, 2):
            async with subscribing(cluster, everything(), node=node) as reader:
                await cluster.produce(b"a")
                await reader.until(1)
        await asyncio.sleep(2)
        assert not cluster.node.leader()._progress.watchers  # no watcher is left

    simulate(story)


def test_what_a_subscription_held_is_given_back_when_its_client_has_gone() -> None:
    """Of streams that are not read, on a node that leads the partition and on one that reads it from another."""

    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2, queued_max_response_bytes=str(4 << 20))
        await cluster.create()
        for _ in range(20):
            await cluster.produce(bytes(100_000))
        for node in (1, 2):
            for _ in range(40):  # of which each would keep some permanently
                async with subscribing(cluster, everything(), node=node):
                    await asyncio.sleep(1)
            async with subscribing(cluster, everything(), node=node) as reader:
                assert len((await reader.until(20))[0]) == 20

    simulate(story)
