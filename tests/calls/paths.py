"""The paths whose calls are counted: three whole nodes, a topic of three replicas, acks=all, and the real client."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final
from unittest.mock import patch

from streamlog.api.pb import records_pb2
from streamlog.client import EARLIEST, AsyncConsumer, AsyncProducer
from streamlog.model import PartitionId, TopicPartition
from streamlog.ports import Ports
from streamlog.records.checks import kernel, record_check
from streamlog.sim import Order, SimLoop, World, run
from tests.calls.counting import Call, counted_calls
from tests.node.calls import Calls, until_done
from tests.node.kit import Nodes

SERVERS: Final = "n1:9092,n2:9092,n3:9092"
TOPIC: Final = "t"
P0: Final = PartitionId(0)
VALUE: Final = b"v" * 100
AT_ONCE: Final = 8
BULK: Final = [VALUE] * 2_000

Found = dict[str, dict[str, float]]
"""Path, role (client, leader, follower: the mean of both), calls a record."""
Functions = dict[str, dict[str, Counter[str]]]
"""Path, role, function: how often it was called for all records that were counted."""


class Stage:
    def __init__(self, nodes: Nodes, ports: Ports, calls: Calls, leader: str) -> None:
        self.nodes = nodes
        self.ports = ports
        self.calls = calls
        self.leader = leader
        self.found: Found = {}
        self.functions: Functions = {}

    async def count(self, path: str, repeat: int, records: int, work: Callable[[], Awaitable[object]]) -> None:
        """`work` handles so many records. It is done twice before it is counted: connections and caches exist then."""
        await work()
        await work()
        with counted_calls() as counts:
            for _ in range(repeat):
                await work()
        roles: dict[str, Counter[str]] = {"client": Counter(), "leader": Counter(), "follower": Counter()}
        for call, number in counts.items():
            roles[self._role(call)][call.function] += number
        self.functions[path] = {role: functions for role, functions in roles.items() if functions}
        self.found[path] = {
            role: round(functions.total() / (2 if role == "follower" else 1) / (repeat * records), 3)
            for role, functions in self.functions[path].items()
        }

    def _role(self, call: Call) -> str:
        if call.process == self.leader:
            return "leader"
        return call.process if call.process == "client" else "follower"


async def _produce(stage: Stage) -> None:
    async with AsyncProducer(bootstrap_servers=SERVERS, ports=stage.ports) as producer:

        async def one() -> None:
            await producer.send(TOPIC, VALUE, partition=P0)

        async def many() -> None:
            await (await producer.send_many(TOPIC, BULK, partition=P0))

        await stage.count("send one record", 40, 1, one)
        await stage.count("send_many", 10, len(BULK), many)


async def _consume(stage: Stage) -> None:
    async with AsyncConsumer(bootstrap_servers=SERVERS, ports=stage.ports) as consumer:
        place = TopicPartition(TOPIC, P0)

        async def iterate() -> None:
            await consumer.assign([place], start=EARLIEST)
            left = 10_000
            async for _ in consumer:
                left -= 1
                if not left:
                    break

        await stage.count("iterate", 2, 10_000, iterate)


async def _publish(stage: Stage) -> None:
    record = records_pb2.PublishRecord(value=VALUE, partition=P0)
    request = records_pb2.PublishRequest(topic=TOPIC, records=[record])

    async def publish() -> None:
        await stage.calls.call(f"{stage.leader}:9092", "Records/Publish", request, records_pb2.PublishResponse)

    async def publish_at_once() -> None:
        await asyncio.gather(*(publish() for _ in range(AT_ONCE)))

    await stage.count("Publish one record", 40, 1, publish)
    await stage.count("Publish, 8 calls at once", 20, AT_ONCE, publish_at_once)


def count_all() -> tuple[Found, Functions]:
    """Without the optional kernel, which would save calls where it is installed."""
    with patch.object(record_check, "valid_times", None), patch.object(kernel, "rows", None):
        return _count_all()


def _count_all() -> tuple[Found, Functions]:
    found: Found = {}
    functions: Functions = {}

    async def main(loop: SimLoop) -> None:
        nodes = Nodes(World(loop, 1), 3)
        nodes.start()
        await nodes.ready()
        host = nodes.world.host("client")
        ports = host.boot()

        async def work() -> None:
            calls = Calls(ports.network)
            await until_done(partial(calls.create_topic, "n1:9092", TOPIC, 1))
            leader = nodes.node(1).view.image.require_topic(TOPIC).partitions[P0].leader
            stage = Stage(nodes, ports, calls, f"n{leader}")
            for path in (_produce, _consume, _publish):
                await path(stage)
            await calls.close()
            found.update(stage.found)
            functions.update(stage.functions)

        await host.spawn(work())
        nodes.world.stop()

    run(main, seed=1, order=Order.FIFO)
    return found, functions
