"""A small service under the real API's names, and servers and clients for it in both worlds."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from streamlog.api.pb import cluster_pb2, records_pb2
from streamlog.api.service import (
    Call,
    Requests,
    Responses,
    Service,
    downstream,
    duplex,
    stream_handlers,
    unary,
    unary_handlers,
)
from streamlog.errors import NotLeaderError, OffsetOutOfRangeError
from streamlog.ports import Clock, Server

from ..ports.networks import Net

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DESCRIBE = "/streamlog.v1.Cluster/Describe"
PUBLISH = "/streamlog.v1.Records/Publish"
PUBLISH_STREAM = "/streamlog.v1.Records/PublishStream"
SUBSCRIBE = "/streamlog.v1.Records/Subscribe"


class LoopClock:
    """The port's clock in both worlds: grpc.aio's deadlines and the simulation's are on the loop's clock."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        return 0


class SmallNode:
    """Publishes into a list, and subscribes to it. Topic `missing` is led elsewhere."""

    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.began = 0  # calls that a method began to work on
        self.cancelled = asyncio.Event()
        self.remaining_s: float | None = None

    async def describe(
        self, request: cluster_pb2.ClusterDescribeRequest, call: Call
    ) -> cluster_pb2.ClusterDescribeResponse:
        self.began += 1
        self.remaining_s = call.remaining_s()
        return cluster_pb2.ClusterDescribeResponse(version=request.client_version, node_id=1)

    async def publish(self, request: records_pb2.PublishRequest, call: Call) -> records_pb2.PublishResponse:
        self.began += 1
        match request.topic:
            case "missing":
                raise NotLeaderError("node 2 leads", leader=2, address="10.0.0.2:9092", leader_epoch=7)
            case "group":
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._fail(NotLeaderError("node 2 leads", leader=2)))
            case "bug":
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._fail(ValueError("secret")))
            case "hang":
                await self._hang()
            case "long":
                facts = {f"{index:02}" * 40: "…" * 400 for index in range(40)}
                raise NotLeaderError.restored("…" * 5_000, facts)
        return records_pb2.PublishResponse(results=[self._append(record) for record in request.records])

    async def publish_stream(
        self,
        requests: Requests[records_pb2.PublishStreamRequest],
        responses: Responses[records_pb2.PublishStreamResponse],
        call: Call,
    ) -> None:
        while (request := await requests.recv()) is not None:
            results = [self._append(record) for record in request.records]
            await responses.send(records_pb2.PublishStreamResponse(results=results))

    async def subscribe(
        self,
        request: records_pb2.SubscribeRequest,
        responses: Responses[records_pb2.SubscribeResponse],
        call: Call,
    ) -> None:
        self.began += 1
        for wanted in request.subscriptions:
            if wanted.start.offset > len(self.log):
                raise OffsetOutOfRangeError("beyond the end", log_start=0, log_end=len(self.log))
            for offset in range(wanted.start.offset, len(self.log)):
                record = records_pb2.ReceivedRecord(offset=offset, value=self.log[offset])
                part = records_pb2.PartitionRecords(topic=wanted.topic, records=[record])
                await responses.send(records_pb2.SubscribeResponse(partitions=[part]))

    async def consume(
        self,
        requests: Requests[records_pb2.ConsumeRequest],
        responses: Responses[records_pb2.ConsumeResponse],
        call: Call,
    ) -> None:
        """The log as one partition: a record for each credit."""
        offset = 0
        while (request := await requests.recv()) is not None:
            for value in self.log[offset : offset + request.credits]:
                record = records_pb2.ReceivedRecord(offset=offset, value=value)
                news = records_pb2.PartitionRecords(topic="t", records=[record])
                await responses.send(records_pb2.ConsumeResponse(records=news))
                offset += 1

    def _append(self, record: records_pb2.PublishRecord) -> records_pb2.PublishResult:
        self.log.append(record.value)
        return records_pb2.PublishResult(offset=len(self.log) - 1)

    async def _fail(self, error: Exception) -> None:
        raise error

    async def _hang(self) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.cancelled.set()

    def services(self, clock: Clock) -> list[Service]:
        pb = records_pb2
        describe = unary(
            "Describe",
            cluster_pb2.ClusterDescribeRequest,
            cluster_pb2.ClusterDescribeResponse,
            self.describe,
            request_bytes_max=64,
        )
        return [
            Service(cluster_pb2.DESCRIPTOR.services_by_name["Cluster"], clock, [describe]),
            Service(
                pb.DESCRIPTOR.services_by_name["Records"],
                clock,
                [
                    unary("Publish", pb.PublishRequest, pb.PublishResponse, self.publish),
                    duplex("PublishStream", pb.PublishStreamRequest, pb.PublishStreamResponse, self.publish_stream),
                    downstream("Subscribe", pb.SubscribeRequest, pb.SubscribeResponse, self.subscribe),
                    duplex("Consume", pb.ConsumeRequest, pb.ConsumeResponse, self.consume),
                ],
            ),
        ]


@asynccontextmanager
async def serving(net: Net, services: list[Service]) -> AsyncIterator[Server]:
    server = await net.server.listen(net.bind, unary=unary_handlers(services), streaming=stream_handlers(services))
    try:
        yield server
    finally:
        await server.close()
