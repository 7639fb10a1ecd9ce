"""A node that leads __transaction_state, with records and markers under the test's control."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar, cast

from streamlog.coordinator.transactions import TRANSACTIONS_TOPIC, TransactionCoordinator
from streamlog.errors import (
    LeaderNotAvailableError,
)
from streamlog.model import NO_PRODUCER_ID, BrokerId, Offset, ProducerId, TopicPartition
from streamlog.ports import Network, Ports
from streamlog.transactions.lifecycle import AddPartitions, Ended, EndTransaction, InitProducer, TransactionalProducer
from streamlog.transactions.markers import Grant, MarkerOutcome, PartitionMarker
from streamlog.transactions.records import TransactionStatus
from tests.broker.rig import ME, OTHER, P0, Rig

T = TypeVar("T")

T_0, T_1 = TopicPartition("t", P0), TopicPartition("u", P0)

WAIT_S = 3.0


class FakeLink:
    """Writes markers nowhere. Refuses while `reachable` is False."""

    def __init__(self) -> None:
        self.written: list[tuple[BrokerId, PartitionMarker]] = []
        self.taken_back: list[Grant] = []
        self.asked = 0
        self.reachable = True
        self.used = False  # what was granted
        self.records = {T_0, T_1}  # where transactions have some

    async def write(self, node: BrokerId, markers: Sequence[PartitionMarker]) -> Sequence[MarkerOutcome]:
        self.asked += 1
        if not self.reachable:
            raise LeaderNotAvailableError("no node is there")
        self.written += [(node, marker) for marker in markers]
        return [MarkerOutcome(ended=marker.partition in self.records) for marker in markers]

    async def take_back(self, node: BrokerId, grant: Grant) -> bool:
        if not self.reachable:
            raise LeaderNotAvailableError("no node is there")
        self.taken_back.append(grant)
        return self.used


class FakeIds:
    def __init__(self) -> None:
        self.last = 100

    async def next(self) -> ProducerId:
        self.last += 1
        return ProducerId(self.last)


class Bench:
    """A node that leads the only partition of `__transaction_state` (copied to another one), and topics `t` and `u`."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.rig.start()
        self.link, self.ids = FakeLink(), FakeIds()
        self.begin()
        self.rig.create("t", 1)
        self.rig.create("u", 3)
        self.rig.create(TRANSACTIONS_TOPIC, 2, replicas=(ME, OTHER), configs={"cleanup.policy": "compact"})
        self.rig.rest()

    def begin(self) -> None:
        rig = self.rig
        ports = Ports(
            fs=rig.machine.fs,
            network=cast(Network, None),  # markers go by the link
            clock=rig.machine.clock,
            random=rig.machine.random,
            workers=rig.machine.workers,
            probe=rig._probe,
        )

        async def run() -> None:
            self.coordinator = TransactionCoordinator(rig.replicas, rig.view, rig.configs, self.ids, self.link, ports)
            self.task = asyncio.get_running_loop().create_task(self.coordinator.run())
            await asyncio.sleep(0)

        rig.machine.run(run())

    def end(self) -> None:
        async def stop() -> None:
            self.task.cancel()
            await asyncio.wait([self.task])

        self.rig.machine.run(stop())

    def start(self, work: Awaitable[T]) -> asyncio.Task[T]:
        """Begun, and not waited for."""

        async def starting() -> asyncio.Task[T]:
            async def working() -> T:
                return await work

            task = asyncio.get_running_loop().create_task(working())
            await asyncio.sleep(0)
            return task

        return self.rig.machine.run(starting())

    def run(self, work: Awaitable[T]) -> T:
        """With the other replica copying all."""
        task = self.start(work)
        for _ in range(100):
            if task.done():
                break
            self.rig.rest(0.05)
            self.copied()
        return task.result()

    def copied(self) -> None:
        """The other replica has all."""
        leader = self.rig.leader(TRANSACTIONS_TOPIC)
        self.rig.do(lambda: leader.on_position(OTHER, Offset(leader.log_end_offset)))

    def settle(self) -> None:
        """What goes on by itself goes on."""
        for _ in range(20):
            self.rig.rest(0.1)
            self.copied()

    def init(self, timeout_ms: int = 60_000) -> TransactionalProducer:
        command = InitProducer(transactional_id="x", timeout_ms=timeout_ms, fresh_producer_id=NO_PRODUCER_ID)
        return self.run(self.coordinator.init(command, WAIT_S))

    def adding(self, producer: TransactionalProducer, *partitions: TopicPartition) -> Awaitable[None]:
        command = AddPartitions(
            transactional_id="x",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            partitions=frozenset(partitions or {T_0}),
        )
        return self.coordinator.add_partitions(command)

    def ending(self, producer: TransactionalProducer, *, commit: bool = True) -> Awaitable[Ended]:
        command = EndTransaction(
            transactional_id="x",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            commit=commit,
        )
        return self.coordinator.end(command, WAIT_S)

    def state(self) -> TransactionStatus:
        ((_, value),) = self.coordinator.own_transactions("", 2)
        return value.state


def check_that_no_marker_comes_before_its_decision_is_replicated(bench: Bench) -> None:
    """Otherwise one partition could commit what a later coordinator, without that decision, aborts."""
    producer = bench.init()
    bench.run(bench.adding(producer))
    ending = bench.start(bench.ending(producer))
    bench.rig.rest(1)
    assert not ending.done()
    assert bench.link.asked == 0, "a marker before the decision is durable"
    bench.copied()
    bench.settle()
    assert ending.result().was_open
    ((node, marker),) = bench.link.written
    assert (node, marker.partition, marker.marker.commit) == (ME, T_0, True)
    assert marker.producer_epoch == producer.producer_epoch + 1
    assert bench.state() is TransactionStatus.COMPLETE_COMMIT
