"""A small node that uses every port, and a run of three of them under faults; `python -m` prints its fingerprint.

Each node counts the lines it gets, logs them, syncs and answers; it forwards them to its neighbour, over a stream.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from contextlib import AsyncExitStack

from streamlog.errors import Status
from streamlog.ports import CallInfo, Ports, RpcError, Stream
from streamlog.sim import Host, Order, SimLoop, World, run
from streamlog.sim.ban import traps
from streamlog.sim.world import TIMER_JITTER_S

COUNT = "/sample.Sample/Count"
FOLLOW = "/sample.Sample/Follow"
LOG = "/data/log"


class SampleNode:
    def __init__(self, name: str, neighbour: str, ports: Ports) -> None:
        self._name = name
        self._neighbour = neighbour
        self._ports = ports
        self.lines: list[bytes] = []
        self._news: asyncio.Queue[bytes] = asyncio.Queue(100)
        self._syncing = asyncio.Lock()

    async def run(self) -> None:
        fs = self._ports.fs
        fs.mkdir("/data", parents=True)
        await fs.sync_dir("/")
        self._file = fs.open(LOG, create=True)
        await fs.sync_dir("/data")
        self.lines = self._file.pread(1 << 20, 0).split(b"\n")[:-1]
        self._ports.probe("opened", lines=len(self.lines))
        await self._ports.network.listen(
            f"{self._name}:1", unary={COUNT: self._count}, streaming={FOLLOW: self._follow}
        )
        await self._forward()

    async def _count(self, request: bytes, info: CallInfo) -> bytes:
        checksum = await self._ports.workers.run(zlib.crc32, request)
        line = b"%d %d %d" % (self._ports.clock.wall_ms(), checksum, self._ports.random.getrandbits(16))
        async with self._syncing:
            self._file.pwritev([line, b"\n"], self._file.size())
            await self._file.sync()
        self.lines.append(line)
        self._ports.probe("counted", lines=len(self.lines))
        if self._news.full():
            raise RpcError(Status.RESOURCE_EXHAUSTED, "too much news")
        self._news.put_nowait(line)
        return b"%d" % len(self.lines)

    async def _follow(self, stream: Stream, info: CallInfo) -> None:
        while (line := await stream.recv()) is not None:
            self._ports.probe("received", peer=info.peer, line=line)

    async def _forward(self) -> None:
        channel = self._ports.network.connect(self._neighbour)
        while True:
            try:
                async with AsyncExitStack() as stack:
                    stream = await stack.enter_async_context(channel.stream(FOLLOW))
                    while True:
                        await stream.send(await self._news.get())
            except RpcError:
                await asyncio.sleep(self._ports.random.uniform(0.01, 0.1))


NAMES = ("n0", "n1", "n2")


async def simulate(loop: SimLoop, seed: int) -> list[str]:
    """Ten seconds; every event and every outcome, as text."""
    world, story = World(loop, seed), []

    def listen(host: Host, event: str, fields: dict[str, object]) -> None:
        story.append(f"{loop.now:.9f} {host.process} {event} {sorted(fields.items())}")

    world.listeners.append(listen)

    def start(name: str) -> None:
        neighbour = NAMES[(NAMES.index(name) + 1) % len(NAMES)]
        world.host(name).start(lambda ports: SampleNode(name, f"{neighbour}:1", ports))

    async def client() -> None:
        ports = world.hosts["client"].ports
        channels = [ports.network.connect(f"{name}:1") for name in NAMES]
        while loop.now < 10:
            name = ports.random.randrange(3)
            try:
                reply: object = await channels[name].unary(COUNT, b"%f" % loop.now, timeout_s=0.5)
            except RpcError as error:
                reply = error
            story.append(f"{loop.now:.9f} {name} {reply}")
            await asyncio.sleep(ports.random.uniform(0, 0.02))

    for name in NAMES:
        start(name)
    world.host("client").boot()
    calling = world.host("client").spawn(client())
    dice = world.stream("faults")
    while loop.now < 10:
        await asyncio.sleep(dice.uniform(0.2, 1.0))
        host = world.host(dice.choice(NAMES))
        match dice.randrange(4):
            case 0:
                host.crash()
                start(host.name)
            case 1:
                host.power_cut()
                await asyncio.sleep(0.1)
                start(host.name)
            case 2:
                world.fabric.block("client", host.name)
                await asyncio.sleep(0.3)
                world.fabric.heal()
            case 3:
                world.fabric.reset("client", host.name)
    await calling
    world.stop()
    return [*story, f"{loop.steps} {loop.random.random()} {world.fabric.frames} {world.fabric.rng.random()}"]


def story_of(seed: int) -> list[str]:
    order = Order.SHUFFLE if seed % 2 else Order.FIFO
    with traps():
        return run(lambda loop: simulate(loop, seed), seed=seed, order=order, jitter_s=TIMER_JITTER_S, until_s=60)


def fingerprint(seed: int) -> int:
    return zlib.crc32("\n".join(story_of(seed)).encode())


if __name__ == "__main__":
    print(*(fingerprint(int(seed)) for seed in sys.argv[1:]))
