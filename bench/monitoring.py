"""Benchmark part "monitoring": what it costs a loaded cluster to be looked at.

Three nodes on loopback with the default settings, and a producer without pause. In every other round their /metrics is
scraped each 5 s by a process of its own, as Prometheus does, and the web console samples them; in the others both are
stopped (SIGSTOP). Rounds alternate (A B B A), so that what else the machine does falls on both. Ratios are of
whole rounds: records acknowledged a second, and records a CPU second of all nodes; the median of the pairs. The CPU of
the console is not the nodes': on a machine with free cores it costs them nothing.

After each pair comes one more round that is not looked at. The ratio of two such rounds is 1 but for what else the
machine does. Beside each median stands the interval that contains the true one with 96 % probability, whatever the
distribution: from the third smallest to the third largest of twelve pairs. Where it contains both 1 and 0.98, the
machine was too busy to show whether the target is met; records a CPU second vary less than the rate there.

The same cost by itself: the CPU time of idle nodes for a number of scrapes and samples, less what they take anyway. It
varies less with what else the machine does than a rate.

Memory is of idle nodes: with and without `http.listeners`, scraped ten times.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

from bench.cluster import NODES, PARTITIONS, Cluster, cpu_s, resident_bytes
from bench.figures import Figure
from bench.scratch import scratch
from streamlog.client import AsyncProducer
from streamlog.config.settings.node_settings import HTTP_LISTENERS
from streamlog.console.collection.sample import sample
from streamlog.ports.system import run as run_loop

PAIRS: Final = 12
INTERVAL_FROM: Final = 2
"""The place, in order of size, of an interval's lower end; the upper end is as far from the largest: 0.9614 for 12."""
ROUND_S: Final = 10.0
"""Two scrapes of each node and two samples of the console; shorter rounds would have more or fewer by chance."""
SCRAPE_S: Final = 5.0  # the console samples as often
SCRAPES: Final = 10
REUSED_S: Final = 1.1
"""A collection is reused for a second."""
LOOKS: Final = 30
IDLE_S: Final = 15.0
VALUE_BYTES: Final = 1_000
TOPIC: Final = "monitored"
BOUNDED: Final = {
    "retention.bytes": str(128 << 20),
    "segment.bytes": str(32 << 20),
    "file.delete.delay.ms": "1000",
}
"""Of each replica: the rounds write tens of GB, which a disk need not have."""
CHECKED_OFTEN: Final = {"log.retention.check.interval.ms": "2000"}
RATIO_MIN: Final = 0.98
MEMORY_MB_MAX: Final = 6.0


class Round(Struct, frozen=True):
    records: int
    took_s: float
    nodes_cpu_s: float
    console_cpu_s: float

    @property
    def rate(self) -> float:
        return self.records / self.took_s

    @property
    def per_cpu_s(self) -> float:
        return self.records / self.nodes_cpu_s


def run() -> list[Figure]:
    with scratch("monitoring") as base:
        return run_loop(_measure(base))


async def _measure(base: Path) -> list[Figure]:
    plain = await _memory(base / "plain", {HTTP_LISTENERS.name: ""})
    scraped = await _memory(base / "scraped", {})
    async with Cluster(base / "loaded", CHECKED_OFTEN) as cluster:
        await cluster.admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=NODES, configs=BOUNDED)
        await cluster.until_in_sync(TOPIC)
        costs_ms = await _costs_ms(cluster)
        with _console(base / "console", cluster.addresses) as console, _scraper(cluster) as scraper:
            pairs, alone = await _pairs(cluster, Watchers(console=console, scraper=scraper))
    return [
        *_ratios(pairs),
        *_noise(alone),
        *_costs(costs_ms),
        Figure(
            name="memory of a node, scraped ten times, more than one without HTTP",
            value=(scraped - plain) / 1e6,
            unit="MB",
            target=MEMORY_MB_MAX,
            less_is_better=True,
        ),
    ]


def _ratios(pairs: list[tuple[Round, Round]]) -> list[Figure]:
    rates = [(watched.rate, alone.rate) for watched, alone in pairs]
    per_cpu_s = [(watched.per_cpu_s, alone.per_cpu_s) for watched, alone in pairs]
    figures = []
    for name, unit, values in (
        ("produce, scraped and sampled", "k records/s", rates),
        ("... a CPU second of all nodes", "k records", per_cpu_s),
    ):
        ratios = [watched / alone for watched, alone in values]
        ratio = statistics.median(ratios)
        figures.append(
            Figure(
                name=name,
                value=statistics.median(watched for watched, _ in values) / 1e3,
                unit=unit,
                ratio=ratio,
                yardstick="the rounds between, not looked at",
            )
        )
        figures.append(Figure(name="... ratio", value=ratio, unit="", target=RATIO_MIN))
        figures += _interval(ratios)
    shares = [
        (watched.nodes_cpu_s - watched.records / alone.per_cpu_s) / watched.took_s * 100 for watched, alone in pairs
    ]
    figures.append(
        Figure(name="CPU of all nodes for it", value=statistics.median(shares), unit="% of a core", less_is_better=True)
    )
    busy = sum(watched.console_cpu_s for watched, _ in pairs) / sum(watched.took_s for watched, _ in pairs)
    return [*figures, Figure(name="CPU of the console", value=busy * 100, unit="% of a core", less_is_better=True)]


def _interval(ratios: list[float]) -> list[Figure]:
    ordered = sorted(ratios)
    ends = (("from", ordered[INTERVAL_FROM]), ("to", ordered[-1 - INTERVAL_FROM]))
    return [Figure(name=f"... 96 % interval, {end}", value=value, unit="") for end, value in ends]


def _noise(pairs: list[tuple[Round, Round]]) -> list[Figure]:
    """The same of rounds that were both not looked at."""
    figures = []
    for name, ratios in (
        ("noise: records/s of two rounds not looked at", [one.rate / other.rate for one, other in pairs]),
        ("noise: records a CPU second of two such", [one.per_cpu_s / other.per_cpu_s for one, other in pairs]),
    ):
        figures.append(Figure(name=name, value=statistics.median(ratios), unit=""))
        figures += _interval(ratios)
    return figures


def _costs(costs_ms: dict[str, float]) -> list[Figure]:
    figures = [
        Figure(name=f"CPU of all idle nodes for {what}", value=cost_ms, unit="ms", less_is_better=True)
        for what, cost_ms in costs_ms.items()
    ]
    of_a_core = sum(costs_ms.values()) / (SCRAPE_S * 1e3) * 100
    name = f"... both each {SCRAPE_S:.0f} s"
    return [*figures, Figure(name=name, value=of_a_core, unit="% of a core", less_is_better=True)]


# Idle nodes that are looked at.


async def _costs_ms(cluster: Cluster) -> dict[str, float]:
    async def scrape() -> None:
        for node in cluster.local.nodes:
            await asyncio.to_thread(_scrape, node.http)
        await asyncio.sleep(REUSED_S)

    async def look() -> None:
        await sample(cluster.admin, time.time(), time.monotonic())

    cpu_s, begin = cluster.cpu_s(), time.monotonic()
    await asyncio.sleep(IDLE_S)
    idle = (cluster.cpu_s() - cpu_s) / (time.monotonic() - begin)
    return {
        "a scrape of each": await _cost_ms(cluster, scrape, idle),
        "a sample of the console": await _cost_ms(cluster, look, idle),
    }


async def _cost_ms(cluster: Cluster, work: Callable[[], Awaitable[None]], idle: float) -> float:
    """`idle`: CPU seconds a second that are not for it."""
    await work()
    cpu_s, begin = cluster.cpu_s(), time.monotonic()
    for _ in range(LOOKS):
        await work()
    return (cluster.cpu_s() - cpu_s - idle * (time.monotonic() - begin)) / LOOKS * 1e3


# Load.


async def _pairs(cluster: Cluster, watchers: Watchers) -> tuple[list[tuple[Round, Round]], list[tuple[Round, Round]]]:
    """(watched, alone), and (alone, alone)."""
    async with AsyncProducer(bootstrap_servers=cluster.addresses, linger_ms=5, batch_size=256 << 10) as producer:
        await _produce(producer, ROUND_S / 2)  # warm
        pairs, both_alone = [], []
        for number in range(PAIRS):
            orders = (True, False) if number % 2 == 0 else (False, True)
            rounds = {watched: await _round(cluster, producer, watchers, watched=watched) for watched in orders}
            pairs.append((rounds[True], rounds[False]))
            both_alone.append((rounds[False], await _round(cluster, producer, watchers, watched=False)))
        return pairs, both_alone


async def _round(cluster: Cluster, producer: AsyncProducer, watchers: Watchers, *, watched: bool) -> Round:
    with watchers.awake() if watched else contextlib.nullcontext():
        nodes, own, begin = cluster.cpu_s(), cpu_s(watchers.console.pid), time.monotonic()
        records = await _produce(producer, ROUND_S)
        took_s = time.monotonic() - begin
        return Round(records, took_s, cluster.cpu_s() - nodes, cpu_s(watchers.console.pid) - own)


async def _produce(producer: AsyncProducer, duration_s: float) -> int:
    values, records, begin = [bytes(VALUE_BYTES)] * 1_000, 0, time.monotonic()
    while time.monotonic() - begin < duration_s:
        await producer.send_many(TOPIC, values)
        records += len(values)
    await producer.flush()
    return records


# Those that look.


class Watchers(Struct, frozen=True, kw_only=True):
    """Stopped by SIGSTOP but in the rounds that are looked at."""

    console: subprocess.Popen[bytes]
    scraper: subprocess.Popen[bytes]

    @contextmanager
    def awake(self) -> Iterator[None]:
        processes = (self.console, self.scraper)
        for one in processes:
            one.send_signal(signal.SIGCONT)
        try:
            yield
        finally:
            for one in processes:
                one.send_signal(signal.SIGSTOP)


@contextmanager
def _scraper(cluster: Cluster) -> Iterator[subprocess.Popen[bytes]]:
    """This module as a program of its own."""
    urls = [node.http for node in cluster.local.nodes]
    process = subprocess.Popen([sys.executable, "-m", __name__, *urls], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()  # it is ready
        process.send_signal(signal.SIGSTOP)
        yield process
    finally:
        process.kill()
        process.wait()


def _scrape_forever(urls: Sequence[str]) -> None:
    print("scrapes", *urls, flush=True)
    while True:
        for url in urls:
            _scrape(url)
        time.sleep(SCRAPE_S)


def _scrape(url: str) -> None:
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as response:
        response.read()


@contextmanager
def _console(data: Path, addresses: str) -> Iterator[subprocess.Popen[bytes]]:
    """Stopped by SIGSTOP once it serves."""
    command = [Path(sys.executable).with_name("streamlogctl"), "console", "--port", "0", "--data", data]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    process = subprocess.Popen(
        [*map(str, command), "--bootstrap-server", addresses], stdout=subprocess.PIPE, env=environment
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if re.search(rb"http://\S+", line) is None:
            raise RuntimeError(f"the console does not start: {line!r} (streamlog[console] is needed)")
        process.send_signal(signal.SIGSTOP)
        yield process
    finally:
        process.kill()
        process.wait()


# Memory.


async def _memory(base: Path, settings: dict[str, str]) -> float:
    """Median of the nodes' resident bytes."""
    async with Cluster(base, settings) as cluster:
        for _ in range(SCRAPES):
            for node in cluster.local.nodes:
                if node.http:
                    await asyncio.to_thread(_scrape, node.http)
            await asyncio.sleep(REUSED_S)
        return statistics.median(resident_bytes(pid) for pid in cluster.pids().values())


if __name__ == "__main__":
    _scrape_forever(sys.argv[1:])
