"""Publish and its stream over the simulated network: served by any node, exact by their token."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status as RpcStatus

from streamlog.api.convert.records.publish import new_record
from streamlog.api.pb import admin_pb2, common_pb2
from streamlog.api.pb import records_pb2 as pb
from streamlog.client.producer.partitioner import hash_partition
from streamlog.errors import StreamlogError
from streamlog.model import BrokerId, PartitionId
from streamlog.ports import RpcError
from streamlog.services.records import producer_token
from streamlog.services.records.producer_token import decode_token
from streamlog.services.records.publish import STICKY_BYTES
from streamlog.sim import Order
from tests.services.records.publish_calls import RECORDS, answers, log, log_values, publish, records, token
from tests.services.world import ADMIN, Cluster, simulate


@pytest.mark.parametrize("node", [1, 2])
def test_any_node_takes_records_and_tells_where_they_are(node: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create(partitions=3)
        header = pb.Header(key="h", value=b"v")
        messages = [
            pb.PublishRecord(key=b"k%d" % index, value=b"%d" % index, timestamp_ms=1_000 + index, headers=[header])
            for index in range(20)
        ]
        returned = (await publish(cluster, *messages, node=node)).results
        assert [result.partition for result in returned] == [hash_partition(b"k%d" % index, 3) for index in range(20)]
        for index, result in enumerate(returned):
            record = (await log(cluster, result.partition))[result.offset]
            assert (record.key, record.value, record.timestamp) == (b"k%d" % index, b"%d" % index, 1_000 + index)
            assert record.headers == (("h", b"v"),)
            assert result.timestamp_ms == 1_000 + index

    simulate(story)


@pytest.mark.parametrize("codec", ["GZIP", "SNAPPY", "LZ4", "ZSTD", "NONE"])
def test_records_are_compressed_as_asked(codec: str) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        await publish(cluster, *records(b"a" * 500), options={"compression": f"COMPRESSION_{codec}"})
        assert await log_values(cluster) == [b"a" * 500]
        assert (cluster.node.leader().log.size_bytes < 400) == (codec != "NONE")

    simulate(story)


def test_partitioners() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(partitions=4)

        async def chosen(kind: int, *messages: pb.PublishRecord) -> list[int]:
            returned = await publish(cluster, *messages, options={"partitioner": kind})
            return [result.partition for result in returned.results]

        turns = await chosen(pb.PARTITIONER_ROUND_ROBIN, *records(*[b"v"] * 8, key=b"same"))
        assert sorted(turns) == [0, 0, 1, 1, 2, 2, 3, 3]
        keys = [pb.PublishRecord(key=b"%d" % number) for number in (0, 1, 2, 3, 4, -1)]
        assert await chosen(pb.PARTITIONER_INTEGER_MODULO, *keys) == [0, 1, 2, 3, 0, 3]
        assert len(set(await chosen(pb.PARTITIONER_KEY_HASH, *records(*[b"v"] * 10)))) == 1  # sticky
        large = bytes(STICKY_BYTES * 2 // 3)
        assert len(set(await chosen(pb.PARTITIONER_KEY_HASH, *records(large, large)))) == 2  # until it is full
        assert len(set(await chosen(pb.PARTITIONER_RANDOM, *records(*[b"v"] * 50, key=b"same")))) == 4
        assert await chosen(pb.PARTITIONER_KEY_HASH, *records(b"v", partition=2, key=b"k")) == [2]

    simulate(story)


def test_acks_none_tells_no_offsets() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create()
        for node in (1, 2):
            returned = await publish(cluster, *records(b"a"), node=node, options={"acks": common_pb2.ACKS_NONE})
            assert [result.offset for result in returned.results] == [-1]
        assert await log_values(cluster) == [b"a", b"a"]

    simulate(story)


MANY_HEADERS = [pb.Header(key="h")] * 1_001
WORD = records(b"a", key=b"x")
BAD = [
    ("no records", {"messages": []}, "INVALID_REQUEST", "records"),
    ("no topic", {"topic": ""}, "INVALID_TOPIC", "topic"),
    ("a path", {"topic": "../x"}, "INVALID_TOPIC", "topic"),
    ("the cluster's own", {"topic": "__consumer_offsets"}, "INVALID_TOPIC", "topic"),
    ("missing topic", {"topic": "missing"}, "UNKNOWN_TOPIC_OR_PARTITION", "topic"),
    ("partition", {"messages": records(b"a", partition=7)}, "UNKNOWN_TOPIC_OR_PARTITION", "records[0].partition"),
    ("negative partition", {"messages": records(b"a", partition=-1)}, "INVALID_REQUEST", "records[0].partition"),
    ("negative time", {"messages": records(b"a", timestamp_ms=-5)}, "INVALID_REQUEST", "records[0].timestamp_ms"),
    ("future", {"messages": records(b"a", timestamp_ms=2**50)}, "INVALID_TIMESTAMP", "records[0].timestamp_ms"),
    ("too large", {"messages": records(bytes(1 << 20))}, "MESSAGE_TOO_LARGE", "records[0]"),
    ("all", {"messages": records(bytes(1 << 20), b"a" * (1 << 20))}, "MESSAGE_TOO_LARGE", "records[0]"),
    ("headers", {"messages": records(b"a", headers=MANY_HEADERS)}, "INVALID_REQUEST", "records[0].headers"),
    ("acks", {"options": {"acks": 9}}, "INVALID_REQUEST", "options.acks"),
    ("codec", {"options": {"compression": 9}}, "INVALID_REQUEST", "options.compression"),
    ("partitioner", {"options": {"partitioner": 9}}, "INVALID_REQUEST", "options.partitioner"),
    ("a word", {"messages": WORD, "options": {"partitioner": 4}}, "INVALID_RECORD", "records[0].key"),
    ("token", {"producer_token": b"\1\2\3"}, "INVALID_REQUEST", "producer_token"),
    ("long token", {"producer_token": bytes(70_000)}, "INVALID_REQUEST", "producer_token"),
]


@pytest.mark.parametrize(("fields", "code", "path"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_requests_write_nothing(fields: dict[str, Any], code: str, path: str) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        given = dict(fields)
        messages = given.pop("messages", records(b"a"))
        with pytest.raises(StreamlogError) as caught:
            await publish(cluster, *messages, **given)
        assert (caught.value.code, caught.value.details["field"]) == (code, path)
        assert cluster.node.leader().log_end_offset == 0

    simulate(story)


def test_a_compacted_topic_needs_keys() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(cleanup_policy="compact")
        written, refused = (
            await publish(cluster, pb.PublishRecord(key=b"k", value=b"v"), pb.PublishRecord(value=b"v"))
        ).results
        assert (written.offset, written.HasField("error")) == (0, False)
        assert (refused.error.code, refused.error.details["field"]) == ("INVALID_RECORD", "records[1].key")
        messages, current = [pb.PublishRecord(key=b"k"), pb.PublishRecord(value=b"v")], await token(cluster)
        with pytest.raises(StreamlogError) as caught:  # with a token all or nothing
            await publish(cluster, *messages, producer_token=current)
        assert (caught.value.code, caught.value.details["field"]) == ("INVALID_RECORD", "records[1].key")
        assert cluster.node.leader().log_end_offset == 1

    simulate(story)


async def on_stream(cluster: Cluster, *messages: pb.PublishRecord, token: bytes = b"") -> list[pb.PublishResult]:
    """By one request of a stream, which goes on."""
    async with cluster.stream(RECORDS + "PublishStream", pb.PublishStreamResponse) as calls:
        await calls.send(pb.PublishStreamRequest(topic="t", records=messages, producer_token=token))
        await calls.send(pb.PublishStreamRequest(records=records(b"next", partition=1)))
        first, following = await answers(calls, 2)
        assert not following.results[0].HasField("error")
        return list(first.results)


@pytest.mark.parametrize("way", ["Publish", "PublishStream"])
def test_a_bad_record_fails_alone_with_its_own_message(way: str) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(partitions=2)
        messages = [
            pb.PublishRecord(value=b"a", partition=0),
            pb.PublishRecord(value=bytes(1 << 20)),
            pb.PublishRecord(value=b"b", partition=9),
            pb.PublishRecord(value=b"c", timestamp_ms=-1),
            pb.PublishRecord(value=b"d", timestamp_ms=2**50),
            pb.PublishRecord(value=b"e", headers=MANY_HEADERS),
            pb.PublishRecord(value=b"f", partition=1),
            pb.PublishRecord(value=b"g", partition=0),
        ]
        if way == "Publish":
            results = list((await publish(cluster, *messages)).results)
        else:
            results = await on_stream(cluster, *messages)
        written = [(one.partition, one.offset) for one in results if not one.HasField("error")]
        assert written == [(0, 0), (1, 0), (0, 1)]
        assert [one.error.code for one in results] == [
            "",
            "MESSAGE_TOO_LARGE",
            "UNKNOWN_TOPIC_OR_PARTITION",
            "INVALID_REQUEST",
            "INVALID_TIMESTAMP",
            "INVALID_REQUEST",
            "",
            "",
        ]
        for index in (1, 2, 3, 4, 5):
            assert f"record {index}" in results[index].error.message
            assert results[index].offset == -1
        assert await log_values(cluster) == [b"a", b"g"]
        assert await log_values(cluster, partition=1) == [b"f", b"next"][: 1 if way == "Publish" else 2]

    simulate(story)


def test_on_a_stream_with_a_token_what_the_request_itself_says_fails_alone() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(partitions=2)
        messages = [
            pb.PublishRecord(value=b"a", partition=0),
            pb.PublishRecord(value=b"b", partition=9),
            pb.PublishRecord(value=b"c", timestamp_ms=-1),
            pb.PublishRecord(value=b"e", headers=MANY_HEADERS),
            pb.PublishRecord(value=b"g", partition=0),
        ]
        results = await on_stream(cluster, *messages, token=await token(cluster))
        codes = ["", "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_REQUEST", "INVALID_REQUEST", ""]
        assert [one.error.code for one in results] == codes
        assert await log_values(cluster) == [b"a", b"g"]

    simulate(story)


@pytest.mark.parametrize("way", ["Publish", "PublishStream"])
def test_a_record_that_is_too_large_by_its_headers_fails_alone(way: str) -> None:
    """Lengths of keys and values count too."""

    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(partitions=2, max_message_bytes="100000")
        headers = [pb.Header(key="h", value=b"")] * 900
        large = pb.PublishRecord(value=bytes(100_000 - 61 - 64 - 900), headers=headers, partition=0)
        assert new_record(large, 0, 0).size_bytes == len(large.value) + 900, "the partition choice of earlier versions"
        messages = [large, *records(b"a", partition=0)]
        if way == "Publish":
            bad, good = (await publish(cluster, *messages)).results
        else:
            bad, good = await on_stream(cluster, *messages)
        assert (bad.error.code, good.offset) == ("MESSAGE_TOO_LARGE", 0)
        assert await log_values(cluster) == [b"a"]

    simulate(story)


def test_a_key_that_is_no_integer_fails_alone() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(partitions=2)
        keys = [pb.PublishRecord(key=key) for key in (b"1", b"x", b"3")]
        one, bad, three = (await publish(cluster, *keys, options={"partitioner": 4})).results
        assert (one.partition, bad.error.code, three.partition) == (1, "INVALID_RECORD", 1)

    simulate(story)


def test_ten_thousand_refused_records_fit_a_response() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        response = await publish(cluster, *records(b"a"), *records(*[b"b"] * 9_999, partition=7))
        assert response.ByteSize() < 4 << 20
        assert all(one.error.message for one in response.results[1:])
        assert await log_values(cluster) == [b"a"]

    simulate(story)


def retries(error: StreamlogError) -> bool:
    """Whether a client of any language is advised to retry."""
    rpc_error = error.__context__
    assert isinstance(rpc_error, RpcError)
    details = RpcStatus.FromString(rpc_error.details_bin).details
    return any(detail.Is(RetryInfo.DESCRIPTOR) for detail in details)


def test_a_wrong_topic_is_not_retriable_but_a_new_one_is_waited_for() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        with pytest.raises(StreamlogError) as caught:
            await publish(cluster, *records(b"a"), topic="tpyo")
        assert (caught.value.code, retries(caught.value)) == ("UNKNOWN_TOPIC_OR_PARTITION", False)
        early = asyncio.ensure_future(publish(cluster, *records(b"a")))
        await asyncio.sleep(0.2)
        await cluster.create()
        assert (await early).results[0].offset == 0

    simulate(story)


def test_what_is_not_confirmed_in_time_is_unknown() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 3)
        await cluster.create(replicas=(1, 2))
        for node in (1, 3):
            with pytest.raises(StreamlogError) as caught:
                await publish(cluster, *records(b"a"), node=node, options={"timeout_ms": 800})
            assert (caught.value.code, retries(caught.value)) == ("OUTCOME_UNKNOWN", False)
            current = await token(cluster)
            with pytest.raises(StreamlogError) as caught:  # this one may be repeated
                await publish(cluster, *records(b"a"), node=node, producer_token=current, options={"timeout_ms": 800})
            assert (caught.value.code, retries(caught.value)) == ("OUTCOME_UNKNOWN", True)
        assert cluster.node.leader().log_end_offset == 4

    simulate(story)


def test_what_was_certainly_not_written_is_tried_again() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1)
        await cluster.create(replicas=(2, 1))  # node 2 leads, and does not run
        options = {"acks": common_pb2.ACKS_LEADER, "timeout_ms": 800}
        with pytest.raises(StreamlogError) as caught:
            await publish(cluster, *records(b"in vain"), options=options)
        assert caught.value.code in ("BROKER_NOT_AVAILABLE", "LEADER_NOT_AVAILABLE")
        assert retries(caught.value)
        waiting = asyncio.ensure_future(publish(cluster, *records(b"a"), options={**options, "timeout_ms": 30_000}))
        await asyncio.sleep(1)
        assert not waiting.done()
        await cluster.move_leader(1)
        await cluster.until_led("t", 1)
        assert (await waiting).results[0].offset == 0
        leader = cluster.node.leader()
        assert leader.log_end_offset == 1

    simulate(story)


def test_a_repetition_with_the_same_token_writes_nothing_twice() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create(partitions=3)
        current = await token(cluster)
        offsets: list[list[tuple[int, int]]] = []
        for turn in range(5):
            messages = records(*(b"%d.%d" % (turn, index) for index in range(7)))
            partitioner = 1 + turn % 3
            tries = [
                await publish(
                    cluster, *messages, node=node, producer_token=current, options={"partitioner": partitioner}
                )
                for node in (1, 2, 1)
            ]
            places = [[(result.partition, result.offset) for result in one.results] for one in tries]
            assert places[0] == places[1] == places[2]
            assert len({one.producer_token for one in tries}) == 1
            current = tries[0].producer_token
            offsets += places[:1]
        total = [value for index in range(3) for value in await log_values(cluster, partition=index)]
        assert sorted(total) == sorted(b"%d.%d" % (turn, index) for turn in range(5) for index in range(7))

    simulate(story)


def test_a_repetition_is_exact_though_the_topic_has_grown() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(partitions=2)
        first = await publish(cluster, *records(b"a"), producer_token=await token(cluster))
        messages = [pb.PublishRecord(key=b"k%d" % index, value=b"%d" % index) for index in range(10)]
        returned = await publish(cluster, *messages, producer_token=first.producer_token)
        await cluster.grow("t", 5)
        again = await publish(cluster, *messages, producer_token=first.producer_token)
        assert [(r.partition, r.offset) for r in again.results] == [(r.partition, r.offset) for r in returned.results]

    simulate(story)


def test_a_token_of_a_node_that_knows_more_partitions_waits_for_them() -> None:
    """The topic grows, a node that has applied that returns a token, and the next request goes to one that has not."""

    async def story(cluster: Cluster) -> None:
        await cluster.start(1, registered=(1,))
        await cluster.create(partitions=2)
        topic_id = cluster.node.view.image.require_topic("t").topic_id
        given = decode_token(await token(cluster)).after(topic_id, 5, {PartitionId(0): 0})
        messages = [pb.PublishRecord(value=b"%d" % index, partition=index) for index in range(5)]
        early = asyncio.ensure_future(publish(cluster, *messages, producer_token=given.encode()))
        await asyncio.sleep(1)
        assert not early.done()
        await cluster.grow("t", 5)
        assert [(result.partition, result.offset) for result in (await early).results] == [(i, 0) for i in range(5)]
        beyond = given.after(topic_id, 2**31 - 1, {PartitionId(0): 0}).encode()
        with pytest.raises(StreamlogError) as caught:
            await publish(cluster, *records(b"a"), producer_token=beyond, options={"timeout_ms": 800})
        assert caught.value.code == "UNKNOWN_TOPIC_OR_PARTITION"

    simulate(story)


def test_more_batches_than_a_leader_remembers_are_still_not_written_twice() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(max_message_bytes="1000")
        current = await token(cluster)
        messages = records(*(bytes([65 + index]) * 600 for index in range(12)), partition=0)
        returned = await publish(cluster, *messages, producer_token=current)
        assert [result.offset for result in returned.results] == list(range(12))
        again = await publish(cluster, *messages, producer_token=current)
        assert [result.offset for result in again.results] == [-1] * 7 + list(range(7, 12))
        assert again.producer_token == returned.producer_token
        assert len(await log_values(cluster)) == 12

    simulate(story)


async def configure(cluster: Cluster, name: str, value: str) -> None:
    topic = admin_pb2.ConfigResource(type=admin_pb2.CONFIG_RESOURCE_TYPE_TOPIC, name="t")
    change = admin_pb2.ConfigAlteration(resource=topic, changes=[admin_pb2.ConfigChange(name=name, value=value)])
    request = admin_pb2.AlterConfigsRequest(alterations=[change])
    await cluster.call(ADMIN + "AlterConfigs", request, admin_pb2.AlterConfigsResponse)
    await asyncio.sleep(1)


LIMITS = [
    ("max.message.bytes", "100"),
    ("message.timestamp.before.max.ms", "1"),
    ("cleanup.policy", "compact"),
]


@pytest.mark.parametrize(("setting", "value"), LIMITS, ids=[row[0] for row in LIMITS])
@pytest.mark.parametrize("streams", [False, True], ids=["Publish", "PublishStream"])
def test_a_repetition_of_what_the_topic_would_refuse_now_is_answered_as_at_first(
    setting: str, value: str, streams: bool
) -> None:
    """Where the record was refused the second time, the sequences were others, and new records passed for old ones."""

    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create()
        given, wall = await token(cluster), cluster.node.ports.clock.wall_ms
        requests = [
            records(bytes(200), timestamp_ms=wall() - 60_000),
            [pb.PublishRecord(key=b"k", value=b"b", timestamp_ms=wall() + 60_000)],
        ]

        async def write(node: int) -> tuple[list[int], bytes]:
            if not streams:
                current, places = given, []
                for messages in requests:
                    response = await publish(cluster, *messages, producer_token=current, node=node)
                    current = response.producer_token
                    places.append(response.results[0].offset)
                return places, current
            async with cluster.stream(RECORDS + "PublishStream", pb.PublishStreamResponse, node) as calls:
                await calls.send(pb.PublishStreamRequest(topic="t", records=requests[0], producer_token=given))
                await calls.send(pb.PublishStreamRequest(records=requests[1]))
                responses = await answers(calls, 2)
                return [one.results[0].offset for one in responses], responses[-1].producer_token

        first = await write(1)
        await configure(cluster, setting, value)
        assert first == await write(2) == await write(1)
        assert len(await log_values(cluster)) == 2

    simulate(story)


def test_with_a_token_a_refused_record_comes_before_the_other_partitions() -> None:
    """The call fails, and the others are not written in vain."""

    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(partitions=3)
        messages = [*records(b"a", partition=0), *records(bytes(2 << 20), partition=1), *records(b"b", partition=2)]
        with pytest.raises(StreamlogError) as caught:
            await publish(cluster, *messages, producer_token=await token(cluster))
        assert (caught.value.code, caught.value.details["field"]) == ("MESSAGE_TOO_LARGE", "records[1]")
        assert [await log_values(cluster, partition=index) for index in range(3)] == [[], [], []]

    simulate(story)


def test_with_a_token_a_refusal_behind_written_records_does_not_say_that_nothing_was_written() -> None:
    """A client that left out the refused record and went on with the token lost the next request."""

    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(max_message_bytes="1000")
        given, messages = await token(cluster), records(bytes(800), bytes(2000), partition=0)
        with pytest.raises(StreamlogError, match=r"record 1 has 2000 bytes.*with this producer_token only") as caught:
            await publish(cluster, *messages, producer_token=given)
        error = caught.value
        assert (error.code, retries(error), error.details["field"]) == ("OUTCOME_UNKNOWN", False, "records[1]")
        assert await log_values(cluster) == [bytes(800)]
        await configure(cluster, "max.message.bytes", "2500")
        again = await publish(cluster, *messages, producer_token=given)
        assert [result.offset for result in again.results] == [0, 1]

    simulate(story)


@pytest.mark.parametrize(("before", "after"), [("1048588", "5000"), ("5000", "1048588")], ids=["lowered", "raised"])
def test_a_repetition_in_batches_of_other_sizes_is_a_success(before: str, after: str) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(max_message_bytes=before)
        given, messages = await token(cluster), records(*[bytes(1000)] * 10, partition=0)
        first = await publish(cluster, *messages, producer_token=given)
        await configure(cluster, "max.message.bytes", after)
        again = await publish(cluster, *messages, producer_token=given)
        assert [result.offset for result in again.results] == [-1] * 10
        assert again.producer_token == first.producer_token
        assert len(await log_values(cluster)) == 10

    simulate(story)


@pytest.mark.parametrize(("before", "after", "written"), [("11000", "5000", 10), ("5000", "11000", 4)])
def test_what_was_written_in_part_is_not_completed_in_batches_of_other_sizes(
    before: str, after: str, written: int
) -> None:
    """OUT_OF_ORDER_SEQUENCE had clients send all of it with another token, so what was written was doubled."""

    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(max_message_bytes=before)
        given, messages = await token(cluster), records(*[bytes(1000)] * 14, partition=0)
        await publish(cluster, *messages[:written], producer_token=given)  # the first batch of the whole, no other
        await configure(cluster, "max.message.bytes", after)
        with pytest.raises(StreamlogError, match=r"are in the log.* max.message.bytes was changed") as caught:
            await publish(cluster, *messages, producer_token=given, options={"timeout_ms": 800})
        assert (caught.value.code, retries(caught.value)) == ("OUTCOME_UNKNOWN", False)
        assert len(await log_values(cluster)) == written
        await configure(cluster, "max.message.bytes", before)
        again = await publish(cluster, *messages, producer_token=given)
        assert [result.offset for result in again.results] == list(range(14))

    simulate(story)


def test_other_records_with_a_used_token_are_not_written() -> None:
    """They pass for those of the first request, or are refused where there are more."""

    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        given = await token(cluster)
        await publish(cluster, *records(b"a", b"b"), producer_token=given)
        assert (await publish(cluster, *records(b"c"), producer_token=given)).results[0].offset == -1
        with pytest.raises(StreamlogError) as caught:
            await publish(cluster, *records(b"c", b"d", b"e"), producer_token=given, options={"timeout_ms": 800})
        assert (caught.value.code, retries(caught.value)) == ("OUTCOME_UNKNOWN", False)
        assert await log_values(cluster) == [b"a", b"b"]

    simulate(story)


@pytest.mark.parametrize("node", [1, 2])
def test_the_outcome_of_a_late_repetition_is_unknown_until_the_first_append_is_committed(node: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create(replicas=(1, 2), max_message_bytes="1000")
        given, messages = await token(cluster), records(*[bytes(600)] * 7, partition=0)
        await publish(cluster, *messages, producer_token=given, options={"acks": common_pb2.ACKS_LEADER})
        with pytest.raises(StreamlogError) as caught:
            await publish(cluster, *messages, producer_token=given, node=node, options={"timeout_ms": 800})
        assert caught.value.code == "OUTCOME_UNKNOWN"
        leader = cluster.nodes[1].leader()
        await cluster.on(lambda: leader.on_position(BrokerId(2), leader.log_end_offset), 1)
        again = await publish(cluster, *messages, producer_token=given, node=node)
        assert [result.offset for result in again.results] == [-1, -1, 2, 3, 4, 5, 6]

    simulate(story)


# -- the stream


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"records": records(b"x", timestamp_ms=2**50)}, "INVALID_TIMESTAMP"),
        ({"records": records(b"x"), "topic": "missing"}, "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_a_refusal_that_may_change_ends_a_stream_with_a_token(fields: dict[str, Any], code: str) -> None:
    """Where it went on, and the requests were sent again, those behind had the sequences of others."""

    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        given = await token(cluster)
        async with cluster.stream(RECORDS + "PublishStream", pb.PublishStreamResponse) as calls:
            await calls.send(pb.PublishStreamRequest(topic="t", records=records(b"a"), producer_token=given))
            (first,) = await answers(calls, 1)
            await calls.send(pb.PublishStreamRequest(**fields))
            await calls.send(pb.PublishStreamRequest(topic="t", records=records(b"b")))
            with pytest.raises(StreamlogError) as caught:
                await answers(calls, 1)
            assert caught.value.code == code
        assert await log_values(cluster) == [b"a"]
        again = await publish(cluster, *records(b"c"), producer_token=first.producer_token)
        assert again.results[0].offset == 1

    simulate(story)


@pytest.mark.parametrize("node", [1, 2])
@pytest.mark.parametrize("order", [Order.FIFO, Order.SHUFFLE])
def test_a_stream_answers_in_order_and_writes_in_order(node: int, order: Order) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create()
        async with cluster.stream(RECORDS + "PublishStream", pb.PublishStreamResponse, node) as calls:
            for number in range(40):
                topic = "t" if number == 0 else ""
                await calls.send(pb.PublishStreamRequest(topic=topic, records=records(b"%d" % number)))
            returned = await answers(calls, 40)
            assert [one.results[0].offset for one in returned] == list(range(40))
            assert not any(one.producer_token for one in returned)
            await calls.done_sending()
            assert await asyncio.wait_for(calls.recv(), 30) is None
        assert await log_values(cluster) == [b"%d" % number for number in range(40)]

    simulate(story, order=order)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"records": records(bytes(1 << 20), b"x" * (1 << 20))}, "MESSAGE_TOO_LARGE"),
        ({"records": records(b"x", timestamp_ms=-1)}, "INVALID_REQUEST"),
        ({"records": records(b"x", b"y"), "topic": "missing"}, "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_a_request_that_cannot_be_written_is_answered_and_the_stream_goes_on(fields: dict[str, Any], code: str) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        async with cluster.stream(RECORDS + "PublishStream", pb.PublishStreamResponse) as calls:
            await calls.send(pb.PublishStreamRequest(topic="t", records=records(b"a")))
            await calls.send(pb.PublishStreamRequest(**fields))
            await calls.send(pb.PublishStreamRequest(topic="t", records=records(b"b")))
            first, refused, third = await answers(calls, 3)
            assert [result.error.code for result in refused.results] == [code] * len(fields["records"])
            assert (first.results[0].offset, third.results[0].offset) == (0, 1)

    simulate(story)


@pytest.mark.parametrize("has_token", [False, True])
def test_only_a_token_that_is_returned_bounds_the_partitions(monkeypatch: pytest.MonkeyPatch, has_token: bool) -> None:
    """A stream without one ended at its 2,729th partition."""
    monkeypatch.setattr(producer_token, "TOKEN_BYTES_MAX", 100)

    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create(partitions=4)
        given = await token(cluster) if has_token else b""
        async with cluster.stream(RECORDS + "PublishStream", pb.PublishStreamResponse) as calls:
            for partition in range(4):
                messages = records(b"a", partition=partition)
                await calls.send(pb.PublishStreamRequest(topic="t", records=messages, producer_token=given))
                given = b""
            if has_token:
                with pytest.raises(StreamlogError, match="use a producer for each topic"):
                    await answers(calls, 4)
            else:
                assert [one.results[0].offset for one in await answers(calls, 4)] == [0] * 4

    simulate(story)


@pytest.mark.parametrize("seed", range(6))
def test_a_broken_stream_is_taken_up_again_without_loss_or_repetition(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create(partitions=2)
        current = await token(cluster)
        waiting = [records(*(b"%d.%d" % (number, index) for index in range(3))) for number in range(30)]
        dice, answered, attempt = cluster.world.stream("breaks"), 0, 0
        while waiting:
            attempt += 1
            node = 1 + attempt % 2
            async with cluster.stream(RECORDS + "PublishStream", pb.PublishStreamResponse, node) as calls:
                for place, messages in enumerate(waiting):
                    first: dict[str, Any] = {"topic": "t", "producer_token": current} if place == 0 else {}
                    await calls.send(pb.PublishStreamRequest(records=messages, **first))
                for _ in range(min(len(waiting), dice.randrange(1, 8))):
                    (returned,) = await answers(calls, 1)
                    current = returned.producer_token
                    waiting.pop(0)
                    answered += 1
        found = [value for index in range(2) for value in await log_values(cluster, partition=index)]
        assert sorted(found) == sorted(b"%d.%d" % (number, index) for number in range(30) for index in range(3))

    simulate(story, seed=seed)


def test_a_leader_that_moves_costs_neither_records_nor_order() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create(replicas=(1, 2))
        async with cluster.stream(RECORDS + "PublishStream", pb.PublishStreamResponse) as calls:
            await calls.send(pb.PublishStreamRequest(topic="t", records=records(b"0")))
            await asyncio.sleep(0.5)
            await cluster.copy_to_follower(2, "t")
            await answers(calls, 1)
            for number in range(1, 4):
                await calls.send(pb.PublishStreamRequest(records=records(b"%d" % number)))
            await asyncio.sleep(0.5)
            await cluster.move_leader(2)
            await cluster.until_led("t", 1)
            leader = cluster.nodes[2].leader()
            await cluster.until_logged(leader, 4)
            await cluster.on(lambda: leader.on_position(BrokerId(1), leader.log_end_offset), 2)
            returned = await answers(calls, 3)
            assert [one.results[0].offset for one in returned] == [1, 2, 3]
        assert await log_values(cluster, node=2) == [b"0", b"1", b"2", b"3"]

    simulate(story)
