"""The services of real nodes over real gRPC, by raw bytes as stubs of any language send them (FAULTS, "Bad input")."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from streamlog.api.pb import admin_pb2, batches_pb2, cluster_pb2, common_pb2, records_pb2
from streamlog.client import Producer
from streamlog.errors import RequestTooLargeError
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.services.raw import leader_of, refusal, stream_call, unary
from tests.storage.batches import batch

GOOD = batch([b"value"])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    directory: Path = tmp_path_factory.mktemp("cluster")
    with InProcessCluster(directory, nodes=3) as running:
        with grpc.insecure_channel(running.address(1)) as channel:
            topic = admin_pb2.NewTopic(name="t", partitions=3, replication_factor=3)
            request = admin_pb2.CreateTopicsRequest(topics=[topic])
            response = unary(channel, "Admin/CreateTopics", request, admin_pb2.CreateTopicsResponse)
            assert not response.results[0].HasField("error"), response
        yield running


@pytest.fixture
def channel(cluster: InProcessCluster) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(cluster.address(2)) as made:
        yield made


BAD_CALLS = [
    ("Batches/Produce", b"\xff\xff\xff", "INVALID_ARGUMENT", "INVALID_REQUEST", "request"),
    ("Batches/Produce", b"\x1a\x02\xff\xfe", "INVALID_ARGUMENT", "INVALID_REQUEST", "request"),  # no UTF-8
    ("Batches/Produce", batches_pb2.ProduceRequest(), "INVALID_ARGUMENT", "INVALID_REQUEST", "partitions"),
    (
        "Batches/Produce",
        batches_pb2.ProduceRequest(partitions=[batches_pb2.PartitionBatches(topic="../x", batches=GOOD)]),
        "INVALID_ARGUMENT",
        "INVALID_TOPIC",
        "partitions[0].topic",
    ),
    (
        "Batches/Fetch",
        batches_pb2.FetchRequest(settings=batches_pb2.FetchSettings(bytes_min=-1)),
        "INVALID_ARGUMENT",
        "INVALID_REQUEST",
        "settings.bytes_min",
    ),
    ("Batches/Metadata", bytes(2 << 20), "RESOURCE_EXHAUSTED", "REQUEST_TOO_LARGE", "request"),
    (
        "Records/Publish",
        records_pb2.PublishRequest(topic="a" * 250, records=[records_pb2.PublishRecord()]),
        "INVALID_ARGUMENT",
        "INVALID_TOPIC",
        "topic",
    ),
    (
        "Records/Publish",
        records_pb2.PublishRequest(topic="missing", records=[records_pb2.PublishRecord()]),
        "NOT_FOUND",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "topic",
    ),
    ("Admin/CreateTopics", admin_pb2.CreateTopicsRequest(), "INVALID_ARGUMENT", "INVALID_REQUEST", "topics"),
    ("Admin/DrainNode", admin_pb2.DrainNodeRequest(node_id=1), "INVALID_ARGUMENT", "INVALID_REQUEST", "action"),
]


@pytest.mark.parametrize(("method", "request_", "status", "code", "field"), BAD_CALLS)
def test_bad_calls_end_with_status_code_and_field(
    channel: grpc.Channel, method: str, request_: Message | bytes, status: str, code: str, field: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        unary(channel, method, request_, batches_pb2.ProduceResponse)
    actual_status, actual_code, facts = refusal(caught.value)
    assert (actual_status, actual_code, facts["field"]) == (status, code, field)


BAD_BATCHES = [
    ({"batches": GOOD[:-3]}, "CORRUPT_MESSAGE"),
    ({"batches": GOOD + b"abc"}, "CORRUPT_MESSAGE"),
    ({"batches": GOOD[:-1] + b"\xff"}, "CORRUPT_MESSAGE"),
    ({"batches": batch([])}, "INVALID_RECORD"),
    ({"batches": GOOD[:16] + b"\x09" + GOOD[17:]}, "UNSUPPORTED_VERSION"),
    ({"batches": batch([b"a"], attributes=6)}, "UNSUPPORTED_COMPRESSION_TYPE"),
    ({"batches": batch([bytes(2 << 20)])}, "MESSAGE_TOO_LARGE"),
    ({"leader_epoch": 99}, "UNKNOWN_LEADER_EPOCH"),
    ({"topic": "missing"}, "UNKNOWN_TOPIC_OR_PARTITION"),
    ({"partition": 99}, "UNKNOWN_TOPIC_OR_PARTITION"),
    ({"topic": "", "topic_id": bytes(16)}, "UNKNOWN_TOPIC_ID"),
]


@pytest.mark.parametrize(("fields", "code"), BAD_BATCHES)
def test_bad_batches_have_their_error_beside_them(cluster: InProcessCluster, fields: dict[str, Any], code: str) -> None:
    part = batches_pb2.PartitionBatches(**{"topic": "t", "batches": GOOD, **fields})
    with grpc.insecure_channel(leader_of(cluster.address(1), "t")) as channel:
        request = batches_pb2.ProduceRequest(partitions=[part])

        def answered() -> common_pb2.StreamlogError:
            return unary(channel, "Batches/Produce", request, batches_pb2.ProduceResponse).results[0].error

        while (error := answered()).code == "LEADER_NOT_AVAILABLE":
            pass  # it makes itself ready
    assert error.code == code
    assert error.message


def test_what_one_node_acknowledged_is_what_the_others_describe(cluster: InProcessCluster) -> None:
    """At once, though each follows the metadata in its own time."""
    with ExitStack() as stack:
        channels = [stack.enter_context(grpc.insecure_channel(cluster.address(node))) for node in cluster.node_ids]
        for turn in range(30):
            teller, asked = channels[turn % 3], channels[(turn + 1) % 3]
            name = f"topic{turn}"
            create = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name=name, partitions=1)])
            created = unary(teller, "Admin/CreateTopics", create, admin_pb2.CreateTopicsResponse)
            assert not created.results[0].HasField("error"), f"{name}: {created}"
            describe = admin_pb2.DescribeTopicsRequest(topics=[name])
            response = unary(asked, "Admin/DescribeTopics", describe, admin_pb2.DescribeTopicsResponse)
            assert not response.topics[0].HasField("error"), f"{name}: {response}"
            delete = admin_pb2.DeleteTopicsRequest(topics=[name])
            deleted = unary(asked, "Admin/DeleteTopics", delete, admin_pb2.DeleteTopicsResponse)
            assert not deleted.results[0].HasField("error"), f"{name}: {deleted}"
            listed = unary(teller, "Admin/ListTopics", admin_pb2.ListTopicsRequest(), admin_pb2.ListTopicsResponse)
            assert name not in [topic.name for topic in listed.topics]


def test_records_go_in_and_come_out_at_any_node(cluster: InProcessCluster) -> None:
    values = [b"%d" % index for index in range(60)]
    for node in cluster.node_ids:
        with grpc.insecure_channel(cluster.address(node)) as channel:
            records = [records_pb2.PublishRecord(key=value, value=value) for value in values[node - 1 :: 3]]
            request = records_pb2.PublishRequest(topic="t", records=records)
            response = unary(channel, "Records/Publish", request, records_pb2.PublishResponse)
            assert not any(result.HasField("error") for result in response.results)
    for node in cluster.node_ids:
        with grpc.insecure_channel(cluster.address(node)) as channel:
            part = records_pb2.SubscribePartitions(
                topic="t",
                start=records_pb2.StartPosition(bound=common_pb2.OFFSET_BOUND_EARLIEST),
                end=records_pb2.EndPosition(bound=common_pb2.OFFSET_BOUND_LATEST),
            )
            request_ = records_pb2.SubscribeRequest(subscriptions=[part])
            found = [
                record.value
                for data in stream_call(channel, "Records/Subscribe", request_)
                for news in records_pb2.SubscribeResponse.FromString(data).partitions
                for record in news.records
            ]
            assert sorted(found) == sorted(values)


def test_every_node_describes_itself_and_the_cluster(cluster: InProcessCluster) -> None:
    for node in cluster.node_ids:
        with grpc.insecure_channel(cluster.address(node)) as channel:
            request = cluster_pb2.ClusterDescribeRequest()
            answered = unary(channel, "Cluster/Describe", request, cluster_pb2.ClusterDescribeResponse)
            assert answered.node_id == node
            described = unary(
                channel, "Admin/DescribeCluster", admin_pb2.DescribeClusterRequest(), admin_pb2.DescribeClusterResponse
            )
            assert [one.node.node_id for one in described.nodes] == list(cluster.node_ids)
            dirs = unary(
                channel, "Admin/DescribeLogDirs", admin_pb2.DescribeLogDirsRequest(), admin_pb2.DescribeLogDirsResponse
            )
            assert [one.error.code for one in dirs.nodes] == [""] * 3


def test_replicas_are_found_to_be_identical(channel: grpc.Channel) -> None:
    request = admin_pb2.DigestReplicasRequest(topic="t")
    answered = unary(channel, "Admin/DigestReplicas", request, admin_pb2.DigestReplicasResponse)
    assert answered.identical, answered
    assert len(answered.replicas) == 3


def test_a_producer_whose_requests_a_node_does_not_accept_learns_the_limit(cluster: InProcessCluster) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "max.request.size": 8 << 20, "buffer.memory": 32 << 20}
    with Producer(settings) as producer:
        sent = producer.send("t", bytes(5 << 20), partition=0)
        with pytest.raises(RequestTooLargeError, match=r"the node accepts 4,194,304 \(socket.request.max.bytes\)"):
            sent.result(60)
