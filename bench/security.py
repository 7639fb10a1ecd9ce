"""Benchmark part "security": what mutual TLS and access control cost; whether quotas hold (`quotas`).

Two clusters of one node on loopback, one with PLAINTEXT and one as `local start --secure` makes it (mutual TLS, an
authorizer, an audit log), and one client, whose certificate is that of a user with ROWS entries in the access control
lists. Rounds alternate (A B B A), so that what else the machine does falls on both. Times are medians of the rounds,
CPU the minimum, of the client and of the node, since noise only adds.

A check is what one operation on one topic costs: `remembered` is that of a repeated one, `first` one after the lists
have changed. The share is of the node's CPU for an unpipelined produce of one record over PLAINTEXT.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from bench import quotas
from bench.cluster import Cluster, cpu_s
from bench.figures import Figure
from bench.scratch import scratch
from bench.timing import best_cpu_seconds
from streamlog.access.acl import Acl, AclOperation, AclResourceType, PatternType
from streamlog.client import EARLIEST, AsyncAdmin, AsyncConsumer, AsyncProducer
from streamlog.metadata.convert import encode_batch
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.records import AclRecord, MetadataVersionRecord
from streamlog.metadata.view import MetadataView
from streamlog.model import PartitionId, RaftIndex, TopicPartition
from streamlog.ports.system import run as run_loop
from streamlog.services.access.authorizer import Authorizer
from streamlog.tls.authority import Authority
from streamlog.tls.settings_files import client_settings, principal

ORDER: Final = ("plain", "TLS", "TLS", "plain") * 3
BULK_BYTES: Final = 32 << 20
VALUE_BYTES: Final = 1_000
SINGLE: Final = 200
CONNECTIONS: Final = 50
ROWS: Final = 1_000
TOPICS: Final = 100
CHECKS: Final = 2_000
CHECK_BUDGET_S: Final = 2.0
SHARE_MAX: Final = 1.0
USER: Final = "bench"


class Side:
    """One of the two clusters, and what was measured with it: name of the work to time and CPU of each round."""

    def __init__(self, cluster: Cluster, settings: Mapping[str, object]) -> None:
        self.cluster = cluster
        self.settings = settings
        self.took: dict[str, list[float]] = {}
        self.client_cpu: dict[str, list[float]] = {}
        self.node_cpu: dict[str, list[float]] = {}

    def node_cpu_s(self) -> float:
        return sum(cpu_s(pid) for pid in self.cluster.pids().values())

    async def measured(self, name: str, work: Any) -> None:
        own, node, begin = time.process_time(), self.node_cpu_s(), time.monotonic()
        await work(self)
        self.took.setdefault(name, []).append(time.monotonic() - begin)
        self.client_cpu.setdefault(name, []).append(time.process_time() - own)
        self.node_cpu.setdefault(name, []).append(self.node_cpu_s() - node)


def run() -> list[Figure]:
    with scratch("security") as base:
        return run_loop(_measure(base))


async def _measure(base: Path) -> list[Figure]:
    async with AsyncExitStack() as cleanup:
        sides = {}
        for name in ("plain", "TLS"):
            cluster = await cleanup.enter_async_context(Cluster(base / name, nodes=1, secure=name == "TLS"))
            await cluster.admin.create_topic("bulk", partitions=1, replication_factor=1)
            await cluster.admin.create_topic("single", partitions=1, replication_factor=1)
            sides[name] = Side(cluster, {"bootstrap.servers": cluster.addresses})
        sides["TLS"].settings = await _user(sides["TLS"].cluster)
        for name in ("TLS", "plain"):  # warm
            await _produce(sides[name])
        for name in ORDER:
            for kind, work in _WORKS.items():
                await sides[name].measured(kind, work)
        figures = _figures(sides)
    return figures + await quotas.measure(base)


async def _user(cluster: Cluster) -> dict[str, object]:
    """A user with ROWS entries, most of them of other topics."""
    certificates = cluster.local.directory / "certs"
    Authority.load(certificates).add_client(USER)
    await cluster.admin.create_acls(_acls(principal(USER)))
    return {"bootstrap.servers": cluster.addresses, **client_settings(certificates, USER)}


def _acls(user: str) -> list[Acl]:
    """ROWS entries."""
    kind, cluster = AclResourceType.TOPIC, AclResourceType.CLUSTER
    literal = [
        Acl(resource_type=kind, name=name, principal=user, operation=operation)
        for name in ("bulk", "single")
        for operation in (AclOperation.READ, AclOperation.WRITE)
    ]
    literal.append(Acl(resource_type=cluster, name="kafka-cluster", principal=user, operation=AclOperation.DESCRIBE))
    others = [
        Acl(
            resource_type=kind,
            name=f"topic-{number % TOPICS}",
            pattern_type=PatternType.PREFIXED if number % 2 else PatternType.LITERAL,
            principal=f"User:other-{number}",
            operation=AclOperation.WRITE,
        )
        for number in range(ROWS - len(literal))
    ]
    return [*literal, *others]


async def _produce(side: Side) -> None:
    values = [bytes(VALUE_BYTES)] * 1_000
    async with AsyncProducer(side.settings, linger_ms=5, batch_size=256 << 10) as producer:
        for _ in range(0, BULK_BYTES // VALUE_BYTES, len(values)):
            await producer.send_many("bulk", values)
        await producer.flush()


async def _consume(side: Side) -> None:
    async with AsyncConsumer(side.settings) as consumer:
        await consumer.assign([TopicPartition("bulk", PartitionId(0))], start=EARLIEST)
        read = 0
        while read < BULK_BYTES // VALUE_BYTES:
            batch = await consumer.poll_batch(timeout_s=60.0)
            if batch is None:
                raise RuntimeError(f"{read} records, and no more come")
            read += len(batch.columns())


async def _single(side: Side) -> None:
    async with AsyncProducer(side.settings, linger_ms=0) as producer:
        for _ in range(SINGLE):
            await producer.send("single", b"x" * 100)


async def _connect(side: Side) -> None:
    for _ in range(CONNECTIONS):
        async with AsyncAdmin(side.settings) as admin:
            await admin.describe_cluster()


_WORKS: Final = {"produce": _produce, "consume": _consume, "single": _single, "connect": _connect}


def _figures(sides: Mapping[str, Side]) -> list[Figure]:
    plain, tls = sides["plain"], sides["TLS"]
    megabytes = BULK_BYTES / 1e6
    figures = []
    for kind in ("produce", "consume"):
        for name, side in sides.items():
            rate, ratio = megabytes / statistics.median(side.took[kind]), None
            if side is tls:
                ratio = statistics.median(plain.took[kind]) / statistics.median(tls.took[kind])
            figures += [
                Figure(
                    name=f"{kind} 1 KB, {name}", value=rate, unit="MB/s", ratio=ratio, yardstick="plain" * (side is tls)
                ),
                _cpu("... CPU of the client", side.client_cpu[kind], megabytes, "ms/MB"),
                _cpu("... CPU of the node", side.node_cpu[kind], megabytes, "ms/MB"),
            ]
    for kind, count, what in (
        ("single", SINGLE, "100 B to its acknowledgement"),
        ("connect", CONNECTIONS, "connection and a first call"),
    ):
        for name, side in sides.items():
            value = statistics.median(side.took[kind]) / count * 1e3
            figures += [
                Figure(name=f"{what}, {name}", value=value, unit="ms", less_is_better=True),
                _cpu("... CPU of the client", side.client_cpu[kind], count, "ms"),
                _cpu("... CPU of the node", side.node_cpu[kind], count, "ms"),
            ]
    return figures + _checks(min(plain.node_cpu["single"]) / SINGLE)


def _cpu(name: str, seconds: list[float], count: float, unit: str) -> Figure:
    return Figure(name=name, value=min(seconds) / count * 1e3, unit=unit, less_is_better=True)


def _checks(request_cpu_s: float) -> list[Figure]:
    view = MetadataView()
    user = principal(USER)
    records = [AclRecord(acl=acl) for acl in _acls(user)]
    view.machine.apply(RaftIndex(1), encode_batch([MetadataVersionRecord(level=METADATA_VERSION_MAX), *records]))
    authorizer = Authorizer(view, enabled=True)
    assert len(set(view.image.acls)) == ROWS

    def check(names: list[str]) -> None:
        for name in names:
            authorizer.may(user, "127.0.0.1", AclOperation.WRITE, AclResourceType.TOPIC, name)

    rounds = iter(range(1 << 30))

    def first() -> None:
        start = next(rounds)
        check([f"topic-{number % TOPICS}-{start}-{number}" for number in range(CHECKS)])

    remembered = best_cpu_seconds({"remembered": lambda: check(["bulk"] * CHECKS)}, budget_s=CHECK_BUDGET_S)
    others = best_cpu_seconds({"first": first}, budget_s=CHECK_BUDGET_S)
    cost_s = remembered["remembered"] / CHECKS
    return [
        Figure(name=f"a check with {ROWS} entries, remembered", value=cost_s * 1e6, unit="us", less_is_better=True),
        Figure(name="... first", value=others["first"] / CHECKS * 1e6, unit="us", less_is_better=True),
        Figure(
            name="... remembered, of a produce's CPU",
            value=cost_s / request_cpu_s * 100,
            unit="%",
            target=SHARE_MAX,
            less_is_better=True,
        ),
    ]
