"""Random lives of three nodes: crashes, power cuts, broken and one-way links, slow disks, leaders cut off. Whatever has
happened, in the end the replicas are the same, and what was acknowledged is there.
"""

from __future__ import annotations

import asyncio
import random

from streamlog.errors import StreamlogError
from streamlog.sim.files.disk import DiskFaults
from tests.broker.nodes import Cluster, play

NODES = (1, 2, 3)
PARTITIONS = 2


class Life:
    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(f"life/{seed}")
        self.going_on = True
        self.count = 0

    async def live(self, faults: int) -> None:
        cluster = self.cluster
        cluster.loses_answers = 0.1
        cluster.start(*NODES)
        await cluster.ready(*NODES)
        cluster.do(lambda c: c.create("t", PARTITIONS, assignments=((1, 2, 3), (2, 3, 1))))
        async with asyncio.TaskGroup() as tasks:
            work = [tasks.create_task(self._produce(p)) for p in range(PARTITIONS) for _ in range(2)]
            for _ in range(faults):
                await asyncio.sleep(self.random.uniform(0.05, 0.8))
                await self._strike()
            await self._calm()
            self.going_on = False
            await asyncio.wait(work)
        await cluster.settled(PARTITIONS)
        cluster.check(PARTITIONS)

    async def _produce(self, partition: int) -> None:
        while self.going_on:
            self.count += 1
            values = [b"%d %d %d" % (partition, self.count, i) for i in range(self.random.randrange(1, 4))]
            try:
                await self.cluster.produce(*values, partition=partition)
            except (StreamlogError, TimeoutError):
                await asyncio.sleep(0.05)
            await asyncio.sleep(self.random.uniform(0, 0.03))

    async def _strike(self) -> None:
        node = self.random.choice(NODES)
        other = self.random.choice([n for n in NODES if n != node])
        fabric = self.cluster.world.fabric
        match self.random.randrange(8):
            case 0:
                await self._kill(node, power=False)
            case 1:
                await self._kill(node, power=True)
            case 2:
                for each in NODES:
                    self.cluster.host(each).power_cut()
                await asyncio.sleep(self.random.uniform(0.1, 0.5))
                for each in NODES:
                    self._restart(each)
            case 3:
                fabric.reset(f"node{node}", f"node{other}")
            case 4:
                fabric.block(f"node{node}", f"node{other}")
                await asyncio.sleep(self.random.uniform(0.1, 2.5))
                fabric.heal()
            case 5:
                await self._isolate(self.cluster.partition(self.random.randrange(PARTITIONS)).leader)
            case 6:
                self.cluster.host(node).disk.faults = DiskFaults(slow=self.random.uniform(1, 300), cold=0.5)
            case 7:
                leader = self.cluster.partition(0).leader
                if leader in NODES:
                    await self._kill(leader, power=True)

    async def _kill(self, node: int, *, power: bool) -> None:
        host = self.cluster.host(node)
        if power:
            host.power_cut()
        else:
            host.crash()
        await asyncio.sleep(self.random.uniform(0.05, 0.5))
        if self.random.random() < 0.7:
            self._fence(node)
        await asyncio.sleep(self.random.uniform(0, 1.0))
        self._restart(node)

    async def _isolate(self, node: int) -> None:
        """It goes on as it was, and does not know that others have gone on without it."""
        if node not in NODES:
            return
        links = [
            link
            for other in NODES
            if other != node
            for link in ((f"node{node}", f"node{other}"), (f"node{other}", f"node{node}"))
        ]
        for link in links:
            self.cluster.world.fabric.block(*link)
        self.cluster.cut[node] = True
        await asyncio.sleep(self.random.uniform(0.1, 0.5))
        self._fence(node)
        await asyncio.sleep(self.random.uniform(0.1, 1.5))
        self.cluster.world.fabric.heal()
        del self.cluster.cut[node]
        self.cluster.publish()
        await asyncio.sleep(0.1)
        self.cluster.heartbeat(node)

    def _fence(self, node: int) -> None:
        if not self.cluster.controller.broker(node).fenced:
            self.cluster.fence(node)

    def _restart(self, node: int) -> None:
        """Its session must be over: as long as it lives in the controller's eyes, its id is taken."""
        self._fence(node)
        if not self.cluster.host(node).alive:
            self.cluster.start(node)

    async def _calm(self) -> None:
        self.cluster.loses_answers = 0.0
        self.cluster.world.fabric.heal()
        for node in NODES:
            self.cluster.host(node).disk.faults = DiskFaults()
            if not self.cluster.host(node).alive:
                self._restart(node)
        await asyncio.sleep(3.0)
        for node in NODES:
            self.cluster.heartbeat(node)


def live(seed: int, *, faults: int = 8) -> None:
    async def story(cluster: Cluster) -> None:
        await Life(cluster, seed).live(faults)

    play(story, seed=f"life/{seed}")
