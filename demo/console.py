"""`make demo-console`: three nodes, a stream of log lines, a group that reads them, and the console; until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Final

from demo.lines import log_lines
from streamlog.cli.local.start import start_nodes
from streamlog.client import AsyncConsumer, AsyncProducer
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.daemon.local_cluster import LocalCluster
from streamlog.errors import StreamlogError
from streamlog.ports import system

NODES: Final = 3
LINES_PER_S: Final = 400
TICK_S: Final = 0.1
READ_PAUSE_S: Final = 2.0
"""The group reads with pauses, so that its lag changes."""
READY_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 30.0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make demo-console", description=__doc__)
    parser.add_argument("--port", type=int, default=8048, help="of the console")
    chosen = parser.parse_args(argv)
    for end in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C; or the nodes would be left when the terminal is closed
        signal.signal(end, lambda *_: signal.raise_signal(signal.SIGINT))
    with tempfile.TemporaryDirectory(prefix="streamlog-demo-") as directory:
        return play(Path(directory), chosen.port)


def play(directory: Path, port: int) -> int:
    cluster = LocalCluster(directory)
    console: subprocess.Popen[bytes] | None = None
    try:
        cluster.create(NODES, 0, {})
        start_nodes(cluster, cluster.nodes, READY_TIMEOUT_S)
        servers = ",".join(node.address for node in cluster.nodes)
        command = [str(Path(sys.executable).with_name("streamlogctl")), "console", "--bootstrap-server", servers]
        console = subprocess.Popen([*command, "--port", str(port), "--data", str(directory / "console")])
        system.run(flow(servers))
    except KeyboardInterrupt:
        print()
    finally:
        if console is not None:
            console.send_signal(signal.SIGINT)
            console.wait()
        for node in cluster.stop(cluster.nodes, STOP_TIMEOUT_S):
            cluster.kill(node)
        print("All nodes are stopped.")
    return 0


async def flow(servers: str) -> None:
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        await admin.create_topic("logs", partitions=6)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write(servers))
        tasks.create_task(read(servers))


async def write(servers: str) -> None:
    lines = cycle(log_lines())
    async with AsyncProducer(bootstrap_servers=servers) as producer:
        while True:
            for _ in range(int(LINES_PER_S * TICK_S)):
                try:
                    producer.send("logs", next(lines))
                except StreamlogError:
                    break  # its buffer is full while nodes are down: these lines need not be kept
            await asyncio.sleep(TICK_S)


async def read(servers: str) -> None:
    async with AsyncConsumer(
        bootstrap_servers=servers, group_id="indexer", auto_offset_reset="earliest", auto_commit_interval_ms=1000
    ) as consumer:
        consumer.subscribe(["logs"])
        while True:
            await consumer.poll(LINES_PER_S * 4, timeout_s=1.0)
            await asyncio.sleep(READ_PAUSE_S)


if __name__ == "__main__":
    sys.exit(main())
