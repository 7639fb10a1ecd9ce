"""REQUIREMENTS, "Consuming" (groups, their commits and their tools have tests of their own)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import grpc
import pytest

from streamlog.api.pb import batches_pb2, records_pb2
from streamlog.api.pb.common_pb2 import OFFSET_BOUND_EARLIEST, OFFSET_BOUND_LATEST
from streamlog.client import EARLIEST, LATEST, AtTime, Consumer, ConsumerRecord, Producer
from streamlog.errors import OffsetOutOfRangeError
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.requirements.conftest import Ctl, Piped
from tests.services.raw import leader_of, stream_call, unary, unary_call

Topic = Callable[..., str]


@pytest.fixture
def ten(servers: str, topic: Topic) -> str:
    """A topic of one partition with the values 0 to 9, of the times 1000 to 1009."""
    name = topic()
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(10):
            producer.send(name, b"%d" % number, timestamp_ms=1_000 + number)
    return name


def values(records: list[ConsumerRecord]) -> list[int]:
    return [int(record.value or b"-1") for record in records]


def test_pull_and_wait(streamlog_cluster: InProcessCluster, servers: str, ten: str) -> None:
    """Pull: the consumer asks from an offset and waits for data (long poll)."""
    with Producer(bootstrap_servers=servers) as producer:
        timer = threading.Timer(0.2, lambda: producer.send(ten, b"10"))
        with Consumer(bootstrap_servers=servers) as consumer:
            consumer.assign([(ten, 0)], start=10)
            assert consumer.poll(timeout_s=0) == []
            timer.start()
            assert values(consumer.poll(timeout_s=30)) == [10]
        timer.join()
        with grpc.insecure_channel(leader_of(streamlog_cluster.address(1), ten)) as channel:
            asked = batches_pb2.FetchRequest(
                settings=batches_pb2.FetchSettings(wait_ms_max=20_000),
                partitions=[batches_pb2.FetchPartition(topic=ten, fetch_offset=11)],
            )
            waiting = unary_call(channel, "Batches/Fetch").future(asked.SerializeToString(), timeout=30)
            producer.send(ten, b"11").result(30)
            answer = batches_pb2.FetchResponse.FromString(waiting.result())
            assert answer.partitions[0].high_watermark == 12


def test_a_consumer_owns_its_offset(servers: str, ten: str) -> None:
    """It owns its offset and may move it back and read again; one consumer never disturbs another."""
    with Consumer(bootstrap_servers=servers) as one, Consumer(bootstrap_servers=servers) as other:
        one.assign([(ten, 0)], start=EARLIEST)
        other.assign([(ten, 0)], start=5)
        assert values(one.poll(3, timeout_s=30)) == [0, 1, 2]
        assert values(other.poll(2, timeout_s=30)) == [5, 6]
        one.seek((ten, 0), 1)
        assert values(one.poll(2, timeout_s=30)) == [1, 2]
        assert (one.position((ten, 0)), other.position((ten, 0))) == (3, 7)
        assert values(other.poll(10, timeout_s=30)) == [7, 8, 9]


STARTS = [
    (EARLIEST, ("--from-beginning",), records_pb2.StartPosition(bound=OFFSET_BOUND_EARLIEST), 0),
    (LATEST, ("--offset", "latest"), records_pb2.StartPosition(bound=OFFSET_BOUND_LATEST), 10),
    (4, ("--partition", "0", "--offset", "4"), records_pb2.StartPosition(offset=4), 4),
    (AtTime(1_007), ("--timestamp", "1007"), records_pb2.StartPosition(timestamp_ms=1_007), 7),
]


@pytest.mark.parametrize(("start", "flags", "position", "first"), STARTS, ids=["earliest", "latest", "offset", "time"])
def test_start_positions(
    servers: str,
    channel: grpc.Channel,
    piped: Piped,
    ten: str,
    start: object,
    flags: tuple[str, ...],
    position: records_pb2.StartPosition,
    first: int,
) -> None:
    """Start positions: the beginning (earliest), the end (latest), an offset given (partition required), a time."""
    expected = list(range(first, 10))
    with Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign([(ten, 0)], start=start)  # type: ignore[arg-type]  # each kind in turn
        assert consumer.position((ten, 0), timeout_s=30) == first
        assert values(consumer.poll(timeout_s=30) if expected else []) == expected
    printed, _ = piped("consume", ten, *flags, "--until-end")
    assert [int(line) for line in printed.splitlines()] == expected
    part = records_pb2.SubscribePartitions(
        topic=ten, start=position, end=records_pb2.EndPosition(bound=OFFSET_BOUND_LATEST)
    )
    request = records_pb2.SubscribeRequest(subscriptions=[part])
    responses = stream_call(channel, "Records/Subscribe", request)
    news = [one for data in responses for one in records_pb2.SubscribeResponse.FromString(data).partitions]
    assert [int(record.value) for one in news for record in one.records] == expected
    assert news[-1].end_reached


def test_an_offset_needs_its_partition(servers: str, piped: Piped, ten: str) -> None:
    """an offset given (partition required)"""
    _, said = piped("consume", ten, "--offset", "4", status=2)
    assert "--offset needs one partition: give it with --partition." in said
    with Consumer(bootstrap_servers=servers, auto_offset_reset="none") as consumer:
        consumer.assign([(ten, 0)], start=99)
        with pytest.raises(OffsetOutOfRangeError, match=r"offset 99 is not in 0\.\.10"):
            consumer.poll(timeout_s=30)


def test_offsets_by_grpc(streamlog_cluster: InProcessCluster, ten: str) -> None:
    """Start positions: the beginning (earliest), the end (latest), a time."""
    with grpc.insecure_channel(leader_of(streamlog_cluster.address(1), ten)) as channel:
        places = [{"bound": 1}, {"bound": 2}, {"timestamp_ms": 1_007}, {"timestamp_ms": 9_999}]
        request = batches_pb2.ListOffsetsRequest(
            queries=[batches_pb2.OffsetQuery(topic=ten, **place) for place in places]  # type: ignore[arg-type]
        )
        answer = unary(channel, "Batches/ListOffsets", request, batches_pb2.ListOffsetsResponse)
    assert [one.offset for one in answer.offsets] == [0, 10, 7, -1]


def test_console_consumer(piped: Piped, ctl: Ctl, topic: Topic) -> None:
    """Console consumer: `--topic`, `--from-beginning`, `--offset` + `--partition`, `--max-messages`, `--property
    print.key=true` and the like.
    """
    name = topic(partitions=2)
    keyed = ("--property", "parse.key=true", "--property", "key.separator==")
    piped("produce", name, "--partition", "1", *keyed, stdin="".join(f"k{n}=v{n}\n" for n in range(6)))
    printed, said = piped("consume", "--topic", name, "--from-beginning", "--max-messages", "4")
    assert (printed, said) == ("v0\nv1\nv2\nv3\n", "Processed a total of 4 messages\n")
    shown = [
        part
        for text in ("print.key=true", "print.partition=true", "print.offset=true", "key.separator=|")
        for part in ("--property", text)
    ]
    printed, _ = piped("consume", "--topic", name, "--partition", "1", "--offset", "4", "--until-end", *shown)
    assert printed == "Partition:1|Offset:4|k4|v4\nPartition:1|Offset:5|k5|v5\n"
    printed, _ = piped("consume", name, "--partition", "1", "--from-beginning", "--max-messages", "1", "-o", "json")
    row = json.loads(printed)
    assert (row["topic"], row["partition"], row["offset"], row["key"]["text"], row["value"]["text"]) == (
        name,
        1,
        0,
        "k0",
        "v0",
    )
