"""An admin client and nodes that serve a fake cluster, in simulation."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from msgspec import Struct

from streamlog.api.service import stream_handlers, unary_handlers
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.sim import Process, SimLoop, SimWorkers, run
from streamlog.sim.clock import SimClock
from streamlog.sim.wires.fabric import Fabric
from streamlog.sim.wires.network import SimNetwork
from tests.client.admin.fake_admin import FakeAdmin

NODES: Final = ("node1:9092", "node2:9092")
TOTAL_S: Final = 20
UNREACHABLE_S: Final = 10


class _Ports(Struct, frozen=True, kw_only=True):
    network: SimNetwork
    clock: SimClock
    random: random.Random
    workers: SimWorkers


class Bench:
    def __init__(self, loop: SimLoop, seed: int) -> None:
        self.cluster = FakeAdmin()
        self.clock = SimClock(loop)
        self.client = Process("client")
        self._fabric = Fabric(loop, random.Random(seed))
        self._nodes: dict[str, Process] = {}
        ports = _Ports(
            network=SimNetwork(self._fabric, self.client, "client"),
            clock=self.clock,
            random=random.Random(seed),
            workers=SimWorkers(self.client, random.Random(seed)),
        )
        self.admin = AsyncAdmin(
            bootstrap_servers=",".join(NODES),
            default_api_timeout_ms=TOTAL_S * 1000,
            request_timeout_ms=5_000,
            unreachable_s=UNREACHABLE_S,
            client_version="tests/1",
            ports=ports,
        )

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
            async with bench.admin:
                await scenario(bench)

        await loop.create_task(act(), context=bench.client.context())
        bench.close()

    run(main, seed=seed, until_s=600)
