"""streamlogd processes: one a node, with a folder, a disk, a clock and a place in the network of its own.

A node is `wanted` up or down. One that ends though it is wanted has stopped itself; whether it may have is the
striker's to say (`excused`).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from streamlog.daemon.free_ports import HOST, free_ports
from streamlog.node.quorum_directory import DIRECTORY
from tests.nemesis.faults.disks import Disk
from tests.nemesis.faults.machine import Needs, Tools
from tests.nemesis.faults.shim import Shim
from tests.nemesis.faults.switch import Network, address

STOP_S: Final = 60.0
PORT: Final = 9092
"""In namespaces of their own."""
ROOT: Final = Path(__file__).parents[2]
VOTERS: Final = 3
"""The first ones. All others observe."""
SPARE: Final = 4
"""It observes, and names itself a voter in its settings, so that it can be added."""
SETTINGS: Final[Mapping[str, str]] = {
    "log.segment.bytes": str(1 << 20),
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "default.replication.factor": "3",
}
"""Of every node; small segments, and few internal partitions, so that there is something to see in minutes."""


class Node:
    def __init__(self, node_id: int, folder: Path, address_: str, *, disk: Disk | None, shim: Shim | None) -> None:
        self.node_id = node_id
        self.folder = folder
        self.address = address_
        self.disk = disk
        self.shim = shim
        self.wanted = False
        self.excused = False  # a fault of its disk has struck since its start, or holds
        self.disk_faults = 0  # that hold now
        self.starts = 0
        self.busy = asyncio.Lock()  # held while it is stopped, its disk changed, or started
        self._inside: list[str] = []
        self._environment: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return (self.disk.mountpoint if self.disk else self.folder) / "data"

    @property
    def log(self) -> Path:
        return self.folder / "streamlogd.log"

    @property
    def properties(self) -> Path:
        return self.folder / "server.properties"

    @property
    def pid(self) -> int | None:
        """None where it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def status(self) -> int | None:
        """It ended with; None: it has not."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        self.wanted = True
        if self.pid is not None:
            return
        self.starts += 1
        self.excused = self.disk_faults > 0
        command = [*self._inside, sys.executable, "-m", "streamlog.daemon.main", str(self.properties)]
        with self.log.open("ab") as log:
            log.write(f"---- start {self.starts} at {time.strftime('%H:%M:%S')}\n".encode())
            log.flush()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                env={**os.environ, **self._environment, **(self.shim.environment() if self.shim else {})},
            )

    def signal(self, number: int) -> None:
        if self.pid is not None:
            os.kill(self.pid, number)

    async def until_ended(self, timeout_s: float = STOP_S) -> bool:
        until = time.monotonic() + timeout_s
        while self.pid is not None:
            if time.monotonic() > until:
                return False
            await asyncio.sleep(0.02)
        return True

    async def kill(self) -> None:
        self.wanted = False
        self.signal(signal.SIGKILL)
        if not await self.until_ended():
            raise RuntimeError(f"node {self.node_id} does not die by kill -9")

    async def stop(self) -> bool:
        """In good order; False if it does not within STOP_S."""
        self.wanted = False
        self.signal(signal.SIGTERM)
        if await self.until_ended():
            return True
        await self.kill()
        return False

    def is_sound_stop(self) -> bool:
        """Whether it ended as SIGTERM should end it: with status 0, or at once where it had not begun to listen."""
        if self.status == 0:
            return True
        text = self.log.read_text(errors="replace")
        return self.status == -signal.SIGTERM and "listens on" not in text.rpartition("---- start")[2]

    def log_size(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0

    def log_after(self, position: int) -> str:
        """What it has logged behind a position of the file."""
        with self.log.open("rb") as log:
            log.seek(position)
            return log.read().decode(errors="replace")

    def lose_metadata(self) -> bool:
        """Remove its metadata directory, durably; False where the disk refuses. It must not run."""
        directory = self.data / DIRECTORY
        try:
            shutil.rmtree(directory)
        except OSError:
            return not directory.exists()
        subprocess.run(["sync", "-f", str(self.data)], check=True)
        return True

    def last_log_line(self, lines: int = 3) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return " | ".join(line.strip() for line in text.splitlines()[-lines:])


class Nodes:
    """All nodes of a cluster, and the network between them. Close it whatever happens."""

    def __init__(
        self,
        folder: Path,
        count: int,
        tools: Tools,
        lacking: Mapping[Needs, str],
        *,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.network = Network(tools.switch, count) if tools.switch is not None else None
        self.all: list[Node] = []
        self.voters_change = asyncio.Lock()  # held while a voter is added, removed, or without its vote
        try:
            self._make(folder, count, tools, lacking, port, settings or {}, environment or {})
        except BaseException:
            self.close()
            raise

    def _make(
        self,
        folder: Path,
        count: int,
        tools: Tools,
        lacking: Mapping[Needs, str],
        port: int,
        settings: Mapping[str, str],
        environment: Mapping[str, str],
    ) -> None:
        ids = range(1, count + 1)
        if self.network is not None:
            addresses = {node_id: f"{address(node_id)}:{PORT}" for node_id in ids}
        else:
            ports = range(port, port + count) if port else free_ports(count)
            addresses = {node_id: f"{HOST}:{number}" for node_id, number in zip(ids, ports, strict=True)}
        for node_id in ids:
            home = folder / f"node-{node_id}"
            home.mkdir(parents=True)
            disk = None if Needs.DISK in lacking else Disk(home)
            under = disk.mountpoint if disk else home / "data"
            shim = None if tools.shim is None else Shim(tools.shim, home / "control", under)
            node = Node(node_id, home, addresses[node_id], disk=disk, shim=shim)
            self.all.append(node)
            if self.network is not None:
                node._inside = self.network.inside(node_id)
            node._environment = dict(environment)
            values = {
                "node.id": str(node_id),
                "listeners": f"PLAINTEXT://{node.address}",
                "allow.plaintext.public.listeners": "true",
                "controller.quorum.voters": ",".join(
                    f"{one}@{addresses[one]}" for one in ids if one <= VOTERS or one == node_id == SPARE
                ),
                "log.dirs": str(node.data),
                **SETTINGS,
                **settings,
            }
            node.properties.write_text("".join(f"{name}={value}\n" for name, value in values.items()))

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.all)

    def node(self, node_id: int) -> Node:
        return self.all[node_id - 1]

    def close(self) -> None:
        """All of them are dead then, and nothing is mounted."""
        for node in self.all:
            node.wanted = False
            if node.pid is not None:
                node.signal(signal.SIGKILL)
                assert node._process is not None
                node._process.wait()
        for node in self.all:
            if node.disk is not None:
                try:
                    node.disk.unmount()
                except OSError as error:
                    sys.stderr.write(f"nemesis: {error}\n")  # the sandbox's end unmounts it
        if self.network is not None:
            self.network.close()
