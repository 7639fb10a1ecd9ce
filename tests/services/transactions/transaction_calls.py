"""Calls of the Transactions service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from streamlog.api.pb import batches_pb2, common_pb2, groups_pb2
from streamlog.records import iter_batch, scan_headers
from tests.services.batches.fetch_calls import fetch
from tests.services.groups.group_calls import GROUPS
from tests.services.world import Cluster, simulate

COMMITTED = common_pb2.ISOLATION_LEVEL_READ_COMMITTED


def with_transactions(story: Callable[[Cluster], Coroutine[Any, Any, None]], **static: str) -> None:
    """On one node, with topic `t` of two partitions, and the topics of the coordinators."""

    async def prepared(cluster: Cluster) -> None:
        await cluster.start(1, registered=(1,), **static)
        await cluster.create(partitions=2)
        for topic in ("__transaction_state", "__consumer_offsets"):
            await cluster.create_internal(topic)
            await cluster.until_led(topic, 50)
        await asyncio.sleep(1)
        await story(cluster)

    simulate(prepared)


async def committed(cluster: Cluster, partition: int = 0) -> list[bytes]:
    """What a reader of committed records gets to see, with the aborted ones left out as a client does it."""
    part = batches_pb2.FetchPartition(topic="t", partition=partition)
    (got,) = await fetch(cluster, part, isolation_level=COMMITTED, wait_ms_max=0)
    starts: dict[int, list[int]] = {}
    for one in got.aborted_transactions:
        starts.setdefault(one.producer_id, []).append(one.first_offset)
    found: list[bytes] = []
    aborting: set[int] = set()
    for position, header in scan_headers(got.batches, 0, len(got.batches)):
        if header.is_control:
            aborting.discard(header.producer_id)
            continue
        if header.is_transactional:
            firsts = starts.get(header.producer_id, [])
            if firsts and firsts[0] <= header.base_offset:
                firsts.pop(0)
                aborting.add(header.producer_id)
            if header.producer_id in aborting:
                continue
        found += [record.value or b"" for record in iter_batch(got.batches, position)]
    return found


async def offset(cluster: Cluster, *, stable: bool = False) -> int | str:
    """Of partition 0 in group g; the error's code."""
    request = groups_pb2.FetchOffsetsRequest(
        group="g", partitions=[common_pb2.TopicPartition(topic="t", partition=0)], require_stable=stable
    )
    (row,) = (await cluster.call(GROUPS + "FetchOffsets", request, groups_pb2.FetchOffsetsResponse)).offsets
    return row.error.code or row.offset
