"""Five real nodes whose faults are ours to make, scraped by a real Prometheus.

1 2 3   voters
4       a broker, whose log directory is a file system of its own (32 MB; needs root)
5       a broker with two log directories, under the library that fails and delays calls (needs gcc)
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from unittest import mock

from streamlog.client import Admin
from streamlog.client.admin.values import NewTopic
from streamlog.daemon.local_cluster import LocalCluster, LocalNode
from streamlog.daemon.local_process import ProcessId
from streamlog.model import TopicPartition
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from tests.deploy.prometheus import Prometheus
from tests.nemesis.faults.machine import Needs, Tools, lacking
from tests.nemesis.faults.shim import Shim

ALL: Final = (1, 2, 3, 4, 5)
VOTERS: Final = (1, 2, 3)
SMALL_DISK: Final = 4
SHIMMED: Final = 5
DISK_BYTES: Final = 32 << 20
CALL_S: Final = 30.0


class RealCluster:
    """Owned by a fixture: `running`."""

    def __init__(self, directory: Path, cluster: LocalCluster, shim: Shim | None, no_disk: str) -> None:
        self.directory = directory
        self.cluster = cluster
        self.shim = shim
        self.no_disk = no_disk  # why node 4 has no disk of its own; empty: it has
        targets = [node.http.removeprefix("http://") for node in cluster.nodes]
        self.prometheus = Prometheus(directory, targets, self._last_lines)
        self.servers = ",".join(node.address for node in cluster.nodes)

    def node(self, node_id: int) -> LocalNode:
        return self.cluster.node(node_id)

    def _last_lines(self) -> str:
        return "; ".join(
            f"node {node.node_id} {'runs' if node.process else 'is down'}: {node.last_log_line()}"
            for node in self.cluster.nodes
        )

    def process(self, node_id: int) -> ProcessId:
        process = self.node(node_id).process
        assert process is not None
        return process

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids:
            extra = self.shim.environment() if node_id == SHIMMED and self.shim is not None else {}
            with mock.patch.dict(os.environ, extra):
                self.cluster.start(self.node(node_id))

    def kill(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.cluster.kill(self.node(node_id))

    @contextmanager
    def paused(self, node_id: int) -> Iterator[None]:
        process = self.process(node_id)
        process.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.signal(signal.SIGCONT)

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        with Admin(bootstrap_servers=self.servers) as admin:
            yield admin

    def create(self, topic: str, *assignments: Sequence[int], **configs: str) -> None:
        """A partition for each of `assignments`."""
        named = {name.replace("_", "."): value for name, value in configs.items()}
        with self.admin() as admin:
            [created] = admin.create_topics([NewTopic(topic, assignments=assignments, configs=named)])
            assert created.error is None, created.error

    def restore(self, *topics: str) -> None:
        """All nodes run, without faults, and with these topics alone."""
        if self.shim is not None:
            self.shim.clear()
            self.shim.clock(0)
        self.start(*ALL)
        self.prometheus.wait_until("ready", lambda: self.prometheus.query("sum(streamlog_ready)")[0:1] == [({}, 5.0)])
        with self.admin() as admin:
            for listed in admin.list_topics():
                if listed.name not in topics:
                    admin.delete_topic(listed.name)
        self.prometheus.wait_until_resolved()

    def wait_for_isr(self, at: TopicPartition, isr: set[int]) -> None:
        def has_it() -> bool:
            with self.admin() as admin:
                return set(admin.describe_topic(at.topic).partitions[at.partition].isr) == isr

        self.prometheus.wait_until(f"in sync: {at} on {isr}", has_it)

    def call(self, node_id: int, method: str, request: bytes) -> bytes:
        """A call of a client that is not ours."""

        async def calling() -> bytes:
            network = GrpcNetwork(on_crash=_unexpected)
            try:
                return await network.connect(self.node(node_id).address).unary(method, request, timeout_s=CALL_S)
            finally:
                await network.close()

        return asyncio.run(calling())

    @contextmanager
    def unread(self, node_id: int, method: str, request: bytes, count: int) -> Iterator[Callable[[], None]]:
        """`count` streams of a client that does not read. Yields what lets them run for a moment."""
        loop = asyncio.new_event_loop()
        network = GrpcNetwork(on_crash=_unexpected)
        ended = asyncio.Event()

        async def one() -> None:
            async with network.connect(self.node(node_id).address).stream(method) as stream:
                await stream.send(request)
                await ended.wait()

        streams = [loop.create_task(one()) for _ in range(count)]
        try:
            yield lambda: loop.run_until_complete(asyncio.wait(streams, timeout=0.1)) and None
        finally:
            ended.set()
            loop.run_until_complete(asyncio.gather(*streams, network.close(), return_exceptions=True))
            loop.close()


def _unexpected(error: Exception) -> None:
    raise error


@contextmanager
def running(directory: Path, settings: dict[str, str]) -> Iterator[RealCluster]:
    """Started, ready and scraped; everything is stopped at the end."""
    cluster = LocalCluster(directory / "cluster")
    cluster.create(5, 0, settings)
    small = cluster.node(SMALL_DISK).folder / "data"
    no_disk = _mounted(small)
    shimmed = cluster.node(SHIMMED)
    broken = shimmed.folder / "data-2"
    _replace(shimmed.properties, f"log.dirs={shimmed.folder / 'data'}", f"log.dirs={shimmed.folder / 'data'},{broken}")
    broken.mkdir()
    shim = None
    if Needs.SHIM not in lacking():
        library = Tools(directory, {needs: "not wanted" for needs in Needs if needs is not Needs.SHIM}).shim
        assert library is not None
        shim = Shim(library, directory / "control", broken)
    found = RealCluster(directory, cluster, shim, no_disk)
    try:
        with found.prometheus:
            found.restore()
            yield found
    finally:
        found.kill(*ALL)
        if not no_disk:
            subprocess.run(["umount", str(small)], check=True)


def _mounted(path: Path) -> str:
    """Why there is no file system of its own there; empty: there is."""
    if os.geteuid() != 0:
        return "needs root for a disk of its own"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"mount: {done.stderr.strip()}"


def _replace(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))
