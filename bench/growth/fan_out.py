"""Part "fanout": that many consumers, each of which reads all of one topic.

At the tail they read what a producer writes meanwhile. Cold: the files were dropped from the page cache, so that the
first reader of a range brings it from the disk; what the nodes read from the disk is compared with the log's size.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from bench.cluster import PARTITIONS, READY_S, Cluster
from bench.growth.loads import fill
from bench.growth.usage import drop_from_cache, log_files, memory_mb, read_mb
from streamlog.client import EARLIEST, LATEST, AsyncConsumer

_TOPIC: Final = "fanout"
_BYTES: Final = 32 << 20


async def measure(base: Path, readers: int) -> dict[str, float]:
    async with Cluster(base) as cluster:
        await cluster.create(_TOPIC)
        async with AsyncExitStack() as stack:
            consumers = [
                await stack.enter_async_context(AsyncConsumer(bootstrap_servers=cluster.addresses))
                for _ in range(readers)
            ]
            for consumer in consumers:
                await consumer.assign_topics([_TOPIC], start=LATEST)
                for partition in range(PARTITIONS):
                    await consumer.position((_TOPIC, partition), timeout_s=READY_S)
            count = _BYTES // 1_000
            nodes, begin = cluster.cpu_s(), time.monotonic()
            filling = asyncio.create_task(fill(cluster, _TOPIC, _BYTES))
            await asyncio.gather(*(_read(consumer, count) for consumer in consumers))
            tail_s, tail_cpu_s = time.monotonic() - begin, cluster.cpu_s() - nodes
            written = await filling
            memory = memory_mb(cluster)
        drop_from_cache(log_files(cluster, _TOPIC))
        before, nodes, begin = read_mb(cluster), cluster.cpu_s(), time.monotonic()
        await asyncio.gather(*(_read_all(cluster, written) for _ in range(readers)))
        cold_s, cold_cpu_s = time.monotonic() - begin, cluster.cpu_s() - nodes
        from_disk = read_mb(cluster) - before
    size = written * 1_000 / 1e6
    return {
        "tail, MB/s of all": readers * count * 1_000 / 1e6 / tail_s,
        "tail, CPU of nodes, ms/MB": tail_cpu_s * 1e3 / (readers * count * 1_000 / 1e6),
        "cold, MB/s of all": readers * size / cold_s,
        "cold, CPU of nodes, ms/MB": cold_cpu_s * 1e3 / (readers * size),
        "read from the disk, of the log": from_disk / size,
        "memory MB": memory,
    }


async def _read_all(cluster: Cluster, count: int) -> None:
    async with AsyncConsumer(bootstrap_servers=cluster.addresses) as consumer:
        await consumer.assign_topics([_TOPIC], start=EARLIEST)
        await _read(consumer, count)


async def _read(consumer: AsyncConsumer, count: int) -> None:
    """At least that many records, by batches, which are not decoded."""
    read = 0
    while read < count:
        batch = await consumer.poll_batch(timeout_s=READY_S)
        if batch is None:
            raise RuntimeError(f"{read} of {count} records, and no more come")
        read += batch.header.record_count
