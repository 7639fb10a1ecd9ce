"""The programs of the writers, each on a host of its own, and readers of committed records."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from streamlog.api import calls
from streamlog.api.pb import common_pb2
from streamlog.api.pb import records_pb2 as pb
from streamlog.client.consumer.async_consumer import AsyncConsumer
from streamlog.client.consumer.start_positions import EARLIEST
from streamlog.errors import ProducerFencedError, StreamlogError
from streamlog.model import TopicPartition
from streamlog.ports import Ports
from streamlog.sim.world import Host, World

from ..clients.client_program import ClientProgram
from .transaction_ledger import Ledger
from .transaction_plan import NODES, Action, Event, TransactionsPlan, WriterPlan
from .transaction_writers import Stage, addresses, make_writer

AGAIN_S: Final = (0.5, 3.0)
"""After a program was fenced, until another one is started on its host."""
PAUSE_S: Final = 0.2
_SUBSCRIBE: Final = "streamlog.v1.Records/Subscribe"


class Program(ClientProgram):
    """From `start` to its end: fenced, killed, or all that it has to write is written."""

    def __init__(
        self, writer: WriterPlan, host: Host, world: World, partitions: Sequence[TopicPartition], ledger: Ledger
    ) -> None:
        super().__init__(host, world)
        self.fenced = 0
        self._writer = writer
        self._partitions = partitions
        self._ledger = ledger
        self._rng = world.stream(f"writer/{host.name}")

    def start(self, count: int | None = None) -> None:
        if self.is_running or self._settled:
            return
        self._host.crash()
        ports = self._host.boot()
        self._task = self._host.spawn(self._live(ports, count))

    async def _live(self, ports: Ports, count: int | None) -> None:
        stage = Stage(
            plan=self._writer,
            ports=ports,
            servers=addresses(),
            partitions=self._partitions,
            ledger=self._ledger,
            rng=self._rng,
            errors=self.errors,
        )
        try:
            await make_writer(stage).work(count)
        except ProducerFencedError:
            self.fenced += 1
            self._later(self._rng.uniform(*AGAIN_S), self.start)

    async def write(self, count: int) -> None:
        """By a program that starts now: so many transactions, committed."""
        self._settled = False
        self.start(count)
        self._settled = True
        assert self._task is not None
        await asyncio.wait([self._task])
        self._task.result()

    def kill(self) -> None:
        """Permanently."""
        self._settled = True
        self._host.resume()
        self._host.crash()

    def strike(self, action: Action) -> None:
        if not self.is_running:
            self.start()
            return
        match action.event:
            case Event.KILL:
                self._host.crash()
                self._restart_after(action.lasts)
            case Event.PAUSE:
                self._pause(action.lasts)
            case Event.CUT:
                self._cut_off(NODES, action.lasts)


class TransactionCrew:
    """All programs of a plan."""

    def __init__(
        self, plan: TransactionsPlan, world: World, partitions: Sequence[TopicPartition], ledger: Ledger
    ) -> None:
        self.programs = {
            host: Program(writer, world.host(host), world, partitions, ledger)
            for writer in plan.writers
            for host in writer.hosts
        }
        self._plan = plan

    def begin(self) -> None:
        """One program of each writer."""
        for writer in self._plan.writers:
            self.programs[writer.hosts[0]].start()

    def kill(self) -> None:
        for program in self.programs.values():
            program.kill()

    async def write_once_more(self) -> None:
        """Each writer commits one more transaction."""
        async with asyncio.TaskGroup() as tasks:
            for writer in self._plan.writers:
                tasks.create_task(self.programs[writer.hosts[0]].write(1))


async def read_by_library(ports: Ports, partitions: Sequence[TopicPartition], ledger: Ledger) -> None:
    """For ever, from the beginning again after an error."""
    while True:
        consumer = AsyncConsumer(
            bootstrap_servers=",".join(addresses()),
            isolation_level="read_committed",
            request_timeout_ms=1_500,
            ports=ports,
        )
        try:
            async with consumer:
                await consumer.assign(partitions, start=EARLIEST)
                while True:
                    ledger.given([record.value for record in await consumer.poll(timeout_s=None)])
        except StreamlogError:
            await asyncio.sleep(PAUSE_S)


async def read_by_stream(ports: Ports, topics: Sequence[str], ledger: Ledger) -> None:
    """Subscribe at one node after another, from the beginning again after an error."""
    start = pb.StartPosition(bound=common_pb2.OFFSET_BOUND_EARLIEST)
    request = pb.SubscribeRequest(
        subscriptions=[pb.SubscribePartitions(topic=topic, start=start) for topic in topics],
        isolation_level=common_pb2.ISOLATION_LEVEL_READ_COMMITTED,
    )
    while True:
        for address in addresses():
            channel = ports.network.connect(address)
            try:
                async with calls.stream(channel, _SUBSCRIBE, pb.SubscribeResponse) as stream:
                    await stream.send(request)
                    await stream.done_sending()
                    while (response := await stream.recv()) is not None:
                        ledger.given([record.value for news in response.partitions for record in news.records])
            except StreamlogError:
                await asyncio.sleep(PAUSE_S)
            finally:
                await channel.close()
