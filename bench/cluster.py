"""Benchmark part "cluster": three real nodes on loopback, each with its own directory on the real disk.

Settings are the defaults: acks=all, min.insync.replicas=2, synced before the acknowledgement. One machine runs the
three nodes, each of which writes and syncs all records, and the client.

Topics have 6 partitions with 3 replicas. Bytes are those of values. A write pause is the longest time between two
acknowledgements of a partition whose leader is killed (SIGKILL), with one record in flight at any time.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from bench.figures import Figure
from bench.scratch import scratch
from streamlog.client import EARLIEST, AsyncAdmin, AsyncConsumer, AsyncProducer
from streamlog.client.admin.values import NodeState
from streamlog.daemon.local_cluster import LocalCluster
from streamlog.errors import StreamlogError
from streamlog.model import PartitionId, TopicPartition
from streamlog.ports.system import run as run_loop

NODES: Final = 3
PARTITIONS: Final = 6
BULK_BYTES: Final = 96 << 20
LATENCY_RECORDS: Final = 1_000
KILLS: Final = 20
IDLE_S: Final = 20.0
READY_S: Final = 30.0
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


def run() -> list[Figure]:
    with scratch("cluster") as base:
        return run_loop(_measure(base))


POLL_S: Final = 0.02
"""Between two looks, which cost the nodes something too."""


class Cluster:
    """`async with`; all nodes are dead afterwards."""

    def __init__(
        self, base: Path, settings: Mapping[str, str] | None = None, *, nodes: int = NODES, secure: bool = False
    ) -> None:
        """`settings`: of every node. `secure`: over mutual TLS; `admin` is its administrator."""
        self.local = LocalCluster(base)
        self._nodes = nodes
        self._settings = settings or {}
        self._secure = secure
        self._cleanup = AsyncExitStack()

    async def __aenter__(self) -> Cluster:
        self.local.create(self._nodes, 0, self._settings, secure=self._secure)
        self._cleanup.callback(self._kill_all)
        for node in self.local.nodes:
            self.local.start(node)
        self.addresses = ",".join(node.address for node in self.local.nodes)
        try:
            self.admin = await self._cleanup.enter_async_context(
                AsyncAdmin({**self.local.client_settings, "bootstrap.servers": self.addresses})
            )
            await self.until(self._all_serve)
        except BaseException:  # else the nodes outlive the benchmark
            await self._cleanup.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._cleanup.aclose()

    def _kill_all(self) -> None:
        for node in self.local.nodes:
            self.local.kill(node)

    async def _all_serve(self) -> bool:
        states = [node.state for node in (await self.admin.describe_cluster()).nodes]
        return states == [NodeState.ACTIVE] * self._nodes

    async def until(self, condition: Callable[[], Awaitable[bool]], within_s: float = READY_S) -> float:
        """Seconds until it held."""
        begin = time.monotonic()
        while time.monotonic() - begin < within_s:
            try:
                if await condition():
                    return time.monotonic() - begin
            except StreamlogError:
                pass
            await asyncio.sleep(POLL_S)
        raise RuntimeError(f"{condition.__name__}: not within {within_s} s")

    async def create(
        self, topic: str, partitions: int = PARTITIONS, *, configs: Mapping[str, str] | None = None
    ) -> None:
        """With all replicas in sync."""
        await self.admin.create_topic(topic, partitions=partitions, replication_factor=NODES, configs=configs)
        await self.until_in_sync(topic)

    async def until_in_sync(self, topic: str) -> None:
        """On all nodes, and with a leader."""

        async def in_sync() -> bool:
            found = await self.admin.describe_topic(topic)
            return all(len(partition.isr) == NODES and partition.leader for partition in found.partitions)

        await self.until(in_sync)

    def pids(self) -> dict[int, int]:
        return {node.node_id: node.process.pid for node in self.local.nodes if node.process is not None}

    def cpu_s(self) -> float:
        """Of all nodes so far, user and system."""
        return sum(cpu_s(pid) for pid in self.pids().values())


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _measure(base: Path) -> list[Figure]:
    async with Cluster(base) as cluster:
        memory = statistics.median(resident_bytes(pid) for pid in cluster.pids().values())
        figures = [Figure(name="memory of a fresh node", value=memory / 1e6, unit="MB", target=90, less_is_better=True)]
        for value_bytes in (100, 1_000):
            figures += await _bulk(cluster, value_bytes)
        figures += await _latency(cluster)
        figures += await _idle(cluster)
        figures += await _starts(cluster)
        return figures + await _pauses(cluster)


# Bulk.


async def _bulk(cluster: Cluster, value_bytes: int) -> list[Figure]:
    topic, count = f"bulk-{value_bytes}", BULK_BYTES // value_bytes
    await cluster.create(topic)
    figures = []
    for kind, produce in (("send", _send_each), ("send_many", _send_many)):
        await produce(cluster, topic, value_bytes, count // 10)  # warm
        own, nodes, begin = time.process_time(), cluster.cpu_s(), time.monotonic()
        await produce(cluster, topic, value_bytes, count)
        took = time.monotonic() - begin
        own, nodes = time.process_time() - own, cluster.cpu_s() - nodes
        figures += _rates(f"produce {value_bytes} B, {kind}", count, value_bytes, took, own, nodes)
    own, nodes, begin = time.process_time(), cluster.cpu_s(), time.monotonic()
    read = await _consume(cluster, topic, 2 * count)
    took = time.monotonic() - begin
    own, nodes = time.process_time() - own, cluster.cpu_s() - nodes
    return figures + _rates(f"consume {value_bytes} B, batches", read, value_bytes, took, own, nodes)


def _rates(name: str, count: int, value_bytes: int, took: float, own: float, nodes: float) -> list[Figure]:
    megabytes = count * value_bytes / 1e6
    return [
        Figure(name=name, value=count / took / 1e3, unit="k records/s"),
        Figure(name="...", value=megabytes / took, unit="MB/s"),
        Figure(name="... CPU of the client", value=own / megabytes * 1e3, unit="ms/MB", less_is_better=True),
        Figure(name="... CPU of all nodes", value=nodes / megabytes * 1e3, unit="ms/MB", less_is_better=True),
    ]


async def _send_each(cluster: Cluster, topic: str, value_bytes: int, count: int) -> None:
    value = bytes(value_bytes)
    async with AsyncProducer(bootstrap_servers=cluster.addresses, linger_ms=5, batch_size=256 << 10) as producer:
        send = producer.send
        turn = (128 << 10) // value_bytes  # of records that fit into a batch beside another
        for start in range(0, count, turn):
            if producer.is_full:
                await producer.wait_until_room()
            for _ in range(start, min(start + turn, count)):
                send(topic, value)
            await asyncio.sleep(0)
        await producer.flush()


async def _send_many(cluster: Cluster, topic: str, value_bytes: int, count: int) -> None:
    values = [bytes(value_bytes)] * 10_000
    async with AsyncProducer(bootstrap_servers=cluster.addresses, linger_ms=5, batch_size=256 << 10) as producer:
        for _ in range(0, count, len(values)):
            await producer.send_many(topic, values)
        await producer.flush()


async def _consume(cluster: Cluster, topic: str, count: int) -> int:
    async with AsyncConsumer(bootstrap_servers=cluster.addresses) as consumer:
        await consumer.assign_topics([topic], start=EARLIEST)
        read = 0
        while read < count:
            batch = await consumer.poll_batch(timeout_s=READY_S)
            if batch is None:
                raise RuntimeError(f"{read} of {count} records, and no more come")
            read += len(batch.columns())
        return read


# One at a time.


async def _latency(cluster: Cluster) -> list[Figure]:
    await cluster.create("latency", partitions=1)
    value, figures = bytes(1_000), []
    async with (
        AsyncProducer(bootstrap_servers=cluster.addresses, linger_ms=0) as producer,
        AsyncConsumer(bootstrap_servers=cluster.addresses) as consumer,
    ):
        await consumer.assign([TopicPartition("latency", PartitionId(0))], start=EARLIEST)
        acknowledged, end_to_end = [], []
        for _ in range(LATENCY_RECORDS):
            begin = time.perf_counter()
            await producer.send("latency", value)
            acknowledged.append(time.perf_counter() - begin)
            await consumer.poll(timeout_s=READY_S)
            end_to_end.append(time.perf_counter() - begin)
    for name, seconds in (("1 KB to its acknowledgement", acknowledged), ("... and to its reader", end_to_end)):
        hundredths = statistics.quantiles(seconds, n=100)
        figures += [
            Figure(name=f"{name}, p50", value=hundredths[49] * 1e3, unit="ms", less_is_better=True),
            Figure(name="... p99", value=hundredths[98] * 1e3, unit="ms", less_is_better=True),
        ]
    return figures


# Idle, start, fail-over.


async def _idle(cluster: Cluster) -> list[Figure]:
    await cluster.create("idle", partitions=100)
    await asyncio.sleep(5)  # the rest of the creation's work
    before = {node: cpu_s(pid) for node, pid in cluster.pids().items()}
    await asyncio.sleep(IDLE_S)
    percent = [(cpu_s(pid) - before[node]) / IDLE_S * 100 for node, pid in cluster.pids().items()]
    name = "idle with 100 partitions, the busiest node"
    return [Figure(name=name, value=max(percent), unit="% of a core", target=0.7, less_is_better=True)]


async def _starts(cluster: Cluster) -> list[Figure]:
    """From the start of the process to its first response, to a client that retries immediately."""
    names = ("reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms", "retry.backoff.max.ms")
    impatient: Mapping[str, int] = dict.fromkeys(names, 5)
    times = []
    for node in cluster.local.nodes:
        cluster.local.stop([node], READY_S)
        cluster.local.start(node)
        async with AsyncAdmin({"bootstrap.servers": node.address, **impatient}) as admin:

            async def serves(admin: AsyncAdmin = admin) -> bool:
                return bool((await admin.describe_cluster()).nodes)

            times.append(await cluster.until(serves))
        await cluster.until(_all_in_sync(cluster))
    return [Figure(name="node ready after its start", value=max(times), unit="s", target=1.0, less_is_better=True)]


def _all_in_sync(cluster: Cluster) -> Callable[[], Awaitable[bool]]:
    async def all_in_sync() -> bool:
        topics = await cluster.admin.describe_topics()
        return all(len(partition.isr) == NODES for topic in topics for partition in topic.partitions)

    return all_in_sync


async def _pauses(cluster: Cluster) -> list[Figure]:
    await cluster.create("pause", partitions=1)
    pauses = [await _pause(cluster) for _ in range(KILLS)]
    return [
        Figure(
            name="write pause, leader killed, median",
            value=statistics.median(pauses),
            unit="s",
            target=1.0,
            less_is_better=True,
        ),
        Figure(name=f"... worst of {KILLS}", value=max(pauses), unit="s", target=2.0, less_is_better=True),
    ]


async def _pause(cluster: Cluster) -> float:
    leader = (await cluster.admin.describe_topic("pause")).partitions[0].leader
    assert leader is not None
    acknowledged: list[float] = []
    async with AsyncProducer(bootstrap_servers=cluster.addresses, linger_ms=0) as producer:

        async def write() -> None:
            while True:
                await producer.send("pause", b"x")
                acknowledged.append(time.monotonic())

        writing = asyncio.create_task(write())
        await asyncio.sleep(0.3)
        cluster.local.kill(cluster.local.node(leader))
        killed = time.monotonic()
        while not acknowledged or acknowledged[-1] < killed + 0.2:
            if writing.done():
                writing.result()
            await asyncio.sleep(0.01)
        writing.cancel()
        await asyncio.wait([writing])
    cluster.local.start(cluster.local.node(leader))
    await cluster.until(_all_in_sync(cluster))
    return max(after - before for before, after in itertools.pairwise(acknowledged))
