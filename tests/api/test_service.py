"""The mechanism of services, in simulation and over real gRPC alike."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from streamlog.api.errors import from_rpc
from streamlog.api.pb import cluster_pb2, records_pb2
from streamlog.api.service import Call, Service, downstream, parse, unary, unary_handlers
from streamlog.errors import (
    InvalidRequestError,
    InvariantError,
    NotLeaderError,
    OffsetOutOfRangeError,
    RequestTooLargeError,
    Status,
    grpc_status,
)
from streamlog.ports import CallInfo, RpcError

from ..ports.networks import Net, on_both
from .services import DESCRIBE, PUBLISH, PUBLISH_STREAM, SUBSCRIBE, LoopClock, SmallNode, serving


async def refusal(call: Awaitable[object]) -> Exception:
    """What the other side raised, as the client restores it."""
    with pytest.raises(RpcError) as caught:
        await call
    return from_rpc(caught.value)


def publish(topic: str, *values: bytes) -> bytes:
    records = [records_pb2.PublishRecord(value=value) for value in values]
    return records_pb2.PublishRequest(topic=topic, records=records).SerializeToString()


@on_both
async def test_unary(net: Net) -> None:
    node = SmallNode()
    async with serving(net, node.services(LoopClock())) as server:
        data = await net.client.connect(server.address).unary(PUBLISH, publish("t", b"a", b"b"), timeout_s=5)
        response = records_pb2.PublishResponse.FromString(data)
        assert [result.offset for result in response.results] == [0, 1]
        assert node.log == [b"a", b"b"]


@on_both
async def test_a_stream_down(net: Net) -> None:
    node = SmallNode()
    node.log = [b"x", b"y", b"z"]
    async with serving(net, node.services(LoopClock())) as server:
        start = records_pb2.StartPosition(offset=1)
        wanted = records_pb2.SubscribePartitions(topic="t", start=start)
        values = []
        async with net.client.connect(server.address).stream(SUBSCRIBE) as stream:
            await stream.send(records_pb2.SubscribeRequest(subscriptions=[wanted]).SerializeToString())
            await stream.done_sending()
            while (data := await stream.recv()) is not None:
                values += [
                    r.value for p in records_pb2.SubscribeResponse.FromString(data).partitions for r in p.records
                ]
        assert values == [b"y", b"z"]


@on_both
async def test_streams_both_ways(net: Net) -> None:
    node = SmallNode()
    async with (
        serving(net, node.services(LoopClock())) as server,
        net.client.connect(server.address).stream(PUBLISH_STREAM) as stream,
    ):
        for index in range(3):
            record = records_pb2.PublishRecord(value=b"%d" % index)
            await stream.send(records_pb2.PublishStreamRequest(records=[record]).SerializeToString())
            data = await stream.recv()
            assert data is not None
            assert records_pb2.PublishStreamResponse.FromString(data).results[0].offset == index
        await stream.done_sending()
        assert await stream.recv() is None


@on_both
async def test_errors_come_with_their_details(net: Net) -> None:
    node = SmallNode()
    async with serving(net, node.services(LoopClock())) as server:
        channel = net.client.connect(server.address)
        error = await refusal(channel.unary(PUBLISH, publish("missing"), timeout_s=5))
        assert isinstance(error, NotLeaderError)
        assert str(error) == "node 2 leads"
        assert error.details == {"leader": 2, "address": "10.0.0.2:9092", "leader_epoch": 7}
        start = records_pb2.StartPosition(offset=9)
        wanted = records_pb2.SubscribePartitions(topic="t", start=start)
        async with channel.stream(SUBSCRIBE) as stream:
            await stream.send(records_pb2.SubscribeRequest(subscriptions=[wanted]).SerializeToString())
            error = await refusal(stream.recv())
        assert isinstance(error, OffsetOutOfRangeError)
        assert error.details == {"log_start": 0, "log_end": 0}


@on_both
async def test_an_error_out_of_a_task_group_is_an_answer(net: Net) -> None:
    async with serving(net, SmallNode().services(LoopClock())) as server:
        error = await refusal(net.client.connect(server.address).unary(PUBLISH, publish("group"), timeout_s=5))
        assert isinstance(error, NotLeaderError)
    assert net.crashes == []


@on_both
async def test_a_bug_is_raised_to_the_owner_and_not_to_the_caller(net: Net) -> None:
    async with serving(net, SmallNode().services(LoopClock())) as server:
        error = await refusal(net.client.connect(server.address).unary(PUBLISH, publish("bug"), timeout_s=5))
    assert isinstance(error, RpcError)
    assert error.status is Status.UNKNOWN
    assert "secret" not in error.message
    assert [type(crash) for crash in net.crashes] == [ExceptionGroup]


@on_both
async def test_bytes_that_are_no_request_are_refused(net: Net) -> None:
    node = SmallNode()
    async with serving(net, node.services(LoopClock())) as server:
        channel = net.client.connect(server.address)
        for bad in (b"\xff\xff\xff", b"\x0a\x05abc", b"\x0a\x02\xc3\x28", b"\x0a\x01\x00\x07"):
            error = await refusal(channel.unary(DESCRIBE, bad, timeout_s=5))
            assert isinstance(error, InvalidRequestError)
            assert error.details == {"field": "request"}
        async with channel.stream(PUBLISH_STREAM) as stream:
            await stream.send(b"\x0a\x02\xc3\x28")
            assert isinstance(await refusal(stream.recv()), InvalidRequestError)
        async with channel.stream(SUBSCRIBE) as stream:
            await stream.done_sending()
            assert isinstance(await refusal(stream.recv()), InvalidRequestError)
    assert node.began == 0


@on_both
async def test_a_request_above_the_methods_bound_is_refused_unparsed(net: Net) -> None:
    node = SmallNode()
    async with serving(net, node.services(LoopClock())) as server:
        channel = net.client.connect(server.address)
        error = await refusal(channel.unary(DESCRIBE, b"\xff" * 65, timeout_s=5))
        assert isinstance(error, RequestTooLargeError)
        assert grpc_status(error) is Status.RESOURCE_EXHAUSTED
        assert error.details == {"field": "request", "limit": 64}
        request = cluster_pb2.ClusterDescribeRequest(client_version="v" * 62).SerializeToString()
        assert len(request) == 64
        await channel.unary(DESCRIBE, request, timeout_s=5)
    assert node.began == 1


@on_both
async def test_the_deadline_is_known_and_cancels(net: Net) -> None:
    node = SmallNode()
    async with serving(net, node.services(LoopClock())) as server:
        channel = net.client.connect(server.address)
        await channel.unary(DESCRIBE, b"", timeout_s=5)
        assert node.remaining_s is not None
        assert 0 < node.remaining_s < 5.1  # the loop's clock may be a tick behind the one of the deadline
        error = await refusal(channel.unary(PUBLISH, publish("hang"), timeout_s=0.2))
        assert isinstance(error, RpcError)
        assert error.status is Status.DEADLINE_EXCEEDED
        async with asyncio.timeout(5):
            await node.cancelled.wait()
    assert net.crashes == []


@on_both
async def test_the_longest_error_arrives(net: Net) -> None:
    async with serving(net, SmallNode().services(LoopClock())) as server:
        error = await refusal(net.client.connect(server.address).unary(PUBLISH, publish("long"), timeout_s=5))
    assert isinstance(error, NotLeaderError)
    assert len(error.details) == 16


class FixedClock:
    def monotonic(self) -> float:
        return 100.0

    def wall_ms(self) -> int:
        return 0


@pytest.mark.parametrize(("deadline", "begins"), [(99.0, False), (100.0, False), (100.5, True), (None, True)])
async def test_work_whose_deadline_is_over_is_not_begun(deadline: float | None, begins: bool) -> None:
    node = SmallNode()
    handler = unary_handlers(node.services(FixedClock()))[DESCRIBE]
    info = CallInfo(method=DESCRIBE, peer="test", deadline=deadline)
    if begins:
        await handler(b"", info)
    else:
        with pytest.raises(RpcError) as caught:
            await handler(b"", info)
        assert caught.value.status is Status.DEADLINE_EXCEEDED
    assert node.began == (1 if begins else 0)


async def describe(request: cluster_pb2.ClusterDescribeRequest, call: Call) -> cluster_pb2.ClusterDescribeResponse:
    return cluster_pb2.ClusterDescribeResponse()


def test_a_service_that_is_not_what_its_proto_file_says_is_not_made() -> None:
    descriptor = cluster_pb2.DESCRIPTOR.services_by_name["Cluster"]
    request, response = cluster_pb2.ClusterDescribeRequest, cluster_pb2.ClusterDescribeResponse
    right = unary("Describe", request, response, describe)
    Service(descriptor, FixedClock(), [right])
    unsuitable: Any = describe
    wrong: list[list[Any]] = [
        [],
        [right, unary("Explain", request, response, describe)],
        [unary("Describe", response, response, unsuitable)],
        [unary("Describe", request, request, unsuitable)],
        [downstream("Describe", request, response, unsuitable)],
    ]
    for methods in wrong:
        with pytest.raises(InvariantError, match="differ from its proto file"):
            Service(descriptor, FixedClock(), methods)


def test_unknown_fields_are_kept_out_of_the_way() -> None:
    known = cluster_pb2.ClusterDescribeRequest(client_version="a/1").SerializeToString()
    request = parse(cluster_pb2.ClusterDescribeRequest, known + b"\xfa\x07\x03new", 100)
    assert request.client_version == "a/1"
