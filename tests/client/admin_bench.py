"""An admin client and nodes that serve a fake cluster, in simulation."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from streamlog.api.service import stream_handlers, unary_handlers
from streamlog.client.admin import AsyncAdmin
from streamlog.client.any_node import AnyNode, AskTimes
from streamlog.client.backoff import Backoff
from streamlog.client.connections import Connections
from streamlog.sim import Process, SimLoop, run
from streamlog.sim.clock import SimClock
from streamlog.sim.fabric import Fabric
from streamlog.sim.network import SimNetwork
from tests.client.fake_cluster import FakeCluster

NODES: Final = ("node1:9092", "node2:9092")
TIMES: Final = AskTimes(total_s=20, attempt_s=5, unreachable_s=10)


class Bench:
    def __init__(self, loop: SimLoop, seed: int) -> None:
        self.cluster = FakeCluster()
        self.clock = SimClock(loop)
        self.client = Process("client")
        self._fabric = Fabric(loop, random.Random(seed))
        self._nodes: dict[str, Process] = {}
        network = SimNetwork(self._fabric, self.client, "client")
        dice = random.Random(seed)
        self.connections = Connections(network, self.clock, dice, NODES)
        nodes = AnyNode(self.connections, self.clock, Backoff(dice), TIMES)
        self.admin = AsyncAdmin(nodes, client_version="tests/1")

    async def start(self, address: str) -> None:
        process = self._nodes[address] = Process(address)
        services = self.cluster.services(self.clock)
        network = SimNetwork(self._fabric, process, address.partition(":")[0])
        await network.listen(address, unary=unary_handlers(services), streaming=stream_handlers(services))

    def kill(self, address: str) -> None:
        self._nodes.pop(address).kill()

    def close(self) -> None:
        for address in list(self._nodes):
            self.kill(address)


Scenario: TypeAlias = Callable[[Bench], Awaitable[None]]


def play(scenario: Scenario, *, nodes: tuple[str, ...] = NODES, seed: int = 0) -> None:
    async def main(loop: SimLoop) -> None:
        bench = Bench(loop, seed)
        for address in nodes:
            await bench.start(address)

        async def act() -> None:
            await scenario(bench)
            await bench.connections.close()

        await loop.create_task(act(), context=bench.client.context())
        bench.close()

    run(main, seed=seed, until_s=600)
