"""Part "partitions": one topic with that many partitions of three replicas.

Each takes a record; fifty loops produce to all of them; a node is stopped and started; another, which leads a third of
them or, as the restarted one leads none yet, a half, is killed while a record waits for each partition that it leads:
the fail-over ends with the last acknowledgement.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

from bench.cluster import READY_S, Cluster
from bench.growth.loads import VALUE, closed_loops, first_records
from bench.growth.usage import descriptors, memory_mb
from streamlog.client import AsyncAdmin, AsyncProducer

_TOPIC: Final = "partitions"
_LOOPS: Final = 50
_AT_ONCE: Final = 2_000
"""Partitions that one request may create."""
_SETTLED_S: Final = 180.0


async def measure(base: Path, count: int) -> dict[str, float]:
    async with Cluster(base) as cluster:
        begin = time.monotonic()
        await cluster.admin.create_topic(_TOPIC, partitions=min(count, _AT_ONCE), replication_factor=3)
        for partitions in (*range(2 * _AT_ONCE, count, _AT_ONCE), count) if count > _AT_ONCE else ():
            await cluster.admin.grow_topic(_TOPIC, partitions)
        await _in_sync(cluster)
        await first_records(cluster, _TOPIC, count)
        created_s = time.monotonic() - begin
        columns = (await closed_loops(cluster, _TOPIC, count, loops=_LOOPS)).columns()
        columns |= {"created s": created_s, "memory MB": memory_mb(cluster), "descriptors": descriptors(cluster)}
        columns |= await _restart(cluster)
        columns |= await _fail_over(cluster)
        return columns


async def _restart(cluster: Cluster) -> dict[str, float]:
    """From the start of the process to its first response, and until its replicas are in sync again."""
    node = cluster.local.nodes[-1]
    cluster.local.stop([node], READY_S)
    begin = time.monotonic()
    cluster.local.start(node)
    settings = dict.fromkeys(
        ("reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms", "retry.backoff.max.ms"), 5
    )
    async with AsyncAdmin({"bootstrap.servers": node.address, **settings}) as admin:

        async def serves() -> bool:
            return bool((await admin.describe_cluster()).nodes)

        await cluster.until(serves, _SETTLED_S)
    served_s = time.monotonic() - begin
    await _in_sync(cluster)
    return {"restart s": served_s, "restart until in sync s": time.monotonic() - begin}


async def _fail_over(cluster: Cluster) -> dict[str, float]:
    found = (await cluster.admin.describe_topic(_TOPIC)).partitions
    node = found[0].leader
    assert node is not None
    led = [one.partition for one in found if one.leader == node]
    async with AsyncProducer(bootstrap_servers=cluster.addresses, linger_ms=0) as producer:
        await asyncio.gather(*(producer.send(_TOPIC, VALUE, partition=one) for one in led))
        cluster.local.kill(cluster.local.node(node))
        begin = time.monotonic()
        sent = [await producer.enqueue(_TOPIC, VALUE, partition=one) for one in led]
        first, last = None, 0.0
        for each in asyncio.as_completed(sent):
            await each
            last = time.monotonic() - begin
            first = last if first is None else first
    return {"led by the killed node": len(led), "fail-over, first s": first or 0.0, "fail-over, all s": last}


async def _in_sync(cluster: Cluster) -> None:
    async def in_sync() -> bool:
        found = await cluster.admin.describe_topic(_TOPIC)
        return all(len(partition.isr) == 3 and partition.leader for partition in found.partitions)

    await cluster.until(in_sync, _SETTLED_S)
