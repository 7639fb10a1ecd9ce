"""Parts "producers", "consumers", "polls" and "nodes".

producers   that many clients, each with one record in flight, to 100 partitions
consumers   that many clients, each at the tail of a partition; a record is sent to each partition, one at a time
polls       that many clients wait for records of a quiet topic of 1,000 partitions; fifty loops produce to another
nodes       that many nodes; fifty loops, 100 partitions of three replicas
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from bench.cluster import READY_S, Cluster
from bench.growth.loads import VALUE, closed_loops, first_records, percentiles_ms
from bench.growth.usage import descriptors, memory_mb
from streamlog.client import LATEST, AsyncConsumer, AsyncProducer

_PARTITIONS: Final = 100
_QUIET_PARTITIONS: Final = 1_000
_LOOPS: Final = 50
_DELIVERIES: Final = 1_000
_TIMEOUT_S: Final = 60.0


async def measure_producers(base: Path, count: int) -> dict[str, float]:
    async with Cluster(base) as cluster:
        await cluster.create("loops", _PARTITIONS)
        found = await closed_loops(cluster, "loops", _PARTITIONS, loops=count, producers=count)
        return found.columns() | {"memory MB": memory_mb(cluster), "descriptors": descriptors(cluster)}


async def measure_nodes(base: Path, count: int) -> dict[str, float]:
    begin = time.monotonic()
    async with Cluster(base, nodes=count) as cluster:
        started_s = time.monotonic() - begin
        await cluster.create("loops", _PARTITIONS)
        found = await closed_loops(cluster, "loops", _PARTITIONS, loops=_LOOPS)
        return found.columns() | {"all serve s": started_s, "memory MB": memory_mb(cluster)}


async def measure_polls(base: Path, count: int) -> dict[str, float]:
    async with Cluster(base) as cluster:
        await cluster.create("loops", _PARTITIONS)
        await cluster.admin.create_topic("quiet", partitions=_QUIET_PARTITIONS, replication_factor=3)
        await first_records(cluster, "quiet", _QUIET_PARTITIONS)
        async with _readers(cluster, "quiet", _QUIET_PARTITIONS, count):
            idle = cluster.cpu_s()
            await asyncio.sleep(2.0)
            idle = cluster.cpu_s() - idle
            found = await closed_loops(cluster, "loops", _PARTITIONS, loops=_LOOPS)
            columns = {"idle, % of a core": idle / 2.0 * 100, "memory MB": memory_mb(cluster)}
        return found.columns() | columns


async def measure_consumers(base: Path, count: int) -> dict[str, float]:
    """A record is under way at a time, to one consumer after the other."""
    async with Cluster(base) as cluster:
        await cluster.create("tail", _PARTITIONS)
        async with (
            _readers(cluster, "tail", _PARTITIONS, count) as consumers,
            AsyncProducer(bootstrap_servers=cluster.addresses, linger_ms=0) as producer,
        ):
            took: list[float] = []
            nodes, own = cluster.cpu_s(), time.process_time()
            for number in range(_DELIVERIES):
                consumer = consumers[number % count]
                begin = time.perf_counter()
                await producer.send("tail", VALUE, partition=number % count % _PARTITIONS)
                while not await consumer.poll(timeout_s=READY_S):
                    pass
                took.append(time.perf_counter() - begin)
            nodes, own = cluster.cpu_s() - nodes, time.process_time() - own
            p50_ms, p99_ms = percentiles_ms(took)
            return {
                "p50 ms": p50_ms,
                "p99 ms": p99_ms,
                "CPU of nodes, ms a record": nodes * 1e3 / _DELIVERIES,
                "CPU of clients, ms a record": own * 1e3 / _DELIVERIES,
                "memory MB": memory_mb(cluster),
                "descriptors": descriptors(cluster),
            }


@asynccontextmanager
async def _readers(cluster: Cluster, topic: str, partitions: int, count: int) -> AsyncIterator[list[AsyncConsumer]]:
    """Consumers at the tail of one partition each, in turns; their positions are known."""
    async with AsyncExitStack() as stack:
        consumers = []
        for number in range(count):
            one = AsyncConsumer(bootstrap_servers=cluster.addresses)
            consumer = await stack.enter_async_context(one)
            await consumer.assign([(topic, number % partitions)], start=LATEST)
            consumers.append(consumer)
        for number, consumer in enumerate(consumers):
            await consumer.position((topic, number % partitions), timeout_s=_TIMEOUT_S)
        yield consumers
