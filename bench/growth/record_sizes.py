"""Part "sizes": values of that many bytes, one at a time and in bulk, to six partitions of three replicas."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from bench.cluster import READY_S, Cluster
from bench.growth.loads import percentiles_ms
from streamlog.client import EARLIEST, AsyncConsumer, AsyncProducer

_TOPIC: Final = "sizes"
_BULK_BYTES: Final = 48 << 20
_RECORDS_MAX: Final = 400_000
_SINGLE: Final = 300
_SINGLE_BYTES: Final = 64 << 20
_MESSAGE_BYTES_MAX: Final = 8 << 20
_REQUEST_BYTES_MAX: Final = 64 << 20


async def measure(base: Path, size: int) -> dict[str, float]:
    async with Cluster(base, {"socket.request.max.bytes": str(_REQUEST_BYTES_MAX)}) as cluster:
        await cluster.create(_TOPIC, configs={"max.message.bytes": str(_MESSAGE_BYTES_MAX)})
        value = os.urandom(size)
        settings = {"bootstrap.servers": cluster.addresses, "max.request.size": _MESSAGE_BYTES_MAX}
        took = []
        async with AsyncProducer({**settings, "linger.ms": 0}) as producer:
            for _ in range(max(20, min(_SINGLE, _SINGLE_BYTES // size))):
                begin = time.perf_counter()
                await producer.send(_TOPIC, value)
                took.append(time.perf_counter() - begin)
        p50_ms, p99_ms = percentiles_ms(took)
        count = min(_RECORDS_MAX, max(10, _BULK_BYTES // size))
        nodes, own, begin = cluster.cpu_s(), time.process_time(), time.monotonic()
        async with AsyncProducer({**settings, "linger.ms": 5, "batch.size": 256 << 10}) as producer:
            values = [value] * max(1, (1 << 20) // max(100, size))
            for _ in range(0, count, len(values)):
                await producer.send_many(_TOPIC, values)
            await producer.flush()
        passed, nodes, own = time.monotonic() - begin, cluster.cpu_s() - nodes, time.process_time() - own
        written = -(-count // len(values)) * len(values)
        return {
            "p50 ms": p50_ms,
            "p99 ms": p99_ms,
            "k records/s": written / passed / 1e3,
            "MB/s": written * size / passed / 1e6,
            "CPU of nodes, ms/MB": nodes * 1e9 / (written * size),
            "CPU of the producer, ms/MB": own * 1e9 / (written * size),
            "read, MB/s": await _read(cluster, written + len(took)) * size / 1e6,
        }


async def _read(cluster: Cluster, count: int) -> float:
    """Records a second, by batches."""
    async with AsyncConsumer(bootstrap_servers=cluster.addresses) as consumer:
        await consumer.assign_topics([_TOPIC], start=EARLIEST)
        begin, read = time.monotonic(), 0
        while read < count:
            batch = await consumer.poll_batch(timeout_s=READY_S)
            if batch is None:
                raise RuntimeError(f"{read} of {count} records, and no more come")
            read += len(batch.columns())
        return count / (time.monotonic() - begin)
