"""Calls of Records.Subscribe."""

from __future__ import annotations

import asyncio
from typing import Any

from streamlog.api.pb import common_pb2
from streamlog.api.pb import records_pb2 as pb
from tests.services.world import Calls, Cluster

SUBSCRIBE = "/streamlog.v1.Records/Subscribe"

EARLIEST = pb.StartPosition(bound=common_pb2.OFFSET_BOUND_EARLIEST)


class Reader:
    def __init__(self, calls: Calls[pb.SubscribeResponse]) -> None:
        self.calls = calls
        self.values: dict[int, list[bytes]] = {}  # by partition
        self.last: dict[int, pb.PartitionRecords] = {}
        self.responses = 0

    async def next(self, within_s: float = 60) -> pb.SubscribeResponse | None:
        response = await asyncio.wait_for(self.calls.recv(), within_s)
        if response is not None:
            self.responses += 1
            for news in response.partitions:
                self.values.setdefault(news.partition, []).extend(record.value for record in news.records)
                self.last[news.partition] = news
        return response

    async def until(self, count: int) -> dict[int, list[bytes]]:
        while sum(map(len, self.values.values())) < count:
            assert await self.next() is not None
        return self.values

    async def to_the_end(self) -> dict[int, list[bytes]]:
        while await self.next() is not None:
            pass
        return self.values


def subscribing(cluster: Cluster, *subscriptions: pb.SubscribePartitions, node: int = 1, **fields: Any) -> Any:
    request = pb.SubscribeRequest(subscriptions=subscriptions, **fields)
    return _Subscribed(cluster, request, node)


class _Subscribed:
    def __init__(self, cluster: Cluster, request: pb.SubscribeRequest, node: int) -> None:
        self._stream = cluster.stream(SUBSCRIBE, pb.SubscribeResponse, node)
        self._request = request

    async def __aenter__(self) -> Reader:
        calls = await self._stream.__aenter__()
        await calls.send(self._request)
        await calls.done_sending()
        return Reader(calls)

    async def __aexit__(self, *why: Any) -> None:
        await self._stream.__aexit__(*why)


def everything(topic: str = "t", **fields: Any) -> pb.SubscribePartitions:
    return pb.SubscribePartitions(**{"topic": topic, "start": EARLIEST, **fields})
