"""The nemesis: strikes the faults of a plan, each at its time, and heals them."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

from streamlog.errors import StreamlogError
from streamlog.raft.core.library import RaftRole

from ..kit import PORT
from ..protocol.hostile import forge
from .plan import LEADER, Fault, Kind

if TYPE_CHECKING:
    from .run import Simulation

MARGIN_S: Final = 0.25
"""Beyond the longest silence that may be, after which a leader must have noticed that it is alone."""


class Nemesis:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._cluster = simulation.cluster
        self._fabric = simulation.world.fabric
        self._loop = simulation.loop
        self._plan = simulation.plan
        self._nodes = simulation.nodes
        self._resumed: dict[int, float] = {}  # by node: when a pause of it ended last

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for fault in self._plan.faults:
                await asyncio.sleep(max(0.0, fault.at_s - self._loop.now))
                self._simulation.check_now()
                if fault.kind not in self._simulation.LEFT_OUT:
                    group.create_task(self._strike(fault))

    def _target(self, fault: Fault) -> int:
        if fault.target != LEADER:
            return fault.target
        leader = self._cluster.leader()
        return fault.other if leader is None else leader.node_id

    async def _strike(self, fault: Fault) -> None:
        target = self._target(fault)
        other = fault.other if fault.other != target else target % len(self._nodes) + 1
        host, fabric = self._cluster.host(target), self._fabric
        self._simulation.stats[fault.kind.name.lower()] += 1
        match fault.kind:
            case Kind.CRASH | Kind.POWER_CUT:
                self._simulation.crash(target, power=fault.kind is Kind.POWER_CUT)
                await asyncio.sleep(fault.lasts_s)
                self._simulation.start(target)
            case Kind.BLACKOUT:
                await self._black_out(fault)
            case Kind.ONE_WAY_CUT:
                await self._cut([(f"n{target}", f"n{other}")], fault.lasts_s)
            case Kind.ISOLATE:
                others = [node_id for node_id in self._nodes if node_id != target]
                ways = [(f"n{target}", f"n{o}") for o in others], [(f"n{o}", f"n{target}") for o in others]
                await self._cut(ways[0] if fault.amount < 0.3 else [*ways[0], *ways[1]], fault.lasts_s)
            case Kind.RESET:
                fabric.reset(f"n{target}", f"n{other}")
            case Kind.SLOW_NETWORK:
                fabric.slow = 1 + 20 * fault.amount
                await asyncio.sleep(fault.lasts_s)
                fabric.slow = 1.0
            case Kind.SLOW_DISK:
                host.disk.faults.slow = 1 + 100 * fault.amount
                await asyncio.sleep(fault.lasts_s)
                host.disk.faults.slow = 1.0
            case Kind.DISK_ERROR:
                host.disk.faults.sync_errors = 1
                await asyncio.sleep(fault.lasts_s)
                host.disk.faults.sync_errors = 0
                self._simulation.look_at_tasks()
                self._simulation.start(target)
            case Kind.PAUSE:
                host.pause()
                await asyncio.sleep(fault.lasts_s)
                host.resume()
                self._resumed[target] = self._loop.now
            case Kind.SNAPSHOT:
                for member in self._cluster.members():
                    if fault.amount < 0.5 or member.node_id == target:
                        member.raft.want_snapshot()
            case Kind.CLOCK_JUMP:
                host.clock.jump_ms += int((fault.amount - 0.5) * 7_200_000)
            case Kind.TRANSFER:
                await self._transfer()
            case Kind.HOSTILE:
                await self._forge(fault, target, other)
            case Kind.DEPOSE:
                await self._depose(target)

    async def _forge(self, fault: Fault, target: int, other: int) -> None:
        forger = self._simulation.world.host("forger")
        if not forger.alive:
            forger.boot()
        impersonated = f"n{other}:{PORT}" if fault.amount < 0.5 else None
        rng = random.Random(f"forge/{self._plan.seed}/{fault.at_s}")
        await forger.spawn(forge(forger.ports.network, f"n{target}:{PORT}", impersonated, rng))

    async def _depose(self, node_id: int) -> None:
        """An isolated leader may answer reads until another one is elected, and soon not at all."""
        host = self._cluster.host(node_id)
        leader = self._cluster.leader()
        if leader is None or leader.node_id != node_id:
            return
        term, until = leader.core.term, self._loop.now + self._plan.settings.patience_max_ms / 1000 + MARGIN_S
        others = [f"n{other}" for other in self._nodes if other != node_id]
        links = [(host.name, other) for other in others] + [(other, host.name) for other in others]
        for source, target in links:
            self._fabric.block(source, target)
        since = self._loop.now
        await self._simulation.clients[0].read_from(leader, until)
        undisturbed = all(self._fabric.blocked.get(link) == since for link in links)
        # One that was paused finds answers from before the cut, and cannot know how old they are.
        undisturbed = undisturbed and self._resumed.get(node_id, since) <= since
        process = host.process
        runs = host.node is leader and leader.is_up and process is not None and process.alive and not process.paused
        if undisturbed and runs and leader.core.role == RaftRole.LEADER and leader.core.term == term:
            self._simulation.truth.wrong(
                f"node {node_id} leads on, {self._loop.now - since:.2f} s after it was cut off"
            )
        self._fabric.heal(links)

    async def _transfer(self) -> None:
        leader = self._cluster.leader()
        if leader is not None:
            try:
                await self._cluster.call(leader, leader.raft.transfer_leadership())
            except StreamlogError:
                pass  # it has lost its leadership, or its life, meanwhile

    async def _cut(self, links: list[tuple[str, str]], lasts_s: float) -> None:
        for source, target in links:
            self._fabric.block(source, target)
        await asyncio.sleep(lasts_s)
        self._fabric.heal(links)

    async def _black_out(self, fault: Fault) -> None:
        rng = random.Random(f"{self._plan.seed}/{fault.at_s}")
        for node_id in self._nodes:
            self._simulation.crash(node_id, power=True)
        for node_id in rng.sample(list(self._nodes), len(self._nodes)):
            await asyncio.sleep(rng.uniform(0.0, fault.lasts_s / 2))
            self._simulation.start(node_id)
