"""Calls of the Groups service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from streamlog.api.pb import groups_pb2 as pb
from streamlog.api.pb.common_pb2 import TopicPartition
from tests.services.world import Cluster, simulate

GROUPS = "/streamlog.v1.Groups/"


def with_group(story: Callable[[Cluster], Coroutine[Any, Any, None]], *nodes: int) -> None:
    """On one node, with topic `t` of two partitions, and `__consumer_offsets`."""

    async def prepared(cluster: Cluster) -> None:
        await cluster.start(*(nodes or (1,)), registered=nodes or (1,))
        await cluster.create(partitions=2)
        await find(cluster)
        await cluster.until_led("__consumer_offsets", 50)
        await asyncio.sleep(1)
        await story(cluster)

    simulate(prepared)


async def find(cluster: Cluster, *groups: str) -> pb.FindCoordinatorResponse:
    request = pb.FindCoordinatorRequest(groups=groups or ("g",))
    return await cluster.call(GROUPS + "FindCoordinator", request, pb.FindCoordinatorResponse)


def request(member_id: str, epoch: int = 0, **fields: Any) -> pb.GroupHeartbeatRequest:
    subscription = pb.GroupSubscription(topics=["t"]) if epoch == 0 else None
    values = {"group": "g", "member_id": member_id, "member_epoch": epoch, "subscription": subscription, **fields}
    return pb.GroupHeartbeatRequest(**{name: value for name, value in values.items() if value is not None})


async def beat(cluster: Cluster, wanted: pb.GroupHeartbeatRequest) -> pb.GroupHeartbeatResponse:
    return await cluster.call(GROUPS + "GroupHeartbeat", wanted, pb.GroupHeartbeatResponse)


async def commit(cluster: Cluster, offset: int, member: pb.GroupMember | None = None, **fields: Any) -> str:
    """The error's code, or empty."""
    wanted = pb.OffsetToCommit(**{"topic": "t", "partition": 0, "offset": offset, **fields})
    response = await cluster.call(
        GROUPS + "CommitOffsets",
        pb.CommitOffsetsRequest(group="g", member=member, offsets=[wanted]),
        pb.CommitOffsetsResponse,
    )
    return response.results[0].error.code


async def fetch(cluster: Cluster, *partitions: int) -> list[tuple[int, int]]:
    wanted = [TopicPartition(topic="t", partition=partition) for partition in partitions]
    response = await cluster.call(
        GROUPS + "FetchOffsets", pb.FetchOffsetsRequest(group="g", partitions=wanted), pb.FetchOffsetsResponse
    )
    return [(row.partition, row.offset) for row in response.offsets]
