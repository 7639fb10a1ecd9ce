"""The steps of `make demo`. Exit code 0 when no acknowledged record was lost, duplicated or reordered."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from demo.lines import log_lines
from demo.reading import Verdict, compare, read_to_end
from demo.writing import Written, write_steadily
from streamlog.cli.local.start import start_nodes
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import TopicDescription
from streamlog.client.producer.async_producer import AsyncProducer
from streamlog.daemon.local_cluster import LocalCluster
from streamlog.ports import system

NODES: Final = 3
PARTITIONS: Final = 3
READY_TIMEOUT_S: Final = 60.0
LINES_PER_S: Final = 1_500
# After the start of the writes.
KILL_AFTER_S: Final = 2.0
STOP_TIMEOUT_S: Final = 30.0

# Without a terminal, the width of the table.
console = Console(width=None if sys.stdout.isatty() else 100)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--dir", type=Path, help="the cluster's directory, which is kept; default: a temporary one")
    chosen = parser.parse_args(argv)
    if chosen.dir is not None:
        return play(chosen.dir)
    with tempfile.TemporaryDirectory(prefix="streamlog-demo-") as directory:
        return play(Path(directory))


def play(directory: Path) -> int:
    cluster = LocalCluster(directory)
    try:
        began = time.monotonic()
        cluster.create(NODES, 0, {})
        start_nodes(cluster, cluster.nodes, READY_TIMEOUT_S)
        servers = ",".join(node.address for node in cluster.nodes)
        say(f"Three nodes are ready after {time.monotonic() - began:.1f} s: {servers}")
        return system.run(acts(cluster, servers))
    finally:
        for node in cluster.stop(cluster.nodes, STOP_TIMEOUT_S):
            cluster.kill(node)
        say("All nodes are stopped.")


async def acts(cluster: LocalCluster, servers: str) -> int:
    lines = log_lines()
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        await first_act(admin, servers, lines)
        good = await second_act(cluster, admin, servers, lines)
        good &= await third_act(cluster, admin)
    say("Every acknowledged line was read once and in order." if good else "Acknowledged lines are missing or wrong.")
    return 0 if good else 1


async def first_act(admin: AsyncAdmin, servers: str, lines: list[bytes]) -> None:
    """All lines in, all lines out."""
    await admin.create_topic("logs", PARTITIONS, NODES)
    say(f"Created topic logs: {PARTITIONS} partitions, {NODES} replicas each.")
    began = time.monotonic()
    async with AsyncProducer(bootstrap_servers=servers) as producer:
        ranges = await (await producer.send_many("logs", lines))
    seconds = time.monotonic() - began
    say(f"Produced {sum(one.record_count for one in ranges):,} real log lines in {seconds:.2f} s, acks=all.")
    began = time.monotonic()
    found = await read_to_end(servers, "logs")
    count = sum(len(records) for records in found.values())
    say(f"Consumed {count:,} lines in {time.monotonic() - began:.2f} s. One of them:")
    record = found[0][-1]
    say(f"  logs-{record.partition} offset {record.offset}: {(record.value or b'').decode(errors='replace')}")


async def second_act(cluster: LocalCluster, admin: AsyncAdmin, servers: str, lines: list[bytes]) -> bool:
    """The leader of a partition is killed during the writes."""
    await admin.create_topic("killed", PARTITIONS, NODES)
    before = await admin.describe_topic("killed")
    victim = before.partitions[0].leader
    assert victim is not None, "a new topic has leaders"
    say(f"\nNow {LINES_PER_S:,} lines/s; after {KILL_AFTER_S:g} s node {victim}, the leader of killed-0, is killed.")
    async with AsyncProducer(bootstrap_servers=servers) as producer:
        writing = asyncio.create_task(write_steadily(producer, "killed", lines, PARTITIONS, LINES_PER_S))
        await asyncio.sleep(KILL_AFTER_S)
        await asyncio.to_thread(cluster.kill, cluster.node(victim))
        say(f"kill -9 of node {victim}. The producer continues.")
        written = await writing
    after = await admin.describe_topic("killed")
    found = await read_to_end(servers, "killed")
    texts = dict(enumerate(lines))
    verdicts = [
        compare(sorted(ack.line for ack in written.acks[number]), found[number], texts) for number in range(PARTITIONS)
    ]
    console.print(report(before, after, written, verdicts))
    for failure in written.failures[:10]:
        say(f"not acknowledged: {failure}")
    return all(verdict.good for verdict in verdicts) and not written.failures


def report(before: TopicDescription, after: TopicDescription, written: Written, verdicts: list[Verdict]) -> Table:
    table = Table(box=box.SIMPLE, header_style="bold", padding=(0, 1, 0, 0))
    columns = (
        "partition",
        "leader",
        "sent",
        "acked",
        "read once",
        "missing",
        "duplicate",
        "reordered",
        "longest pause",
    )
    for column in columns:
        table.add_column(column, justify="left" if column in columns[:2] else "right", no_wrap=True)
    for number, verdict in enumerate(verdicts):
        old, new = before.partitions[number].leader, after.partitions[number].leader
        table.add_row(
            f"killed-{number}",
            f"{old}" if old == new else f"{old} -> {new}",
            f"{written.sent[number]:,}",
            f"{len(written.acks[number]):,}",
            f"{verdict.there:,}",
            *(f"{count}" for count in (verdict.missing, verdict.twice, verdict.out_of_order)),
            f"{written.longest_pause_s(number) * 1000:,.0f} ms",
            style=None if verdict.good else "bold red",
        )
    return table


async def third_act(cluster: LocalCluster, admin: AsyncAdmin) -> bool:
    """The killed node is restarted, catches up, and has the same bytes as the others."""
    began = time.monotonic()
    await asyncio.to_thread(start_nodes, cluster, cluster.nodes, READY_TIMEOUT_S)
    topics = await admin.describe_topics(["killed"])
    while any(len(at.isr) < len(at.replicas) for topic in topics for at in topic.partitions):
        await asyncio.sleep(0.1)
        topics = await admin.describe_topics(["killed"])
    say(f"The node is restarted, and in sync after {time.monotonic() - began:.1f} s.")
    digests = [await admin.digest_replicas("killed", number) for number in range(PARTITIONS)]
    identical = all(one.identical for one in digests)
    records = sum(one.end_offset - one.start_offset for one in digests)
    say(f"The replicas of {records:,} records are {'identical' if identical else 'NOT identical'}, by SHA-256.")
    return identical


def say(text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
