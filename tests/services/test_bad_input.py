"""FAULTS, "Bad input", row by row on real nodes: from raw bytes, what no client library would send.

Each answer has a status, our code, and what is at fault; nothing is written, other clients are not affected. More
cases of calls and batches: test_over_grpc. Certificates and tokens have tests of their own.
"""

from __future__ import annotations

import gzip
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any

import grpc
import pytest
import zstandard
from crc32c import crc32c
from google.protobuf.message import Message

from streamlog.api.pb import admin_pb2, batches_pb2, cluster_pb2, records_pb2
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.services.raw import TIMEOUT_S, dialled, leader_of, produce, refusal, stream_call, unary, unary_call
from tests.storage.batches import batch, record

GOOD = batch([b"value"])
FORBIDDEN = {"INTERNAL", "UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED"}
CALLS_MAX = 40


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    settings = {"max.concurrent.calls": str(CALLS_MAX), "log.retention.ms": "-1"}
    with InProcessCluster(tmp_path_factory.mktemp("cluster"), settings=settings) as running:
        running.create_topic("t", replication_factor=3)
        produce(running.address(1), "t", GOOD)
        yield running


@pytest.fixture
def leader(cluster: InProcessCluster) -> Iterator[grpc.Channel]:
    """Of t-0."""
    with dialled(leader_of(cluster.address(1), "t")) as channel:
        yield channel


def packed(payload: bytes, codec: int, count: int = 1) -> bytes:
    """A batch whose records are these compressed bytes, sound but for what is in them."""
    covered = struct.pack(">hiqqqhii", codec, count - 1, 1000, 1000, -1, -1, -1, count) + payload
    return struct.pack(">qiibI", 0, len(covered) + 9, -1, 2, crc32c(covered)) + covered


def declared(count: int, last_offset_delta: int) -> bytes:
    """A batch of one record that says this of itself."""
    covered = struct.pack(">hiqqqhii", 0, last_offset_delta, 1000, 1000, -1, -1, -1, count) + record(0, b"value")
    return struct.pack(">qiibI", 0, len(covered) + 9, -1, 2, crc32c(covered)) + covered


def write(channel: grpc.Channel, **fields: Any) -> batches_pb2.ProduceResult:
    part = batches_pb2.PartitionBatches(**{"topic": "t", "batches": GOOD, **fields})
    request = batches_pb2.ProduceRequest(partitions=[part])
    return unary(channel, "Batches/Produce", request, batches_pb2.ProduceResponse).results[0]


def end_of_log(channel: grpc.Channel) -> int:
    request = batches_pb2.FetchRequest(
        settings=batches_pb2.FetchSettings(wait_ms_max=0), partitions=[batches_pb2.FetchPartition(topic="t")]
    )
    return unary(channel, "Batches/Fetch", request, batches_pb2.FetchResponse).partitions[0].high_watermark


BOMB = record(0, bytes(200 << 20))

RETRIABLE = ("UNKNOWN_LEADER_EPOCH", "CORRUPT_MESSAGE")

BAD_BATCHES = [
    ("negative count", {"batches": declared(-1, 0)}, "INVALID_RECORD"),
    ("count that does not fit", {"batches": declared(2, 5)}, "INVALID_RECORD"),
    ("packed, more records than it may unpack to", {"batches": packed(b"zstd", 4, 2**31 - 1)}, "INVALID_RECORD"),
    ("huge count", {"batches": declared(2**31 - 1, 2**31 - 2)}, "INVALID_RECORD"),
    ("more records than bytes", {"batches": declared(10, 9)}, "INVALID_RECORD"),
    ("negative length", {"batches": GOOD[:8] + struct.pack(">i", -5) + GOOD[12:]}, "INVALID_RECORD"),
    ("huge length", {"batches": GOOD[:8] + struct.pack(">i", 2**31 - 1) + GOOD[12:]}, "CORRUPT_MESSAGE"),
    ("cut in the header", {"batches": GOOD[:20]}, "CORRUPT_MESSAGE"),
    ("zeros behind", {"batches": GOOD + bytes(61)}, "UNSUPPORTED_VERSION"),
    ("a stale producer's sequence", {"batches": batch([b"v"], producer=(7, 0, -2))}, "INVALID_RECORD"),
    ("future leader epoch", {"leader_epoch": 2**31 - 1}, "UNKNOWN_LEADER_EPOCH"),
    ("control batch", {"batches": batch([b"v"], attributes=0x20)}, "INVALID_RECORD"),
]


@pytest.mark.parametrize(("fields", "code"), [case[1:] for case in BAD_BATCHES], ids=[case[0] for case in BAD_BATCHES])
def test_bad_batches_change_nothing(leader: grpc.Channel, fields: dict[str, Any], code: str) -> None:
    before = end_of_log(leader)
    result = write(leader, **fields)
    assert (result.error.code, result.error.retriable) == (code, code in RETRIABLE)
    assert result.error.message
    assert end_of_log(leader) == before


@pytest.mark.parametrize("cleanup_policy", ["delete", "compact"])
@pytest.mark.parametrize(("codec", "bomb"), [(4, zstandard.compress(BOMB)), (1, gzip.compress(BOMB, 9))])
def test_unpacking_is_bounded(cluster: InProcessCluster, codec: int, bomb: bytes, cleanup_policy: str) -> None:
    """a batch that unpacks to more than the limit: MESSAGE_TOO_LARGE, whether or not a leader must look into it."""
    name = f"{cleanup_policy}-{codec}"
    cluster.create_topic(name, configs={"cleanup.policy": cleanup_policy})
    with dialled(leader_of(cluster.address(1), name)) as channel:
        codes = iter(lambda: write(channel, topic=name, batches=packed(bomb, codec)).error.code, "MESSAGE_TOO_LARGE")
        assert set(codes) <= {"LEADER_NOT_AVAILABLE"}


def test_a_stale_leader_epoch(cluster: InProcessCluster) -> None:
    name = "fenced"
    cluster.create_topic(name, replication_factor=3)
    first = leader_of(cluster.address(1), name)
    node = next(one for one in cluster.node_ids if cluster.address(one) == first)
    produce(first, name, GOOD)
    cluster.stop_node(node)
    cluster.start_node(node)
    produce(cluster.address(node), name, GOOD)
    with dialled(leader_of(cluster.address(node), name)) as channel:
        result = write(channel, topic=name, leader_epoch=0)
        part = batches_pb2.FetchPartition(topic=name, leader_epoch=0)
        request = batches_pb2.FetchRequest(partitions=[part])
        fetched = unary(channel, "Batches/Fetch", request, batches_pb2.FetchResponse)
    assert (result.error.code, fetched.partitions[0].error.code) == ("FENCED_LEADER_EPOCH", "FENCED_LEADER_EPOCH")


def test_sequence_gaps_and_fenced_producers(leader: grpc.Channel) -> None:
    made = unary(
        leader, "Batches/InitProducerId", batches_pb2.InitProducerIdRequest(), batches_pb2.InitProducerIdResponse
    )

    def send(epoch: int, sequence: int) -> str:
        return write(leader, batches=batch([b"v"], producer=(made.producer_id, epoch, sequence))).error.code

    assert [send(0, 0), send(0, 2), send(1, 3), send(1, 0), send(0, 1)] == [
        *("", "OUT_OF_ORDER_SEQUENCE", "OUT_OF_ORDER_SEQUENCE", "", "PRODUCER_FENCED")
    ]


@pytest.mark.parametrize("name", ["../x", "/", "a/b", "a\0b", "", ".", "..", "x" * 250, "ä", "__consumer_offsets"])
def test_topics_that_are_none(cluster: InProcessCluster, name: str) -> None:
    with dialled(cluster.address(3)) as channel:
        request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name=name)])
        made = unary(channel, "Admin/CreateTopics", request, admin_pb2.CreateTopicsResponse)
        assert made.results[0].error.code == "INVALID_TOPIC"
        request_ = records_pb2.PublishRequest(topic=name, records=[records_pb2.PublishRecord(value=b"v")])
        with pytest.raises(grpc.RpcError) as caught:
            unary(channel, "Records/Publish", request_, records_pb2.PublishResponse)
        assert refusal(caught.value)[1] in ("INVALID_TOPIC", "INVALID_REQUEST")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"partitions": 0}, "INVALID_PARTITIONS"),
        ({"partitions": -1}, "INVALID_PARTITIONS"),
        ({"partitions": 10**9}, "INVALID_PARTITIONS"),
        ({"replication_factor": 0}, "INVALID_REPLICATION_FACTOR"),
        ({"replication_factor": 4}, "INVALID_REPLICATION_FACTOR"),
        ({"replication_factor": 2**31 - 1}, "INVALID_REPLICATION_FACTOR"),
        ({"configs": {"retention.ms": "never"}}, "INVALID_CONFIG"),
        ({"configs": {"no.such": "1"}}, "INVALID_CONFIG"),
    ],
)
def test_counts_are_checked_before_anything_is_allocated(
    cluster: InProcessCluster, fields: dict[str, Any], code: str
) -> None:
    with dialled(cluster.address(2)) as channel:
        request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(**{"name": "never", **fields})])
        made = unary(channel, "Admin/CreateTopics", request, admin_pb2.CreateTopicsResponse)
        assert made.results[0].error.code == code
        listed = unary(channel, "Admin/ListTopics", admin_pb2.ListTopicsRequest(), admin_pb2.ListTopicsResponse)
        assert "never" not in {one.name for one in listed.topics}


def fetch(**fields: Any) -> batches_pb2.FetchRequest:
    known = batches_pb2.FetchSettings.DESCRIPTOR.fields_by_name
    settings = {name: fields.pop(name) for name in list(fields) if name in known}
    part = batches_pb2.FetchPartition(**{"topic": "t", **fields})
    return batches_pb2.FetchRequest(settings=batches_pb2.FetchSettings(**settings), partitions=[part])


BAD_CALLS: list[tuple[str, Message | bytes, str, str]] = [
    ("Batches/Fetch", fetch(wait_ms_max=-1), "INVALID_ARGUMENT", "INVALID_REQUEST"),
    ("Batches/Fetch", fetch(response_bytes_max=-1), "INVALID_ARGUMENT", "INVALID_REQUEST"),
    ("Batches/Fetch", fetch(partition_bytes_max=-1), "INVALID_ARGUMENT", "INVALID_REQUEST"),
    ("Batches/Fetch", fetch(isolation_level=77), "INVALID_ARGUMENT", "INVALID_REQUEST"),
    ("Batches/Produce", batches_pb2.ProduceRequest(acks=77), "INVALID_ARGUMENT", "INVALID_REQUEST"),  # type: ignore[arg-type]  # meant
    (
        "Batches/Produce",
        batches_pb2.ProduceRequest(timeout_ms=-1, partitions=[batches_pb2.PartitionBatches(topic="t", batches=GOOD)]),
        "INVALID_ARGUMENT",
        "INVALID_REQUEST",
    ),
    (
        "Records/Publish",
        records_pb2.PublishRequest(
            topic="t",
            records=[records_pb2.PublishRecord()],
            options=records_pb2.PublishOptions(compression=77),  # type: ignore[arg-type]  # meant
        ),
        "INVALID_ARGUMENT",
        "INVALID_REQUEST",
    ),
    ("Records/Publish", b"\x0a\x02\xff\xfe", "INVALID_ARGUMENT", "INVALID_REQUEST"),  # no UTF-8
    ("Admin/CreateTopics", b"\x0a\xff\xff\xff\xff\x0f", "INVALID_ARGUMENT", "INVALID_REQUEST"),  # cut off
    ("Admin/DescribeTopics", b"\xff" * 100, "INVALID_ARGUMENT", "INVALID_REQUEST"),
    ("Admin/ElectLeaders", admin_pb2.ElectLeadersRequest(type=77), "INVALID_ARGUMENT", "INVALID_REQUEST"),  # type: ignore[arg-type]  # meant
    (
        "Admin/DrainNode",
        admin_pb2.DrainNodeRequest(node_id=-1, action=admin_pb2.DRAIN_ACTION_START),
        "INVALID_ARGUMENT",
        "INVALID_REQUEST",
    ),
]


@pytest.mark.parametrize(("method", "request_", "status", "code"), BAD_CALLS)
def test_bad_calls(leader: grpc.Channel, method: str, request_: Message | bytes, status: str, code: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        unary(leader, method, request_, batches_pb2.ProduceResponse)
    response = refusal(caught.value)
    assert response[:2] == (status, code)


def test_a_message_over_the_limit_of_the_connection(leader: grpc.Channel) -> None:
    """The port itself refuses it, before it is read."""
    with pytest.raises(grpc.RpcError) as caught:
        unary_call(leader, "Batches/Produce")(bytes(8 << 20), timeout=20)
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert end_of_log(leader) >= 1


def test_huge_sizes_and_waits_are_lowered(leader: grpc.Channel) -> None:
    huge = 2**31 - 1
    asked = fetch(
        response_bytes_max=huge, receive_bytes_max=huge, partition_bytes_max=huge, wait_ms_max=huge, bytes_min=0
    )
    response = unary(leader, "Batches/Fetch", asked, batches_pb2.FetchResponse)
    assert response.partitions[0].batches


@pytest.mark.parametrize("offset", [-1, 10**18])
def test_offsets_outside_the_log_return_both_ends(leader: grpc.Channel, offset: int) -> None:
    if offset < 0:
        with pytest.raises(grpc.RpcError) as caught:
            unary(leader, "Batches/Fetch", fetch(fetch_offset=offset), batches_pb2.FetchResponse)
        assert refusal(caught.value)[1] == "INVALID_REQUEST"
        return
    response = unary(leader, "Batches/Fetch", fetch(fetch_offset=offset), batches_pb2.FetchResponse).partitions[0]
    assert response.error.code == "OFFSET_OUT_OF_RANGE"
    assert {"log_start", "log_end"} <= set(response.error.details)


def test_every_method_refuses_rubbish_by_a_status_of_its_own(cluster: InProcessCluster) -> None:
    """invalid UTF-8, unparsable protobuf: never INTERNAL, UNKNOWN, a hang."""
    files = (admin_pb2, batches_pb2, cluster_pb2, records_pb2)
    methods = [
        (service.full_name, method)
        for file in files
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]
    assert len(methods) >= 35
    with dialled(cluster.address(1)) as channel:
        for service, method in methods:
            call: Any = channel.stream_stream(f"/{service}/{method.name}")
            for rubbish in (b"\xff\xff\xff", b"\x0a\x02\xff\xfe\x12\x02\xff\xfe"):
                try:
                    next(call(iter([rubbish]), timeout=20), None)
                except grpc.RpcError as caught:
                    error: Any = caught
                    assert error.code().name not in FORBIDDEN, (method.name, error)


def test_idle_streams_and_connection_floods_are_bounded_and_others_go_on(cluster: InProcessCluster) -> None:
    """Streams beyond the bound are refused by name; who has a place goes on, and so do the nodes among themselves."""
    address = leader_of(cluster.address(1), "t")
    part = batches_pb2.PartitionBatches(topic="t", batches=GOOD)
    message = batches_pb2.ProduceStreamRequest(partitions=[part]).SerializeToString()
    to_send: SimpleQueue[bytes | None] = SimpleQueue()
    with ExitStack() as stack:
        steady: Any = stack.enter_context(dialled(address)).stream_stream("/streamlog.v1.Batches/ProduceStream")
        answers = steady(iter(to_send.get, None), timeout=60)
        to_send.put(message)
        next(answers)
        refused, held = [], []
        for _ in range(CALLS_MAX + 20):
            channel = stack.enter_context(dialled(address))
            held.append(stream_call(channel, "Batches/WatchMetadata", batches_pb2.WatchMetadataRequest()))
            try:
                next(held[-1])
            except grpc.RpcError as caught:
                refused.append(refusal(caught)[:2])
        assert set(refused) == {("RESOURCE_EXHAUSTED", "THROTTLED")}
        assert len(refused) >= 20
        to_send.put(message)
        [result] = batches_pb2.ProduceStreamResponse.FromString(next(answers)).results
        assert not result.HasField("error")
        to_send.put(None)
    # The connections are closed, and their slots free as soon as the node notices.
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            assert produce(address, "t", GOOD) > result.base_offset
            return
        except grpc.RpcError as caught:
            if refusal(caught)[1] != "THROTTLED":
                raise
    pytest.fail("the places of streams that are gone are not free")
