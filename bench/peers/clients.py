"""What a client's program sees: records sent one by one, single records, loops over a consumer, closed loops, calls
without a client library.

Three nodes each of streamlog, Kafka and NATS run at the same time, so that all have the same disturbances. A cell is
measured with one client after the other, in rounds; each round begins with another one. The first round warms up and is
not counted. A ratio is the median of the rounds' ratios, that is of neighbours in time. CPU is that of this process and
of the nodes of the system measured; Kafka's own tool is a process of its own, whose CPU is not counted.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, TypeAlias

from msgspec import Struct
from rich.console import Console
from rich.table import Table

from bench import stock_client
from bench.cluster import Cluster
from bench.peers import other_clients as other
from bench.peers import our_clients as ours
from bench.peers import pipelines
from bench.peers.pipeline_query import NOTHING, Query
from bench.peers.systems import KafkaCluster, NatsCluster, why_no_kafka, why_no_nats
from bench.peers.workload import Workload, equal, mixed, text
from bench.scratch import scratch
from streamlog.ports.system import run as run_loop

ROUNDS: Final = 5
PARTITIONS: Final = 6
MANY_PARTITIONS: Final = (100, 1_000)
SINGLE: Final = 300
LOOPS: Final = 50
LOOP_S: Final = 4.0
CALLS: Final = 6_000
CALLS_AT_A_TIME: Final = 8
WARM_RECORDS: Final = 400_000
WARM_SINGLE: Final = 2_000

OURS: Final = (
    "streamlog",
    "streamlog, asyncio",
    "streamlog, its own session",
    "streamlog, gRPC in Go",
    "streamlog, gRPC in Python",
    "streamlog, started by Python",
)
# One number, or one for each measure of the cell.
Measured: TypeAlias = float | tuple[float, float]
Run: TypeAlias = Callable[[], Awaitable[Measured]]


class Cell(Struct, frozen=True, kw_only=True):
    name: str
    unit: str
    runs: dict[str, Run]
    """By client; the first is ours."""
    measures: tuple[str, ...] = ("",)
    """What a run returns, added to the name."""
    target: float | None = None
    """Of our ratio to each of the others."""
    targets: Mapping[tuple[str, str], float] = {}
    """Where they are not the same: by measure and client."""
    records: int = 0
    """Of a run, for its CPU; 0: CPU is not counted."""

    @property
    def less_is_better(self) -> bool:
        return self.unit in ("ms", "s")

    def target_of(self, measure: str, client: str) -> float | None:
        return None if client in OURS else self.targets.get((measure, client), self.target)


class Row(Struct, frozen=True, kw_only=True):
    """One client in one cell: the median of its rounds, and the least and the greatest."""

    cell: str
    client: str
    unit: str
    median: float
    smallest: float
    largest: float
    ratio: float | None
    """Ours to this one, more is better for us, whatever the unit; the median of the rounds' ratios."""
    target: float | None
    cpu_us: float | None
    """A record, of the client's process and all nodes."""


class Peers(Struct, frozen=True, kw_only=True):
    """What is there to be compared; ours always is."""

    ours: Cluster
    kafka: KafkaCluster | None
    nats: NatsCluster | None

    async def create(self, topic: str, partitions: int = PARTITIONS) -> None:
        await self.ours.create(topic, partitions)
        if self.kafka is not None:
            await asyncio.to_thread(self.kafka.create, topic, partitions)

    def cpu_s(self, client: str) -> float:
        """Of the nodes that it uses, and of this process."""
        system = self.nats if client.startswith("NATS") else self.ours if client in OURS else self.kafka
        return (0.0 if system is None else system.cpu_s()) + time.process_time()


def run(
    rounds: int = ROUNDS,
    wanted: Sequence[str] = (),
    on_part: Callable[[str, Sequence[Row]], None] = lambda part, rows: None,
) -> dict[str, list[Row]]:
    """By part. `on_part` is called as each ends: a later one may fail."""
    with scratch("peers-clients") as base, ExitStack() as stack:
        kafka = nats = None
        missing = why_no_kafka()
        if missing is None:
            kafka = KafkaCluster(base / "kafka")
            stack.callback(kafka.kill)
            kafka.start()
        else:
            print(f"without Kafka: {missing}", file=sys.stderr)
        missing = why_no_nats()
        if missing is None:
            nats = NatsCluster(base / "nats")
            stack.callback(nats.kill)
            nats.start()
        else:
            print(f"without NATS: {missing}", file=sys.stderr)
        return run_loop(_measure(base / "streamlog", kafka, nats, rounds, wanted, on_part))


async def _measure(
    base: Path,
    kafka: KafkaCluster | None,
    nats: NatsCluster | None,
    rounds: int,
    wanted: Sequence[str],
    on_part: Callable[[str, Sequence[Row]], None],
) -> dict[str, list[Row]]:
    async with Cluster(base, {"transaction.two.phase.commit.enable": "true"}) as cluster:  # for Spark's sink
        peers = Peers(ours=cluster, kafka=kafka, nats=nats)
        rows: dict[str, list[Row]] = {}
        await _warm(peers)
        for make in (_sends, _bulk, _singles, _loops, _publishes, _iterations, _pipelines):
            part = make.__name__.strip("_")
            if not wanted or part in wanted:
                rows[part] = [row for cell in await make(peers) for row in await _rounds(peers, cell, rounds)]
                on_part(part, rows[part])
        return rows


async def _warm(peers: Peers) -> None:
    """Kafka's code is compiled while it runs: without this, its first cells would be those of an interpreter."""
    if peers.kafka is not None:
        await peers.create("warm")
        for work in (equal(1_000, WARM_RECORDS // 4), mixed(WARM_RECORDS)):
            await asyncio.to_thread(other.confluent_send, peers.kafka.bootstrap, "warm", work, "none")
        await asyncio.to_thread(other.confluent_single, peers.kafka.bootstrap, "warm", bytes(1_000), WARM_SINGLE)


PARTS: Final = ("sends", "bulk", "singles", "loops", "publishes", "iterations", "pipelines")
"""What `wanted` may name."""


async def _rounds(peers: Peers, cell: Cell, rounds: int) -> list[Row]:
    found: dict[str, list[Measured]] = {client: [] for client in cell.runs}
    cpu_us: dict[str, list[float]] = {client: [] for client in cell.runs}
    clients = list(cell.runs)
    for number in range(rounds + 1):
        for client in clients[number % len(clients) :] + clients[: number % len(clients)]:
            before = peers.cpu_s(client)
            measured = await cell.runs[client]()
            if number:
                found[client].append(measured)
                cpu_us[client].append((peers.cpu_s(client) - before) / max(1, cell.records) * 1e6)
    load = os.getloadavg()[0]
    print(f"{cell.name}: {rounds} rounds, load average {load:.1f}", file=sys.stderr, flush=True)
    return list(_rows(cell, found, cpu_us))


def _rows(cell: Cell, found: dict[str, list[Measured]], cpu_us: dict[str, list[float]]) -> Iterator[Row]:
    our = next(iter(cell.runs))
    for at, measure in enumerate(cell.measures):
        of = {client: [one[at] if isinstance(one, tuple) else one for one in runs] for client, runs in found.items()}
        for client, values in of.items():
            yield Row(
                cell=cell.name + measure,
                client=client,
                unit=cell.unit,
                median=statistics.median(values),
                smallest=min(values),
                largest=max(values),
                ratio=None if client in OURS else statistics.median(_ratios(cell, of[our], values)),
                target=cell.target_of(measure, client),
                cpu_us=statistics.median(cpu_us[client]) if cell.records else None,
            )


def _ratios(cell: Cell, our: Sequence[float], others: Sequence[float]) -> list[float]:
    """More is better for us."""
    pairs = zip(our, others, strict=True)
    return [other / mine if cell.less_is_better else mine / other for mine, other in pairs]


def print_rows(rows: Sequence[Row]) -> None:
    table = Table(title="peers: clients", title_justify="left")
    table.add_column("cell")
    table.add_column("client")
    for name in ("median", "range", "ours / it", "target", "CPU, us a record"):
        table.add_column(name, justify="right")
    for row in rows:
        colour = "default" if row.ratio is None or row.target is None else "green" if row.ratio >= row.target else "red"
        table.add_row(
            row.cell,
            row.client,
            f"{number(row.median)} {row.unit}",
            f"{number(row.smallest)} to {number(row.largest)}",
            "" if row.ratio is None else f"[{colour}]{row.ratio:.2f}[/]",
            "" if row.target is None else f">= {row.target:g}",
            "" if row.cpu_us is None else number(row.cpu_us),
        )
    Console(width=None if os.isatty(1) else 140).print(table)


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"


def _in_thread(work: Callable[..., Measured], *arguments: Any) -> Run:
    return lambda: asyncio.to_thread(work, *arguments)


def _on_loop(work: Callable[..., Awaitable[Measured]], *arguments: Any) -> Run:
    assert inspect.iscoroutinefunction(work)
    return lambda: work(*arguments)


# The cells.


async def _sends(peers: Peers) -> list[Cell]:
    kinds: list[tuple[str, Workload, str, float]] = [
        ("send, 100 B", equal(100, 300_000), "none", 1.2),
        ("send, 1 KB", equal(1_000, 60_000), "none", 0.8),
        ("send, 20 to 400 B, keys", mixed(150_000), "none", 0.8),
        ("send, 100 B of text, lz4", text(300_000), "lz4", 0.8),
    ]
    cells = []
    for number, (name, work, codec, target) in enumerate(kinds):
        topic = f"send-{number}"
        await peers.create(topic)
        runs = {OURS[0]: _in_thread(ours.send, peers.ours.addresses, topic, work, codec)}
        if peers.kafka is not None:
            run = _in_thread(other.confluent_send, peers.kafka.bootstrap, topic, work, codec)
            runs["confluent-kafka"] = run
        cells.append(Cell(name=name, unit="records/s", runs=runs, target=target, records=work.count))
    return cells


async def _bulk(peers: Peers) -> list[Cell]:
    cells = []
    for work, target in ((equal(100, 1_000_000), 2.5), (equal(1_000, 150_000), 2.0)):
        size = len(work.values[0])
        await peers.create(f"bulk-{size}")
        runs = {OURS[1]: _on_loop(ours.send_many, peers.ours.addresses, f"bulk-{size}", work)}
        if peers.kafka is not None:
            runs["Kafka's tool"] = _in_thread(peers.kafka.perf_producer, f"bulk-{size}", work.count, size)
        cells.append(Cell(name=f"send_many, {size} B", unit="records/s", runs=runs, target=target))
    return cells


async def _singles(peers: Peers) -> list[Cell]:
    await peers.create("single", 1)
    value = bytes(1_000)
    runs = {OURS[1]: _on_loop(ours.single, peers.ours.addresses, "single", value, SINGLE)}
    if peers.kafka is not None:
        runs["confluent-kafka"] = _in_thread(other.confluent_single, peers.kafka.bootstrap, "single", value, SINGLE)
    if peers.nats is not None:
        await other.nats_create(peers.nats.servers, "single")
        runs["NATS, synced"] = _on_loop(other.nats_single, peers.nats.servers, "single", value, SINGLE)
    targets = {(", p50", "NATS, synced"): 1.0, (", p99", "confluent-kafka"): 1.0}
    name, measures = "one record of 1 KB", (", p50", ", p99")
    return [Cell(name=name, unit="ms", runs=runs, measures=measures, targets=targets, records=SINGLE + 1)]


async def _loops(peers: Peers) -> list[Cell]:
    cells = []
    for partitions in MANY_PARTITIONS:
        topic = f"loops-{partitions}"
        await peers.create(topic, partitions)
        given = (topic, partitions, LOOPS, LOOP_S)
        runs = {OURS[1]: _on_loop(ours.closed_loops, peers.ours.addresses, *given)}
        if peers.kafka is not None:
            runs["aiokafka"] = _on_loop(other.aiokafka_closed_loops, peers.kafka.bootstrap, *given)
        name = f"{LOOPS} closed loops, {partitions:,} partitions"
        cells.append(
            Cell(name=name, unit="batches/s", runs=runs, target=3.0 if partitions == MANY_PARTITIONS[0] else None)
        )
    return cells


async def _publishes(peers: Peers) -> list[Cell]:
    topic, partitions = "publish", CALLS_AT_A_TIME
    await peers.create(topic, partitions)
    address, given = peers.ours.local.nodes[0].address, (topic, CALLS, CALLS_AT_A_TIME)
    runs = {OURS[4]: _on_loop(ours.publish, address, *given)}
    missing = await asyncio.to_thread(stock_client.build)
    if missing is None:
        runs = {OURS[3]: _in_thread(ours.publish_from_go, address, *given)} | runs
    else:
        print(missing, file=sys.stderr)
    if peers.nats is not None:
        await other.nats_create(peers.nats.servers, topic)
        servers = peers.nats.servers
        runs["NATS, synced, asyncio"] = _on_loop(other.nats_closed_loops, servers, topic, CALLS_AT_A_TIME, LOOP_S)
    if peers.kafka is not None:
        loops = (topic, partitions, CALLS_AT_A_TIME, LOOP_S)
        runs["aiokafka"] = _on_loop(other.aiokafka_closed_loops, peers.kafka.bootstrap, *loops)
    name = f"Publish of one record, {CALLS_AT_A_TIME} calls at a time (target: 3,000 calls/s)"
    return [Cell(name=name, unit="calls/s", runs=runs)]


async def _iterations(peers: Peers) -> list[Cell]:
    cells = []
    # Larger than what confluent-kafka reads ahead, which would otherwise be there before the first record is taken.
    kinds = (("100 B", equal(100, 1_500_000), 3.0), ("20 to 400 B, keys", mixed(1_000_000), 2.0))
    for number, (name, work, target) in enumerate(kinds):
        topic, groups = f"iterate-{number}", itertools.count()
        await peers.create(topic)
        await asyncio.to_thread(ours.send, peers.ours.addresses, topic, work, "none")
        given = (topic, groups, work.count)
        runs = {
            OURS[0]: _of_new_group(ours.iterate, peers.ours.addresses, *given),
            OURS[1]: _of_new_group(ours.iterate_async, peers.ours.addresses, *given),
        }
        if peers.kafka is not None:
            await asyncio.to_thread(other.confluent_send, peers.kafka.bootstrap, topic, work, "none")
            runs["aiokafka"] = _of_new_group(other.aiokafka_iterate, peers.kafka.bootstrap, *given)
            runs["confluent-kafka"] = _of_new_group(other.confluent_iterate, peers.kafka.bootstrap, *given)
        cells.append(
            Cell(name=f"for record in consumer, {name}", unit="records/s", runs=runs, target=target, records=work.count)
        )
    return cells


async def _pipelines(peers: Peers) -> list[Cell]:
    missing = pipelines.why_not()
    if missing is not None:
        print(f"without Spark's pipelines: {missing}", file=sys.stderr)
        return []
    topics = ("pipeline-from", "pipeline-to")
    work = equal(100, pipelines.ROWS * pipelines.MICRO_BATCHES)
    for topic in topics:
        await peers.create(topic)
    await asyncio.to_thread(ours.send, peers.ours.addresses, topics[0], work, "none")
    sizes = {"rows": pipelines.ROWS, "micro_batches": pipelines.MICRO_BATCHES}

    def runs_of(system: str, python: Path = pipelines.PYTHON, **given: Any) -> Run:
        def query(state: str) -> Query:
            return Query(system=system, topics=topics, state=state, **sizes, **given)

        return pipelines.runs_of(query, python)

    servers = peers.ours.addresses
    runs = {
        OURS[0]: runs_of("streamlog", pipelines.LAUNCHER, servers=servers),
        OURS[2]: runs_of("streamlog", pipelines.LAUNCHER, servers=servers, own_session=True),
        OURS[5]: runs_of("streamlog", servers=servers),
    }
    if peers.kafka is not None:
        await asyncio.to_thread(other.confluent_send, peers.kafka.bootstrap, topics[0], work, "none")
        runs["Spark's for Kafka"] = runs_of("kafka", servers=peers.kafka.bootstrap, jars=pipelines.jars())
    runs["in Python, doing nothing"] = runs_of(NOTHING)
    measures = (", to the end of the first micro-batch", f", a later micro-batch of {pipelines.ROWS:,} rows")
    targets = {(measure, "Spark's for Kafka"): 1.0 for measure in measures}
    return [Cell(name="Spark, topic to topic", unit="s", runs=runs, measures=measures, targets=targets)]


def _of_new_group(work: Callable[..., Any], servers: str, topic: str, groups: Iterator[int], count: int) -> Run:
    """Each run reads from the beginning."""

    async def run() -> Measured:
        given = (servers, topic, f"peers-{next(groups)}", count)
        found = work(*given) if inspect.iscoroutinefunction(work) else asyncio.to_thread(work, *given)
        measured: Measured = await found
        return measured

    return run
