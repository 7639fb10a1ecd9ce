"""Benchmark part "quorum": three real processes over loopback, each with its own directory on the real disk.

Commands are proposed inside the leader's process, as the controller does; each one is complete when a majority has
synced and the leader has applied it. One disk does three syncs for each commit; with a machine for each node it would
do one.

A fail-over is timed from the signal to the first command that another node accepts, with retries. The failure of a
killed process is detected by its broken streams, that of a stopped one (SIGSTOP) by missing heartbeats.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench import metadata
from bench.figures import Figure
from bench.scratch import scratch
from streamlog.ports import RpcError
from streamlog.ports.system import run as run_loop
from tests.raft.real_processes.processes import Cluster

COMMAND_BYTES: Final = 100
ROUNDS: Final = 5
KILLS: Final = 24
HANGS: Final = 8
SETTLE_S: Final = 5.0
"""After a start, until journals are sealed and heartbeats are rare."""
IDLE_S: Final = 30.0
RETRY_S: Final = 0.002
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


def run() -> list[Figure]:
    with scratch("quorum") as base:
        figures = run_loop(_measure(base))
    return figures + metadata.snapshot(metadata.cluster(metadata.TOPICS, metadata.PARTITIONS // metadata.TOPICS))


async def _measure(base: Path) -> list[Figure]:
    async with Cluster([base / str(node) for node in (1, 2, 3)], log=base / "log") as cluster:
        await cluster.leader()
        await cluster.wait_until_level()
        return [
            *await _idle(cluster),
            *await _commits(cluster, base, commands=1_000, in_flight=1, target=350),
            *await _commits(cluster, base, commands=10_000, in_flight=64, target=9_000),
            *await _fail_overs(cluster, "killed", KILLS, median_s_max=0.5, longest_s_max=1.0),
            *await _fail_overs(cluster, "hung", HANGS),
        ]


# Doing nothing.


async def _idle(cluster: Cluster) -> list[Figure]:
    """The cluster is fresh: nothing but heartbeats, and what they wake."""
    memory = statistics.median(_resident_bytes(cluster.pid(node)) for node in cluster.nodes)
    await asyncio.sleep(SETTLE_S)
    while True:
        leader = await cluster.leader()
        cpu_s = {node: _cpu_s(cluster.pid(node)) for node in cluster.nodes}
        wakes = {node: _wakes(cluster.pid(node)) for node in cluster.nodes}
        await asyncio.sleep(IDLE_S)
        percent = {node: (_cpu_s(cluster.pid(node)) - cpu_s[node]) / IDLE_S * 100 for node in cluster.nodes}
        rates = {node: (_wakes(cluster.pid(node)) - wakes[node]) / IDLE_S for node in cluster.nodes}
        if await cluster.leader() == leader:  # else an election came between: not what is measured
            break
    followers = [node for node in cluster.nodes if node != leader]

    def both(name: str, values: dict[int, float], unit: str, target: float | None = None) -> list[Figure]:
        of_followers = statistics.median(values[node] for node in followers)
        return [
            Figure(name=f"idle, {name}: leader", value=values[leader], unit=unit, target=target, less_is_better=True),
            Figure(name="... follower", value=of_followers, unit=unit, target=target, less_is_better=True),
        ]

    return [
        Figure(name="memory of a fresh node", value=memory / 1e6, unit="MB", less_is_better=True),
        *both("CPU", percent, "% of a core", 0.5),
        *both("wake-ups of the event loop", rates, "/s"),
    ]


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _cpu_s(pid: int) -> float:
    """User and system time of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def _wakes(pid: int) -> int:
    """How often the main thread has gone to sleep."""
    for line in Path(f"/proc/{pid}/task/{pid}/status").read_text().splitlines():
        if line.startswith("voluntary_ctxt_switches:"):
            return int(line.split()[1])
    raise AssertionError("no count of context switches")


# Commits.


async def _commits(cluster: Cluster, base: Path, *, commands: int, in_flight: int, target: float) -> list[Figure]:
    rates: list[float] = []
    syncs: list[float] = []
    latencies_ms: list[float] = []
    for _ in range(ROUNDS):
        syncs.append(_syncs_per_s(base))
        _, answer = await cluster.ask_leader(
            1, "load", timeout_s=120.0, commands=commands, in_flight=in_flight, bytes=COMMAND_BYTES
        )
        rates.append(commands / answer["seconds"])
        latencies_ms += answer["latencies_ms"]
    rate, sync = statistics.median(rates), statistics.median(syncs)
    name = f"{in_flight} in flight"
    return [
        Figure(
            name=f"commits, {name}",
            value=rate,
            unit="/s",
            target=target,
            ratio=rate / sync,
            yardstick=f"an append and an fdatasync, {sync:,.0f}/s",
        ),
        *_distribution(f"latency, {name}:", latencies_ms, "ms", {"p50": 0.5, "p99": 0.99}),
    ]


def _syncs_per_s(base: Path, count: int = 200) -> float:
    """Of one file by one thread, with nothing else to do."""
    path = base / "yardstick"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    start = time.perf_counter()
    for number in range(count):
        os.pwrite(descriptor, bytes(COMMAND_BYTES), number * COMMAND_BYTES)
        os.fdatasync(descriptor)
    seconds = time.perf_counter() - start
    os.close(descriptor)
    path.unlink()
    return count / seconds


# Fail-over.


async def _fail_overs(
    cluster: Cluster,
    fate: str,
    times: int,
    *,
    median_s_max: float | None = None,
    longest_s_max: float | None = None,
) -> list[Figure]:
    seconds = [await _fail_over(cluster, fate) for _ in range(times)]
    return _distribution(
        f"leader {fate}, {times} times; fail-over:",
        seconds,
        "s",
        {"median": 0.5, "p90": 0.9, "max": 1.0},
        {"median": median_s_max, "max": longest_s_max},
    )


async def _fail_over(cluster: Cluster, fate: str) -> float:
    leader = await cluster.leader()
    await cluster.wait_until_level()
    others = [node for node in cluster.nodes if node != leader]
    start = time.perf_counter()
    if fate == "hung":
        cluster.pause(leader)
    else:
        await cluster.kill([leader])
    await _accepted_by_one_of(cluster, others)
    seconds = time.perf_counter() - start
    if fate == "hung":
        await cluster.kill([leader])
    await cluster.start([leader])
    return seconds


async def _accepted_by_one_of(cluster: Cluster, nodes: Sequence[int]) -> None:
    for node in itertools.cycle(nodes):
        try:
            await cluster.ask(node, "submit", timeout_s=1.0, command="next=1", client_id="", sequence=0)
        except RpcError:
            await asyncio.sleep(RETRY_S)
        else:
            return


def _distribution(
    name: str,
    values: Sequence[float],
    unit: str,
    shares: dict[str, float],
    targets: dict[str, float | None] | None = None,
) -> list[Figure]:
    """A figure for each share: the least value that so many are not above."""
    ordered = sorted(values)
    names = itertools.chain([name], itertools.repeat("..."))
    return [
        Figure(
            name=f"{title} {label}",
            value=ordered[min(int(share * len(ordered)), len(ordered) - 1)],
            unit=unit,
            target=(targets or {}).get(label),
            less_is_better=True,
        )
        for title, (label, share) in zip(names, shares.items(), strict=False)
    ]
