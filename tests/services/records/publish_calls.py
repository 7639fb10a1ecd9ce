"""Calls of Records.Publish."""

from __future__ import annotations

import asyncio
from typing import Any

from streamlog.api.pb import batches_pb2
from streamlog.api.pb import records_pb2 as pb
from streamlog.records import decode_batch, scan_headers
from tests.services.world import BATCHES, Calls, Cluster

RECORDS = "/streamlog.v1.Records/"


def records(*values: bytes, **fields: Any) -> list[pb.PublishRecord]:
    return [pb.PublishRecord(value=value, **fields) for value in values]


async def answers(calls: Calls[pb.PublishStreamResponse], count: int) -> list[pb.PublishStreamResponse]:
    found: list[pb.PublishStreamResponse] = []
    while len(found) < count:
        response = await asyncio.wait_for(calls.recv(), 60)
        assert response is not None
        found.append(response)
    return found


async def publish(cluster: Cluster, *messages: pb.PublishRecord, node: int = 1, **fields: Any) -> pb.PublishResponse:
    options = pb.PublishOptions(**fields.pop("options", {}))
    request = pb.PublishRequest(topic=fields.pop("topic", "t"), records=messages, options=options, **fields)
    return await cluster.call(RECORDS + "Publish", request, pb.PublishResponse, node=node)


async def token(cluster: Cluster) -> bytes:
    request = batches_pb2.InitProducerIdRequest()
    made = await cluster.call(BATCHES + "InitProducerId", request, batches_pb2.InitProducerIdResponse)
    return made.producer_token


async def log(cluster: Cluster, partition: int = 0, node: int = 1, topic: str = "t") -> list[Any]:
    """All records of a partition, as its leader has them."""
    leader = cluster.nodes[node].leader(topic, partition)
    data = await cluster.world.host(f"node{node}").spawn(leader.log.read(leader.log_start_offset, 1 << 24))
    found: list[Any] = []
    for position, _ in scan_headers(data, 0, len(data)):
        found += decode_batch(data, position)
    return found


async def log_values(cluster: Cluster, **where: Any) -> list[bytes]:
    return [record.value for record in await log(cluster, **where)]
