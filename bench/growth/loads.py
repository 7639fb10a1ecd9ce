"""Closed loops: each sends one record, waits until it is acknowledged, and sends the next.

A loop has partitions of its own, so a batch is one record. Loops are distributed over producers.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from contextlib import AsyncExitStack
from itertools import cycle
from typing import Final

from msgspec import Struct

from bench.cluster import Cluster
from streamlog.client import AsyncProducer

VALUE: Final = bytes(100)
WARM_S: Final = 1.0
MEASURED_S: Final = 4.0


class Loops(Struct, frozen=True, kw_only=True):
    """What the loops reached."""

    batches_per_s: float
    p50_ms: float
    p99_ms: float
    node_cpu_ms: float
    """Of all nodes, for a batch."""
    client_cpu_ms: float

    def columns(self) -> dict[str, float]:
        return {
            "batches/s": self.batches_per_s,
            "p50 ms": self.p50_ms,
            "p99 ms": self.p99_ms,
            "CPU of nodes, ms a batch": self.node_cpu_ms,
            "CPU of clients, ms a batch": self.client_cpu_ms,
        }


async def closed_loops(
    cluster: Cluster, topic: str, partitions: int, *, loops: int, producers: int = 1, seconds: float = MEASURED_S
) -> Loops:
    """`loops` is at least `producers`."""
    took: list[float] = []
    async with AsyncExitStack() as stack:
        clients = []
        for _ in range(producers):
            producer = AsyncProducer(bootstrap_servers=cluster.addresses, linger_ms=0)
            clients.append(await stack.enter_async_context(producer))

        async def loop(number: int) -> None:
            send = clients[number % producers].send
            own = range(number % partitions, partitions, loops) or range(number % partitions, partitions)
            for partition in cycle(own):
                begin = time.perf_counter()
                await send(topic, VALUE, partition=partition)
                took.append(time.perf_counter() - begin)

        tasks = [asyncio.create_task(loop(number)) for number in range(loops)]
        try:
            await _watch(tasks, WARM_S)
            took.clear()
            own, nodes, begin = time.process_time(), cluster.cpu_s(), time.monotonic()
            await _watch(tasks, seconds)
            own, nodes = time.process_time() - own, cluster.cpu_s() - nodes
            measured, passed = list(took), time.monotonic() - begin
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
    p50_ms, p99_ms = percentiles_ms(measured)
    return Loops(
        batches_per_s=len(measured) / passed,
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        node_cpu_ms=nodes * 1e3 / max(1, len(measured)),
        client_cpu_ms=own * 1e3 / max(1, len(measured)),
    )


async def _watch(tasks: list[asyncio.Task[None]], seconds: float) -> None:
    """The error of a loop, if one fails meanwhile."""
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()


def percentiles_ms(seconds: list[float]) -> tuple[float, float]:
    """The 50th and the 99th."""
    hundredths = statistics.quantiles(seconds, n=100)
    return hundredths[49] * 1e3, hundredths[98] * 1e3


async def first_records(cluster: Cluster, topic: str, partitions: int) -> None:
    """A record in each partition: then their logs exist, which nodes create one after the other."""
    async with AsyncProducer(bootstrap_servers=cluster.addresses) as producer:
        sent = [await producer.enqueue(topic, VALUE, partition=one) for one in range(partitions)]
        await asyncio.gather(*sent)


async def fill(cluster: Cluster, topic: str, total_bytes: int, value_bytes: int = 1_000) -> int:
    """Write that many bytes of values; how many records."""
    values = [os.urandom(value_bytes)] * max(1, (1 << 20) // value_bytes)
    written = 0
    async with AsyncProducer(bootstrap_servers=cluster.addresses, linger_ms=5, batch_size=256 << 10) as producer:
        while written * value_bytes < total_bytes:
            await producer.send_many(topic, values)
            written += len(values)
        await producer.flush()
    return written
