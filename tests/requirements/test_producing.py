"""REQUIREMENTS, "Producing" (transactions have tests of their own: test_transactions)."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from streamlog.api.pb import batches_pb2, common_pb2, records_pb2
from streamlog.client import EARLIEST, Consumer, Producer, murmur2
from streamlog.client.admin.values import PartitionDescription
from streamlog.errors import RequestTimedOutError
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.requirements.conftest import Ctl, Piped, until
from tests.services.raw import leader_of, produce, unary
from tests.storage.batches import batch

Topic = Callable[..., str]
KEYED = ("--property", "parse.key=true", "--property", "key.separator=:")


class ByLastByte:
    """A partitioner of the user's."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partition_count: int) -> int | None:
        return (key or b"\0")[-1] % partition_count


def where(piped: Piped, topic: str) -> dict[str, int]:
    """Of each value its partition, as streamlogctl reads them."""
    printed, _ = piped("consume", topic, "--from-beginning", "--until-end", "--output", "json")
    rows = [json.loads(line) for line in printed.splitlines()]
    return {row["value"]["text"]: row["partition"] for row in rows}


def test_by_the_hash_of_the_key(servers: str, channel: grpc.Channel, piped: Piped, topic: Topic) -> None:
    """Key -> partition by hash. By the client, streamlogctl and a node alike."""
    name = topic(partitions=5)
    keys = [f"key-{number}" for number in range(20)]
    expected = [(murmur2(key.encode()) & 0x7FFFFFFF) % 5 for key in keys]
    with Producer(bootstrap_servers=servers) as producer:
        sent = [producer.send(name, b"client " + key.encode(), key=key.encode()) for key in keys]
        assert [one.result(30).partition for one in sent] == expected
    records = [records_pb2.PublishRecord(key=key.encode(), value=b"node " + key.encode()) for key in keys]
    request = records_pb2.PublishRequest(topic=name, records=records)
    answer = unary(channel, "Records/Publish", request, records_pb2.PublishResponse)
    assert [one.partition for one in answer.results] == expected
    piped("produce", name, *KEYED, stdin="".join(f"{key}:ctl {key}\n" for key in keys))
    found = where(piped, name)
    for who in ("client", "node", "ctl"):
        assert [found[f"{who} {key}"] for key in keys] == expected


@pytest.mark.parametrize("partitioner", ["default", "round-robin", "random"])
def test_without_a_key(servers: str, piped: Piped, topic: Topic, partitioner: str) -> None:
    """without a key spread over partitions (sticky; round-robin; random)"""
    name = topic(partitions=3)
    with Producer(bootstrap_servers=servers, partitioner_class=partitioner, batch_size=1_000, linger_ms=0) as producer:
        sent = [producer.send(name, bytes(100)) for _ in range(300)]
        counts = Counter(one.result(30).partition for one in sent)
        chosen = [one.result().partition for one in sent]
    assert set(counts) == {0, 1, 2}
    changes = sum(one != other for one, other in itertools.pairwise(chosen))
    match partitioner:
        case "default":
            assert changes < 100  # it stays until a batch is full
        case "round-robin":
            assert set(counts.values()) == {100}
            assert changes == 299
        case "random":
            assert 100 < changes < 299
    piped("produce", name, "--partitioner", partitioner, stdin="one line\n")


def test_integer_keys(channel: grpc.Channel, servers: str, piped: Piped, topic: Topic) -> None:
    """integer-key modulo (keys 0,1,2... land on partitions 0,1,2...)"""
    name = topic(partitions=3)
    with Producer(bootstrap_servers=servers, partitioner_class="integer-modulo") as producer:
        sent = [producer.send(name, b"client %d" % number, key=b"%d" % number) for number in range(9)]
        assert [one.result(30).partition for one in sent] == [0, 1, 2] * 3
    request = records_pb2.PublishRequest(
        topic=name,
        records=[records_pb2.PublishRecord(key=b"%d" % number) for number in range(9)],
        options=records_pb2.PublishOptions(partitioner=records_pb2.PARTITIONER_INTEGER_MODULO),
    )
    answer = unary(channel, "Records/Publish", request, records_pb2.PublishResponse)
    assert [one.partition for one in answer.results] == [0, 1, 2] * 3
    again = topic(partitions=3)
    lines = "".join(f"{number}:{number}\n" for number in range(9))
    piped("produce", again, "--partitioner", "integer-modulo", *KEYED, stdin=lines)
    assert where(piped, again) == {str(number): number % 3 for number in range(9)}


def test_a_class_of_the_users(servers: str, piped: Piped, topic: Topic) -> None:
    """a partitioner class of the user's"""
    name = topic(partitions=4)
    with Producer(bootstrap_servers=servers, partitioner=ByLastByte()) as producer:
        assert producer.send(name, b"client", key=b"x\x06").result(30).partition == 2
    own = f"{__name__}.ByLastByte"
    piped("produce", name, "--partitioner", own, *KEYED, stdin="1:49 is its byte\n")
    assert where(piped, name)["49 is its byte"] == 49 % 4


def test_batching(directory: Path, servers: str, topic: Topic, ctl: Ctl) -> None:
    """Batching by size and time (latency against throughput)."""
    name = topic(replication_factor=3)
    log = directory / "node-1" / f"{name}-0" / f"{'0' * 20}.log"

    def batches() -> int:
        return ctl("dump", "--shallow-iteration", str(log)).count("baseOffset: ")

    with Producer(bootstrap_servers=servers, linger_ms=0) as producer:
        for _ in range(10):
            producer.send(name, b"at once").result(30)
    assert batches() == 10
    with Producer(bootstrap_servers=servers, linger_ms=1_000) as producer:
        sent = [producer.send(name, b"after a second") for _ in range(100)]
        assert sent[-1].result(30).offset == 109
    assert batches() == 11
    with Producer(bootstrap_servers=servers, linger_ms=60_000, batch_size=1_100) as producer:
        full = [producer.send(name, b"%098d" % number) for number in range(15)]
        assert full[0].result(30).offset == 110  # a full batch does not wait for the time
        assert not full[-1].done()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compression(
    directory: Path, streamlog_cluster: InProcessCluster, servers: str, piped: Piped, ctl: Ctl, topic: Topic, codec: str
) -> None:
    """Compression on the producer: gzip, snappy, lz4, zstd; brokers store it as it is; consumers decompress."""
    name = topic()
    value = b"again and " * 1_000
    with Producer(bootstrap_servers=servers, compression_type=codec) as producer:
        producer.send(name, value).result(30)
    piped("produce", name, "--compression", codec, stdin="by streamlogctl\n" * 500)
    for node in streamlog_cluster.node_ids:
        log = directory / f"node-{node}" / f"{name}-0" / f"{'0' * 20}.log"
        assert log.stat().st_size < 5_000
        lines = ctl("dump", "--shallow-iteration", str(log)).splitlines()[2:]
        assert lines
        assert all(f"compresscodec: {codec} " in line.lower() for line in lines)
    with Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign([(name, 0)], start=EARLIEST)
        assert consumer.poll(1, timeout_s=30)[0].value == value
    with grpc.insecure_channel(leader_of(streamlog_cluster.address(1), name)) as channel:
        at = batches_pb2.FetchPartition(topic=name)
        answer = unary(channel, "Batches/Fetch", batches_pb2.FetchRequest(partitions=[at]), batches_pb2.FetchResponse)
    stored = (directory / "node-1" / f"{name}-0" / f"{'0' * 20}.log").read_bytes()
    assert answer.partitions[0].batches == stored


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(streamlog_cluster: InProcessCluster, servers: str, piped: Piped, topic: Topic, acks: str) -> None:
    """acks 0, 1, all"""
    name = topic(replication_factor=3)
    # Until its leader takes records: with acks=0 a refusal is not reported.
    with Producer(bootstrap_servers=servers) as producer:
        producer.send(name, b"first").result(30)
    with Producer(bootstrap_servers=servers, acks=acks, enable_idempotence=acks == "all") as producer:
        offset = producer.send(name, b"client").result(30).offset
        assert offset == (-1 if acks == "0" else 1)
    piped("produce", name, "--acks", acks, stdin="ctl\n")
    wire = {"0": common_pb2.ACKS_NONE, "1": common_pb2.ACKS_LEADER, "all": common_pb2.ACKS_ALL}[acks]
    assert produce(streamlog_cluster.address(1), name, batch([b"raw"]), wire) == (-1 if acks == "0" else 3)
    read, _ = piped("consume", name, "--from-beginning", "--max-messages", "4")
    assert read == "first\nclient\nctl\nraw\n"


def test_acks_all_wants_enough_replicas(servers: str, topic: Topic, streamlog_cluster: InProcessCluster) -> None:
    """acks 0, 1, all: what is acknowledged by all is on as many disks as `min.insync.replicas` says."""
    name = topic(replication_factor=2, min_insync_replicas="2")

    def state() -> PartitionDescription:
        return streamlog_cluster.with_admin(lambda admin: admin.describe_topic(name)).partitions[0]

    followers = state().replicas
    streamlog_cluster.stop_node(followers[1])
    try:
        until(lambda: state().isr == (followers[0],))
        with (
            Producer(
                bootstrap_servers=servers, delivery_timeout_ms=3_000, request_timeout_ms=1_000, linger_ms=0
            ) as one,
            Producer(bootstrap_servers=servers, acks="1", enable_idempotence=False) as other,
        ):
            with pytest.raises(RequestTimedOutError, match="NOT_ENOUGH_REPLICAS"):
                one.send(name, b"refused").result(30)
            assert other.send(name, b"taken").result(30).offset == 0
    finally:
        streamlog_cluster.start_node(followers[1])


def test_retries(streamlog_cluster: InProcessCluster, servers: str, topic: Topic) -> None:
    """retries without duplicates or reordering (idempotent by default)"""
    name = topic()
    with grpc.insecure_channel(leader_of(streamlog_cluster.address(1), name)) as channel:
        made = unary(
            channel, "Batches/InitProducerId", batches_pb2.InitProducerIdRequest(), batches_pb2.InitProducerIdResponse
        )

        produce(streamlog_cluster.address(1), name, batch([b"without a producer"]))

        def send(sequence: int) -> batches_pb2.ProduceResult:
            one = batch([b"%d" % sequence], producer=(made.producer_id, made.producer_epoch, sequence))
            part = batches_pb2.PartitionBatches(topic=name, batches=one)
            request = batches_pb2.ProduceRequest(partitions=[part])
            return unary(channel, "Batches/Produce", request, batches_pb2.ProduceResponse).results[0]

        assert [send(sequence).base_offset for sequence in (0, 1, 0, 1, 2)] == [1, 2, 1, 2, 3]
        assert send(4).error.code == "OUT_OF_ORDER_SEQUENCE"
    with Producer(bootstrap_servers=servers) as producer:
        # The leader goes while it is written to; what was not answered is sent again to the next.
        leader = streamlog_cluster.with_admin(lambda admin: admin.describe_topic(name)).partitions[0].leader
        assert leader is not None
        sent = [producer.send(name, b"before %d" % number) for number in range(200)]
        streamlog_cluster.stop_node(leader)
        try:
            sent += [producer.send(name, b"after %d" % number) for number in range(200)]
            offsets = [one.result(60).offset for one in sent]
        finally:
            streamlog_cluster.start_node(leader)
    assert offsets == list(range(4, 404))


def test_console_producer(piped: Piped, topic: Topic) -> None:
    """Console producer: each line of standard input is a record; keys by `--property
    parse.key=true`, `key.separator`.
    """
    name = topic()
    piped("produce", "--topic", name, stdin="first\n\nthird: with a colon\n")
    piped("produce", "--topic", name, *KEYED, stdin="anna:tea\n:empty key\nbert:a:b\n")
    printed, _ = piped("consume", name, "--from-beginning", "--until-end", "--property", "print.key=true")
    lines = ["null\tfirst", "null\t", "null\tthird: with a colon", "anna\ttea", "\tempty key", "bert\ta:b"]
    assert printed.splitlines() == lines
