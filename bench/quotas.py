"""Quotas, of benchmark part "security": whether they hold, and what a noisy client does to another.

One node, then three, with PLAINTEXT. A producer sends as fast as it may, to partitions on all nodes; its rate is that
of what is acknowledged in the SECONDS after the first SETTLE_S. A consumer of what was written follows.

Then a noisy client writes as fast as it can, and with a limit of bytes or of the node's time; meanwhile another one
writes a record at a time, and the 99th percentile of its latency is compared with that without the noise.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from bench.cluster import Cluster
from bench.figures import Figure
from streamlog.access.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE, QuotaEntity
from streamlog.client import EARLIEST, AsyncConsumer, AsyncProducer
from streamlog.client.producer.batches.producer_batch import RecordFuture
from streamlog.errors import StreamlogError
from streamlog.model import PartitionId, TopicPartition

RATE: Final = 500_000
SECONDS: Final = 30
SETTLE_S: Final = 5
VALUE: Final = bytes(1_000)
ROUNDS: Final = 8
QUIET_S: Final = 3
NOISE_SETTLE_S: Final = 2
PAUSE_S: Final = 0.01
NOISE: Final = 500_000
BUSY_PERCENT: Final = 10
DEVIATION_MAX: Final = 5.0
RATIO_MAX: Final = 2.0


async def measure(base: Path) -> list[Figure]:
    figures = []
    for nodes in (1, 3):
        async with Cluster(base / f"quotas-{nodes}", nodes=nodes) as cluster:
            await cluster.admin.create_topic("bulk", partitions=2 * nodes, replication_factor=1)
            figures += await _held(cluster, nodes)
            if nodes == 1:
                figures += await _noise(cluster)
    return figures


async def _held(cluster: Cluster, nodes: int) -> list[Figure]:
    limits = {PRODUCER_BYTE_RATE: RATE, CONSUMER_BYTE_RATE: RATE}
    await cluster.admin.alter_client_quotas({QuotaEntity(client_id="bench"): limits})
    settings = {"bootstrap.servers": cluster.addresses, "client.id": "bench"}
    figures = []
    await _fill({**settings, "client.id": "other"}, nodes)
    for name, work in (("produce", _produce), ("consume", _consume)):
        rate = await work(settings, nodes)
        figures.append(
            Figure(
                name=f"{name}, quota {RATE / 1e6:g} MB/s, nodes: {nodes}: off by, over {SECONDS} s",
                value=abs(rate / RATE - 1) * 100,
                unit="%",
                target=DEVIATION_MAX,
                less_is_better=True,
            )
        )
    return figures


async def _fill(settings: Mapping[str, object], nodes: int) -> None:
    """Records for the consumer: it may read more of a partition than the producer has written there."""
    async with AsyncProducer(settings) as producer:
        for number in range(40 * RATE // len(VALUE)):
            await producer.enqueue("bulk", VALUE, partition=number % (2 * nodes))
        await producer.flush()


async def _produce(settings: Mapping[str, object], nodes: int) -> float:
    """Bytes a second of values, as they are acknowledged; what is around them is some 1 % more."""
    done = 0

    def acknowledged(record: RecordFuture) -> None:
        nonlocal done
        with suppress(StreamlogError):
            record.result()
            done += len(VALUE)

    async def send(producer: AsyncProducer, partition: int) -> None:
        while True:
            (await producer.enqueue("bulk", VALUE, partition=partition)).add_done_callback(acknowledged)

    async with AsyncProducer({**settings, "buffer.memory": 16 << 20}) as producer:
        async with _beside(send(producer, partition) for partition in range(2 * nodes)):
            rate = await _rate(lambda: done)
        await producer.close(timeout_s=0)
    return rate


async def _consume(settings: Mapping[str, object], nodes: int) -> float:
    done = 0

    async def read(consumer: AsyncConsumer) -> None:
        nonlocal done
        while True:
            batch = await consumer.poll_batch(timeout_s=60.0)
            if batch is not None:
                done += len(VALUE) * len(batch.columns())

    parts = {TopicPartition("bulk", PartitionId(partition)): EARLIEST for partition in range(2 * nodes)}
    async with AsyncConsumer(settings) as consumer:
        await consumer.assign(parts)
        async with _beside([read(consumer)]):
            rate = await _rate(lambda: done)
    return rate


@asynccontextmanager
async def _beside(work: Iterable[Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Runs it until the end of the block, which fails as soon as one part of it does."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in work]
        yield
        for task in tasks:
            task.cancel()


async def _rate(done: Callable[[], int]) -> float:
    """Bytes a second, once it is settled."""
    await asyncio.sleep(SETTLE_S)
    before, begin = done(), time.monotonic()
    await asyncio.sleep(SECONDS)
    return (done() - before) / (time.monotonic() - begin)


async def _noise(cluster: Cluster) -> list[Figure]:
    """On the node alone: the noisy client has all of it, or its quota. In turn, each round in another order: what else
    the machine does then is the same for all.
    """
    await cluster.admin.create_topic("quiet", partitions=1, replication_factor=1)
    await cluster.admin.alter_client_quotas(
        {
            QuotaEntity(client_id="noisy"): {PRODUCER_BYTE_RATE: NOISE},
            QuotaEntity(client_id="busy"): {REQUEST_PERCENTAGE: BUSY_PERCENT},
        }
    )
    settings = {"bootstrap.servers": cluster.addresses}
    clients = {
        "": "",
        "without a quota": "free",
        f"with {NOISE / 1e6:g} MB/s": "noisy",
        f"with {BUSY_PERCENT} % of the node's time": "busy",
    }
    took: dict[str, list[float]] = {name: [] for name in clients}
    async with AsyncProducer({**settings, "client.id": "quiet", "linger.ms": 0}) as quiet:
        await quiet.send("quiet", VALUE)
        for number in range(ROUNDS):
            first = number % len(clients)
            for name in (list(clients) * 2)[first : first + len(clients)]:
                async with _noisy({**settings, "client.id": clients[name]}):
                    took[name] += await _latencies(quiet)
    alone = _percentile(took.pop(""))
    figures = [Figure(name="p99 of another client, alone", value=alone * 1e3, unit="ms", less_is_better=True)]
    for name, of_one in took.items():
        p99 = _percentile(of_one)
        target = RATIO_MAX if name.startswith("with ") else None
        figures += [
            Figure(name=f"... beside a noisy one {name}", value=p99 * 1e3, unit="ms", less_is_better=True),
            Figure(name="... to that alone", value=p99 / alone, unit="x", target=target, less_is_better=True),
        ]
    return figures


@asynccontextmanager
async def _noisy(settings: Mapping[str, object]) -> AsyncIterator[None]:
    """A client that writes as fast as it may; none without a client id."""
    if not settings["client.id"]:
        yield
        return
    async with AsyncProducer(settings) as producer:
        async with _beside(_send_on(producer, number % 2) for number in range(4)):
            await asyncio.sleep(NOISE_SETTLE_S)
            yield
        await producer.close(timeout_s=0)


async def _send_on(producer: AsyncProducer, partition: int) -> None:
    while True:
        await producer.enqueue("bulk", VALUE, partition=partition)


async def _latencies(producer: AsyncProducer) -> list[float]:
    """Seconds from a record to its acknowledgement."""
    took = []
    until = time.monotonic() + QUIET_S
    while time.monotonic() < until:
        begin = time.monotonic()
        await producer.send("quiet", VALUE)
        took.append(time.monotonic() - begin)
        await asyncio.sleep(PAUSE_S)
    return took


def _percentile(took: list[float]) -> float:
    """The 99th."""
    return sorted(took)[len(took) * 99 // 100]
