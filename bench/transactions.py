"""Benchmark part "transactions": three real nodes on loopback, as in "cluster", and one transactional producer.

A commit is timed from its first record to the response of EndTransaction: one record of 100 bytes to each partition of
the transaction, flushed, EndTransaction. The next one starts immediately, so it also waits for the markers of this one.

The overhead of transactions of 100 ms is measured against an idempotent producer without transactions: the maximum rate
of 1 KB records, acks=all, alternating every few seconds, and the ratio of each pair. Both have a small buffer.memory,
so that a commit does not wait for a long queue.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from typing import Final

from bench.cluster import Cluster
from bench.figures import Figure
from bench.scratch import scratch
from streamlog.client import AsyncProducer
from streamlog.ports.system import run as run_loop

COMMITS: Final = {1: 400, 10: 200, 100: 60}
"""By partitions of a transaction."""
WARM: Final = 10
VALUE_BYTES: Final = 1_000
TURN_S: Final = 2.0
PAIRS: Final = 9
TRANSACTION_S: Final = 0.1
SENT_AT_ONCE: Final = 64
BATCH_BYTES: Final = 128 << 10
MEMORY_BYTES: Final = 4 << 20
COMMITS_MEMORY_BYTES: Final = 32 << 20  # for a batch in each partition


def run() -> list[Figure]:
    with scratch("transactions") as base:
        return run_loop(_measure(base))


async def _measure(base: Path) -> list[Figure]:
    figures: list[Figure] = []
    async with Cluster(base) as cluster:
        for partitions, count in COMMITS.items():
            figures += await _commits(cluster, partitions, count)
        return figures + await _overhead(cluster)


def _producer(
    cluster: Cluster, name: str = "", *, linger_ms: int = 5, memory_bytes: int = MEMORY_BYTES
) -> AsyncProducer:
    settings = {"transactional.id": name} if name else {}
    return AsyncProducer(
        {"bootstrap.servers": cluster.addresses, "linger.ms": linger_ms, "batch.size": BATCH_BYTES, **settings},
        buffer_memory=memory_bytes,
    )


async def _commits(cluster: Cluster, partitions: int, count: int) -> list[Figure]:
    topic = f"commits-{partitions}"
    await cluster.create(topic, partitions)
    times = []
    async with _producer(cluster, topic, linger_ms=0, memory_bytes=COMMITS_MEMORY_BYTES) as producer:
        for _ in range(count + WARM):
            begin = time.perf_counter()
            async with producer.transaction():
                for partition in range(partitions):
                    producer.send(topic, bytes(100), partition=partition)
            times.append(time.perf_counter() - begin)
    hundredths = statistics.quantiles(times[WARM:], n=100)
    noun = "partition" if partitions == 1 else "partitions"
    return [
        Figure(
            name=f"transactions of {partitions} {noun}, one after another", value=count / sum(times[WARM:]), unit="/s"
        ),
        Figure(name="... p50", value=hundredths[49] * 1e3, unit="ms", less_is_better=True),
        Figure(name="... p99", value=hundredths[98] * 1e3, unit="ms", less_is_better=True),
    ]


async def _overhead(cluster: Cluster) -> list[Figure]:
    topic = "overhead"
    await cluster.create(topic)
    plain, transactional, ratios = [], [], []
    async with _producer(cluster) as one, _producer(cluster, topic) as other:
        await _plain(one, topic, TURN_S / 4)  # warm
        await _in_transactions(other, topic, TURN_S / 4)
        for turn in range(PAIRS):
            if turn % 2:  # the second one finds more in the page cache
                slower = await _in_transactions(other, topic, TURN_S)
                faster = await _plain(one, topic, TURN_S)
            else:
                faster = await _plain(one, topic, TURN_S)
                slower = await _in_transactions(other, topic, TURN_S)
            plain.append(faster)
            transactional.append(slower)
            ratios.append(faster / slower - 1)
    return [
        Figure(name="idempotent, 1 KB", value=statistics.median(plain) * VALUE_BYTES / 1e6, unit="MB/s"),
        Figure(
            name="in transactions of 100 ms", value=statistics.median(transactional) * VALUE_BYTES / 1e6, unit="MB/s"
        ),
        Figure(
            name=f"... overhead, median of {PAIRS} pairs",
            value=statistics.median(ratios) * 100,
            unit="%",
            target=15,
            less_is_better=True,
        ),
    ]


async def _plain(producer: AsyncProducer, topic: str, lasts_s: float) -> float:
    """Records a second."""
    begin = time.perf_counter()
    count = await _send(producer, topic, begin + lasts_s)
    await producer.flush()
    return count / (time.perf_counter() - begin)


async def _in_transactions(producer: AsyncProducer, topic: str, lasts_s: float) -> float:
    """Records a second."""
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < lasts_s:
        async with producer.transaction():
            count += await _send(producer, topic, time.perf_counter() + TRANSACTION_S)
    return count / (time.perf_counter() - begin)


async def _send(producer: AsyncProducer, topic: str, until: float) -> int:
    """As many as the producer has room for."""
    value, count = bytes(VALUE_BYTES), 0
    while time.perf_counter() < until:
        await producer.wait_until_room()
        for _ in range(SENT_AT_ONCE):
            producer.send(topic, value)
        count += SENT_AT_ONCE
        await asyncio.sleep(0)
    return count
