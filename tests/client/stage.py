"""Where the client's tests play: a fake cluster, and a host on which the client runs, in virtual time from a seed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from streamlog.client.consumer.async_consumer import AsyncConsumer
from streamlog.client.producer.async_producer import AsyncProducer
from streamlog.ports import Ports
from streamlog.records import encode_batch
from streamlog.sim import Order, SimLoop, World, run
from streamlog.sim.world import TIMER_JITTER_S

from .fake_broker import FakeCluster, FakeLog


class Stage:
    def __init__(self, loop: SimLoop, seed: int) -> None:
        self.loop = loop
        self.world = World(loop, seed)
        self.cluster = FakeCluster(self.world)
        self.client = self.world.host("client")
        self.ports: Ports = self.client.boot()
        self.dice = self.world.stream("story")

    def producer(self, **settings: Any) -> AsyncProducer:
        return AsyncProducer(ports=self.ports, bootstrap_servers=self.cluster.bootstrap, **settings)

    def consumer(self, **settings: Any) -> AsyncConsumer:
        return AsyncConsumer(ports=self.ports, bootstrap_servers=self.cluster.bootstrap, **settings)

    def reset(self) -> None:
        """All of the client's connections break."""
        for name in self.cluster.names:
            self.world.fabric.reset("client", name)


Story = Callable[[Stage], Coroutine[Any, Any, None]]


def play(story: Story, *, seeds: int = 3, until_s: float = 400) -> None:
    for seed in range(seeds):

        async def main(loop: SimLoop, seed: int = seed) -> None:
            stage = Stage(loop, seed)
            await stage.client.spawn(story(stage))
            stage.world.stop()

        order = Order.SHUFFLE if seed % 2 else Order.FIFO
        run(main, seed=seed, order=order, jitter_s=TIMER_JITTER_S, until_s=until_s)


def lines(count: int) -> list[bytes]:
    return [b"line %d" % number for number in range(count)]


def fill(cluster: FakeCluster, log: FakeLog, values: list[bytes], batch: int = 10) -> None:
    """A line each, at 1000 ms and every ms from then on."""
    for start in range(0, len(values), batch):
        some = values[start : start + batch]
        times = [1000 + log.end + number for number in range(len(some))]
        log.append(encode_batch(some, timestamps=times))
    cluster.wake()


async def take(consumer: AsyncConsumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    while len(values) < count:
        values += [record.value for record in await consumer.poll(count - len(values), timeout_s=None)]
    return values
