"""What is seen from outside while it happens: who leads, the nodes' memory, and which of them end by themselves.

A node that ends by itself is started again a second later, as an operator would. Where a fault of its
disk excuses it that is all; otherwise it is a finding (I21).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from streamlog.client import AsyncAdmin
from streamlog.errors import StreamlogError
from streamlog.groups.placement import OFFSETS_TOPIC, partition_of
from streamlog.model import LeaderEpoch, TopicPartition
from tests.nemesis.clients.workload import GROUP, PLAIN, TOPICS
from tests.nemesis.faults.plan import CONTROLLER, COORDINATOR, FOLLOWER, LEADER

from .nodes import Node, Nodes

LOOK_S: Final = 0.5
RESTART_S: Final = 1.0
MEMORY_MAX_BYTES: Final = 400 << 20
"""I22, for so small a load."""


class Seen(Struct):
    """Series over the run's time."""

    leaders: dict[TopicPartition, list[tuple[float, int]]] = field(default_factory=dict)  # when it changed; 0: none
    controller: list[tuple[float, int]] = field(default_factory=list)
    memory: dict[int, list[tuple[float, int]]] = field(default_factory=dict)  # node -> (when, bytes)
    up: dict[int, list[tuple[float, bool]]] = field(default_factory=dict)
    stops: list[tuple[float, int, str]] = field(default_factory=list)  # of nodes that ended by themselves, excused


class Observer:
    def __init__(self, nodes: Nodes, *, now: Callable[[], float], wrong: Callable[[str, str], None]) -> None:
        self.seen = Seen()
        self._nodes = nodes
        self._now = now
        self._wrong = wrong
        self._led: dict[tuple[bytes, int, LeaderEpoch], int] = {}
        self._coordinator: int | None = None
        self._followers: list[int] = []
        self._restarting: set[int] = set()
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        self._tasks = [asyncio.create_task(self._look_at_cluster()), asyncio.create_task(self._look_at_processes())]

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def find(self, role: str) -> int | None:
        """Who has it, as it was seen last."""
        leaders = self.seen.leaders.get(TopicPartition(PLAIN.name, 0), [])  # type: ignore[arg-type]
        leader = leaders[-1][1] if leaders else 0
        match role:
            case _ if role == LEADER:
                return leader or None
            case _ if role == FOLLOWER:
                return next((node for node in self._followers if node != leader), None)
            case _ if role == CONTROLLER:
                return (self.seen.controller[-1][1] if self.seen.controller else 0) or None
            case _ if role == COORDINATOR:
                return self._coordinator
        return None

    # -- the cluster

    async def _look_at_cluster(self) -> None:
        settings = {"request.timeout.ms": "2000", "default.api.timeout.ms": "4000"}
        async with AsyncAdmin({"bootstrap.servers": self._nodes.bootstrap_servers, **settings}) as admin:
            while True:
                with suppress(StreamlogError):
                    await self._look(admin)
                await asyncio.sleep(LOOK_S)

    async def _look(self, admin: AsyncAdmin) -> None:
        for topic in await admin.describe_topics([*(topic.name for topic in TOPICS), OFFSETS_TOPIC]):
            if topic.error is not None:
                for at in [at for at in self.seen.leaders if at.topic == topic.name]:
                    _changed(self.seen.leaders[at], self._now(), 0)
            for one in topic.partitions if topic.error is None else ():
                leader = one.leader or 0
                if leader:
                    first = self._led.setdefault((bytes(topic.topic_id), one.partition, one.leader_epoch), leader)
                    if first != leader:
                        where = f"{topic.name}-{one.partition} in epoch {one.leader_epoch}"
                        self._wrong("I10", f"{where} is led by node {first} and by node {leader}")
                if topic.name == OFFSETS_TOPIC:
                    if one.partition == partition_of(GROUP, len(topic.partitions)):
                        self._coordinator = leader or None
                    continue
                at = TopicPartition(topic.name, one.partition)
                if at == TopicPartition(PLAIN.name, one.partition) and one.partition == 0:
                    self._followers = list(one.replicas)
                _changed(self.seen.leaders.setdefault(at, []), self._now(), leader)
        cluster = await admin.describe_cluster()
        _changed(self.seen.controller, self._now(), cluster.controller or 0)

    # -- the processes

    async def _look_at_processes(self) -> None:
        while True:
            for node in self._nodes.all:
                self._look_at(node)
            await asyncio.sleep(LOOK_S)

    def _look_at(self, node: Node) -> None:
        pid = node.pid
        up = self.seen.up.setdefault(node.node_id, [])
        if not up or up[-1][1] != (pid is not None):
            up.append((self._now(), pid is not None))
        if pid is not None:
            memory = resident_bytes(pid)
            self.seen.memory.setdefault(node.node_id, []).append((self._now(), memory))
            if memory > MEMORY_MAX_BYTES:
                self._wrong("I22", f"node {node.node_id} holds more than {MEMORY_MAX_BYTES >> 20} MiB")
        elif node.wanted and not node.busy.locked() and node.node_id not in self._restarting:
            self._has_ended(node)

    def _has_ended(self, node: Node) -> None:
        words = f"node {node.node_id} ended by itself with status {node.status}: {node.last_log_line()}"
        if node.excused:
            self.seen.stops.append((self._now(), node.node_id, words))
        else:
            self._wrong("I21", words)
        self._restarting.add(node.node_id)
        self._tasks.append(asyncio.create_task(self._start_again(node)))

    async def _start_again(self, node: Node) -> None:
        await asyncio.sleep(RESTART_S)
        async with node.busy:
            if node.wanted and node.pid is None:
                excused = node.excused  # its disk may still be as it was
                node.start()
                node.excused = excused
        self._restarting.discard(node.node_id)


def _changed(series: list[tuple[float, int]], now: float, value: int) -> None:
    if not series or series[-1][1] != value:
        series.append((now, value))


def resident_bytes(pid: int) -> int:
    """0 where it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS")), 0)
