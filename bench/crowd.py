"""python -m bench.crowd: the effect of a crowd of hostile clients on a cluster, and on a well-behaved client.

Three real nodes. A well-behaved client produces one record at a time; meanwhile there are streams that are never read,
thousands of long polls, connections that send nothing, and calls that are reset immediately. Then all of them end.
Printed: the resident memory of each node before, its maximum, and after; and the client's latency.

Each kind can be omitted (`--polls 0`), to measure the others.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final

from msgspec import Struct

from bench.cluster import Cluster, resident_bytes
from bench.crowd_roles import PARTITIONS, QUIET_TOPIC, TOPIC
from bench.scratch import scratch
from streamlog.client import AsyncProducer
from streamlog.ports.system import run as run_loop

_RECORD_BYTES: Final = 1_000
_SAMPLE_S: Final = 0.2
_READY_S: Final = 120.0


class Crowd(Struct, frozen=True, kw_only=True):
    """How many of each kind."""

    streams: int  # half of them Subscribe, half FetchStream
    polls: int
    connections: int
    resets: int  # a second

    def roles(self) -> dict[str, int]:
        wanted = {
            "silent": self.connections,
            "subscribers": (self.streams + 1) // 2,
            "fetch_streams": self.streams // 2,
            "pollers": self.polls,
            "resets": self.resets,
        }
        return {role: count for role, count in wanted.items() if count}


class Phase(Struct, frozen=True, kw_only=True):
    name: str
    resident_mb: dict[int, float]  # by node: of "during" the highest, else the last
    p50_ms: float
    p99_ms: float
    calls: int
    failures: int


class _Program:
    """One role, running."""

    def __init__(self, role: str, addresses: Sequence[str], count: int) -> None:
        command = [sys.executable, "-m", "bench.crowd_roles", role, ",".join(addresses), str(count)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input: IO[str] = self._process.stdin
        self._output: IO[str] = self._process.stdout

    async def line(self) -> str:
        async with asyncio.timeout(_READY_S):
            return await asyncio.to_thread(self._output.readline)

    def signal(self) -> None:
        self._input.write("\n")
        self._input.flush()

    def end(self) -> None:
        """Closes its input, then kills it if it does not exit."""
        if not self._input.closed:
            self._input.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _Watch:
    """Samples the nodes' memory; the highest since it was last asked."""

    def __init__(self, pids: dict[int, int]) -> None:
        self._pids = pids
        self._highest: dict[int, int] = {}

    async def run(self) -> None:
        while True:
            for node, now in self.now().items():
                self._highest[node] = max(now, self._highest.get(node, 0))
            await asyncio.sleep(_SAMPLE_S)

    def now(self) -> dict[int, int]:
        found = {}
        for node, pid in self._pids.items():
            try:
                found[node] = resident_bytes(pid)
            except OSError:
                found[node] = 0  # it has stopped
        return found

    def highest(self) -> dict[int, int]:
        highest, self._highest = self._highest, {}
        return highest


async def measure(base: Path, crowd: Crowd, seconds: float, settings: dict[str, str]) -> list[Phase]:
    async with Cluster(base, settings) as cluster:
        await cluster.create(TOPIC, PARTITIONS)
        await cluster.create(QUIET_TOPIC, PARTITIONS)
        await _fill(cluster.addresses)
        addresses = cluster.addresses.split(",")
        watch = _Watch(cluster.pids())
        phases: list[Phase] = []
        with ExitStack() as programs:
            sampling = asyncio.ensure_future(watch.run())
            client = _Program("client", addresses, 0)
            programs.callback(client.end)
            await client.line()
            await asyncio.sleep(3)  # warm
            await _drop(client)
            watch.highest()
            await asyncio.sleep(seconds)
            phases.append(await _phase("before", client, watch.now()))
            with ExitStack() as crowding:
                others = {role: _Program(role, addresses, count) for role, count in crowd.roles().items()}
                for other in others.values():
                    crowding.callback(other.end)
                for role, other in others.items():
                    print(f"{role}: {(await other.line()).strip()}", flush=True)
                await _drop(client)
                await asyncio.sleep(seconds)
                phases.append(await _phase("during", client, watch.highest()))
            await asyncio.sleep(seconds)
            await _drop(client)
            await asyncio.sleep(seconds)
            phases.append(await _phase("after", client, watch.now()))
            sampling.cancel()
        for node in cluster.local.nodes:
            if node.process is None:
                print(f"node {node.node_id} has stopped: {node.last_log_line()}")
        return phases


async def _fill(addresses: str, total_bytes: int = 96 << 20) -> None:
    async with AsyncProducer(bootstrap_servers=addresses) as producer:
        value = bytes(range(250)) * (_RECORD_BYTES // 250)
        for _ in range(total_bytes // _RECORD_BYTES // 1_000):
            await producer.send_many(TOPIC, [value] * 1_000)
        await producer.flush()


async def _drop(client: _Program) -> None:
    client.signal()
    await client.line()


async def _phase(name: str, client: _Program, resident: dict[int, int]) -> Phase:
    client.signal()
    report = json.loads(await client.line())
    took = sorted(report["took_ms"]) or [float("nan")]
    return Phase(
        name=name,
        resident_mb={node: size / 1e6 for node, size in resident.items()},
        p50_ms=statistics.median(took),
        p99_ms=took[min(len(took) - 1, int(len(took) * 0.99))],
        calls=len(report["took_ms"]),
        failures=report["failures"],
    )


def show(phases: Sequence[Phase]) -> None:
    print(f"{'':8} {'resident memory of each node, MB':40} {'p50 ms':>8} {'p99 ms':>8} {'calls':>7} {'failed':>7}")
    for one in phases:
        memory = "  ".join(f"{node}: {size:7.1f}" for node, size in one.resident_mb.items())
        print(f"{one.name:8} {memory:40} {one.p50_ms:8.2f} {one.p99_ms:8.2f} {one.calls:7} {one.failures:7}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.crowd", description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=100, help="that are never read")
    parser.add_argument("--polls", type=int, default=4_000, help="concurrent long polls")
    parser.add_argument("--connections", type=int, default=5_000, help="that send nothing")
    parser.add_argument("--resets", type=int, default=2_000, help="calls a second that are reset immediately")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each phase")
    parser.add_argument("--override", action="append", default=[], metavar="NAME=VALUE", help="a setting of the nodes")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    crowd = Crowd(streams=options.streams, polls=options.polls, connections=options.connections, resets=options.resets)
    settings = dict(one.split("=", 1) for one in options.override)
    begin = time.monotonic()
    with scratch("crowd") as base:
        show(run_loop(measure(base, crowd, options.seconds, settings)))
    print(f"{time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
