"""Benchmark part "validation": the cost of the leader's validation of records.

First alone: `validate` on one batch, with the check and without, the minimum of many runs; also with the optional
kernel where it is installed (`make kernel`). Then three real nodes as in part "cluster", which use the kernel where it
is installed, and two topics, one with `record.validation.enable=false`. The same values are sent to both alternately,
and each pair gives a ratio. This needs an idle machine.
"""

from __future__ import annotations

import random
import statistics
import time
from pathlib import Path
from typing import Final

from bench.cluster import NODES, PARTITIONS, Cluster
from bench.figures import Figure
from bench.scratch import scratch
from streamlog.client import AsyncProducer
from streamlog.ports.malloc import keep_large_blocks
from streamlog.ports.system import run as run_loop
from streamlog.records import BatchFields, Codec, ProduceLimits, encode_batch, validate
from streamlog.records.checks import record_check
from streamlog.records.checks.kernel import ValidTimes, valid_times

PAIRS: Final = 9
TURN_BYTES: Final = 24 << 20
VALUES: Final = 10_000
BATCH_BYTES: Final = (16 << 10, 256 << 10)
TARGET: Final = 10.0
ALONE_BYTES: Final = 256 << 10
ALONE_ROUNDS: Final = 300
NOW_MS: Final = 1_700_000_000_000


def run() -> list[Figure]:
    with scratch("validation") as base:
        return run_loop(_measure(base))


def _values() -> dict[str, tuple[str, list[bytes]]]:
    """Codec and values of each kind; not so random that they cannot be compressed."""
    rng = random.Random(1)
    words = [rng.randbytes(20) for _ in range(500)]
    mixed = [b"".join(rng.choice(words) for _ in range(rng.randrange(2, 9))) for _ in range(VALUES)]
    return {
        "100 B": ("none", [rng.randbytes(100) for _ in range(VALUES)]),
        "40 to 160 B": ("none", mixed),
        "1 KB": ("none", [rng.randbytes(1_000) for _ in range(VALUES // 5)]),
        "40 to 160 B, lz4": ("lz4", mixed),
        "40 to 160 B, gzip": ("gzip", mixed),
    }


async def _measure(base: Path) -> list[Figure]:
    keep_large_blocks()  # as a node does
    figures = [
        _alone(kind, codec, values, check, headers)
        for check in dict.fromkeys((None, valid_times))
        for kind, (codec, values) in _values().items()
        for headers in (0, 1)[: 1 + (kind == "40 to 160 B")]
    ]
    async with Cluster(base) as cluster:
        await cluster.create("checked")
        await cluster.admin.create_topic(
            "trusted", partitions=PARTITIONS, replication_factor=NODES, configs={"record.validation.enable": "false"}
        )
        for batch_bytes in BATCH_BYTES:
            for kind, (codec, values) in _values().items():
                figures += await _pairs(
                    cluster, f"{kind}, batches of {batch_bytes >> 10} KiB", codec, values, batch_bytes
                )
    return figures


def _alone(kind: str, codec: str, values: list[bytes], kernel: ValidTimes | None, headers: int) -> Figure:
    in_node, record_check.valid_times = record_check.valid_times, kernel  # type: ignore[misc]
    try:
        added_ms = _added_ms(codec, values, headers)
    finally:
        record_check.valid_times = in_node  # type: ignore[misc]
    name = f"check {kind}{', a header' * headers}, a batch of 256 KiB{'' if kernel is None else ', kernel'}"
    return Figure(name=name, value=added_ms, unit="ms/MB", less_is_better=True)


def _added_ms(codec: str, values: list[bytes], headers: int) -> float:
    """Milliseconds of the check per megabyte of values."""
    some = values[: max(1, ALONE_BYTES * len(values) // sum(map(len, values)))]
    columns = [(("trace", b"12345678"),)] * len(some) if headers else None
    batch = encode_batch(some, None, columns, timestamps=NOW_MS, fields=BatchFields(codec=Codec[codec.upper()]))
    best: dict[bool, float] = {}
    for _ in range(ALONE_ROUNDS):
        for check in (False, True):
            limits = ProduceLimits(message_bytes_max=len(batch), check_records=check)
            begin = time.perf_counter()
            validate(batch, 0, len(batch), limits, NOW_MS)
            best[check] = min(time.perf_counter() - begin, best.get(check, 1.0))
    return (best[True] - best[False]) * 1e3 / (sum(map(len, some)) / 1e6)


async def _pairs(cluster: Cluster, name: str, codec: str, values: list[bytes], batch_bytes: int) -> list[Figure]:
    rates: list[float] = []
    times: list[float] = []
    cpu: list[float] = []
    all_cpu: list[float] = []
    added: list[float] = []
    without: list[float] = []
    async with AsyncProducer(
        bootstrap_servers=cluster.addresses, linger_ms=5, batch_size=batch_bytes, compression_type=codec
    ) as producer:
        for turn in range(-1, PAIRS):
            topics = ("checked", "trusted") if turn % 2 else ("trusted", "checked")
            found = {topic: await _send(cluster, producer, topic, values) for topic in topics}
            if turn >= 0:  # the first is to warm up
                rates.append(found["checked"][0])
                times.append(found["trusted"][0] / found["checked"][0] - 1)
                cpu.append(found["checked"][1] / found["trusted"][1] - 1)
                all_cpu.append(found["checked"][2] / found["trusted"][2] - 1)
                added.append((found["checked"][1] - found["trusted"][1]) / TURN_BYTES * 1e6)
                without.append(found["trusted"][2] / TURN_BYTES * 1e6)
    return [
        Figure(name=f"produce {name}", value=statistics.median(rates), unit="MB/s"),
        Figure(
            name=f"... time that the check adds, median of {PAIRS} pairs",
            value=statistics.median(times) * 100,
            unit="%",
            target=TARGET,
            less_is_better=True,
        ),
        Figure(
            name="... CPU of nodes and client",
            value=statistics.median(all_cpu) * 100,
            unit="%",
            target=TARGET,
            less_is_better=True,
        ),
        Figure(name="... CPU of the nodes", value=statistics.median(cpu) * 100, unit="%", less_is_better=True),
        Figure(name="... by volume", value=statistics.median(added) * 1e3, unit="ms/MB", less_is_better=True),
        Figure(name="... nodes and client without it", value=min(without) * 1e3, unit="ms/MB", less_is_better=True),
    ]


async def _send(
    cluster: Cluster, producer: AsyncProducer, topic: str, values: list[bytes]
) -> tuple[float, float, float]:
    """Megabytes a second; seconds of CPU of all nodes, and of these and the client."""
    size = sum(map(len, values))
    cpu_s, own_s, begin = cluster.cpu_s(), time.process_time(), time.perf_counter()
    for _ in range(max(1, TURN_BYTES // size)):
        await producer.send_many(topic, values)
    await producer.flush()
    sent = max(1, TURN_BYTES // size) * size
    took_s, own_s, cpu_s = time.perf_counter() - begin, time.process_time() - own_s, cluster.cpu_s() - cpu_s
    return sent / 1e6 / took_s, cpu_s, cpu_s + own_s
