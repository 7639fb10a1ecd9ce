"""Parts "log", by a log's MB, and "volume", MB through a cluster.

log      one partition of three replicas: offsets looked up by time, a record read from anywhere, a node started
         after a clean stop and after `kill -9`
volume   a topic that keeps 64 MB a partition is written; the nodes' memory after each tenth
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Final

from bench.cluster import READY_S, Cluster
from bench.growth.loads import fill, percentiles_ms
from bench.growth.usage import descriptors, memory_mb
from streamlog.client import EARLIEST, AsyncAdmin, AsyncConsumer
from streamlog.daemon.local_cluster import LocalNode

_TOPIC: Final = "log"
_LOOKUPS: Final = 200
_SETTLED_S: Final = 180.0
_KEPT_BYTES: Final = 64 << 20
_TENTHS: Final = 10


async def measure_log(base: Path, megabytes: int) -> dict[str, float]:
    async with Cluster(base) as cluster:
        await cluster.create(_TOPIC, 1)
        begin = int(time.time() * 1000)
        count = await fill(cluster, _TOPIC, megabytes * 1_000_000)
        end = int(time.time() * 1000)
        columns = await _lookups(cluster, count, begin, end)
        node = cluster.local.nodes[-1]
        cluster.local.stop([node], READY_S)
        columns["start after a stop s"] = await _started(cluster, node)
        cluster.local.kill(node)
        columns["start after kill -9 s"] = await _started(cluster, node)
        return columns | {"memory MB": memory_mb(cluster), "descriptors": descriptors(cluster)}


async def _lookups(cluster: Cluster, count: int, begin: int, end: int) -> dict[str, float]:
    rng = random.Random(7)
    by_time, read = [], []
    async with AsyncConsumer(bootstrap_servers=cluster.addresses) as consumer:
        for _ in range(_LOOKUPS):
            at = time.perf_counter()
            await consumer.offsets_for_times({(_TOPIC, 0): rng.randint(begin, end)})
            by_time.append(time.perf_counter() - at)
        await consumer.assign([(_TOPIC, 0)], start=EARLIEST)
        for _ in range(_LOOKUPS):
            at = time.perf_counter()
            consumer.seek((_TOPIC, 0), rng.randrange(count))
            if not await consumer.poll(1, timeout_s=READY_S):
                raise RuntimeError(f"no record was read within {READY_S} s")
            read.append(time.perf_counter() - at)
    by_time_ms, read_ms = percentiles_ms(by_time), percentiles_ms(read)
    return {
        "offset by time, p50 ms": by_time_ms[0],
        "p99 ms": by_time_ms[1],
        "a record anywhere, p50 ms": read_ms[0],
        "... p99 ms": read_ms[1],
    }


async def _started(cluster: Cluster, node: LocalNode) -> float:
    """Until its replica is in sync."""
    begin = time.monotonic()
    cluster.local.start(node)
    async with AsyncAdmin({"bootstrap.servers": node.address}) as admin:

        async def serves() -> bool:
            return bool((await admin.describe_cluster()).nodes)

        await cluster.until(serves, _SETTLED_S)
    await cluster.until_in_sync(_TOPIC)
    return time.monotonic() - begin


async def measure_volume(base: Path, megabytes: int) -> dict[int, dict[str, float]]:
    """By MB written so far."""
    settings = {"log.retention.check.interval.ms": "1000"}
    async with Cluster(base, settings) as cluster:
        kept = {"retention.bytes": str(_KEPT_BYTES), "segment.bytes": str(_KEPT_BYTES // 4)}
        await cluster.create(_TOPIC, configs=kept)
        found, step = {}, max(1, megabytes // _TENTHS)
        for written in range(step, megabytes + 1, step):
            begin, cpu = time.monotonic(), cluster.cpu_s()
            await fill(cluster, _TOPIC, step * 1_000_000)
            took, cpu = time.monotonic() - begin, cluster.cpu_s() - cpu
            found[written] = {
                "memory MB": memory_mb(cluster),
                "descriptors": descriptors(cluster),
                "MB/s": step / took,
                "CPU of nodes, ms/MB": cpu * 1e3 / step,
            }
        return found
