"""gRPC calls as any language makes them: a channel, a method's name, bytes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from streamlog.api.pb import batches_pb2, common_pb2

TIMEOUT_S: Final = 20
R = TypeVar("R", bound=Message)


@contextmanager
def dialled(address: str) -> Iterator[grpc.Channel]:
    """A connection that no other channel of this process shares."""
    options = (("grpc.use_local_subchannel_pool", 1),)
    with grpc.insecure_channel(address, options=options) as channel:
        yield channel


def unary_call(channel: grpc.Channel, method: str) -> Any:
    """`method`: as "Batches/Produce". A callable of bytes; the stubs want messages."""
    return channel.unary_unary(f"/streamlog.v1.{method}")


def stream_call(channel: grpc.Channel, method: str, request: Message) -> Iterator[bytes]:
    """What comes of one request."""
    made: Any = channel.unary_stream(f"/streamlog.v1.{method}")
    responses: Iterator[bytes] = made(request.SerializeToString(), timeout=3 * TIMEOUT_S)
    return responses


def unary(channel: grpc.Channel, method: str, request: Message | bytes, response_type: type[R]) -> R:
    """`method`: as "Batches/Produce". grpc.RpcError."""
    data = request if isinstance(request, bytes) else request.SerializeToString()
    return response_type.FromString(unary_call(channel, method)(data, timeout=TIMEOUT_S))


def refusal(error: grpc.RpcError) -> tuple[str, str, dict[str, str]]:
    """Status, our code, facts."""
    metadata: Any = error
    trailers = dict(metadata.trailing_metadata())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert info.domain == "streamlog"
    return metadata.code().name, info.reason, dict(info.metadata)


def leader_of(address: str, topic: str, partition: int = 0) -> str:
    """Address of the leader, as soon as the node at `address` knows of one."""
    nodes: dict[int, str] = {}
    with grpc.insecure_channel(address) as channel:
        request = batches_pb2.WatchMetadataRequest(topics=[topic])
        for data in stream_call(channel, "Batches/WatchMetadata", request):
            response = batches_pb2.WatchMetadataResponse.FromString(data)
            nodes |= {node.node_id: f"{node.host}:{node.port}" for node in response.nodes.nodes}
            for one in (one for known in response.topics for one in known.partitions):
                if one.partition == partition and one.HasField("leader"):
                    return nodes[one.leader]
    raise AssertionError(f"{topic}-{partition} has no leader")


def produce(address: str, topic: str, batches: bytes, acks: common_pb2.Acks.ValueType = common_pb2.ACKS_ALL) -> int:
    """To partition 0, through its leader, which is asked again while it makes itself ready: the first offset."""
    deadline = time.monotonic() + TIMEOUT_S
    part = batches_pb2.PartitionBatches(topic=topic, batches=batches)
    with grpc.insecure_channel(leader_of(address, topic)) as channel:
        while True:
            request = batches_pb2.ProduceRequest(acks=acks, partitions=[part])
            [result] = unary(channel, "Batches/Produce", request, batches_pb2.ProduceResponse).results
            if not result.HasField("error"):
                return result.base_offset
            assert result.error.retriable, result
            assert time.monotonic() < deadline, result
