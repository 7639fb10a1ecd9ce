"""What clients record, over a log that needs no cluster and answers as scripted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from msgspec import Struct, field

from streamlog.errors import MessageTooLargeError, OutcomeUnknownError, StreamlogError
from streamlog.model import Offset, PartitionId, TopicPartition
from streamlog.sim import SimLoop, run
from streamlog.sim.history import OperationHistory, Outcome
from streamlog.sim.process import Process

from ..checking.checks import key_of
from ..checking.watch import Watch
from ..plan import Load
from .workload import Consumer, Polled, Producer, Target, slow_or_unanswered

T = TypeVar("T")

PROCESS = Process("n1")

ONE = Target(partition=TopicPartition("plain", PartitionId(0)), keyed=False, min_insync_replicas=0)
TWO = Target(partition=TopicPartition("keyed", PartitionId(1)), keyed=True, min_insync_replicas=0)
LOAD = Load(producers=1, sends_per_s=20.0, burst_chance=0.2, value_bytes_max=100, consumers=1, producer={}, consumer={})


class FakeLog(Struct):
    """Appends at once and answers after a moment; `refuses` names the error of a record, if it is to have one."""

    refuses: Callable[[bytes], StreamlogError | None] = lambda value: None
    delay_s: float = 0.01
    records: list[Polled] = field(default_factory=list)
    closed: int = 0
    polled: int = 0

    async def send(self, partition: TopicPartition, key: bytes | None, value: bytes) -> Awaitable[Offset]:
        error = self.refuses(value)
        if isinstance(error, MessageTooLargeError):
            raise error
        offset = Offset(sum(record.partition == partition for record in self.records))
        self.records.append(Polled(partition, offset, value))
        return self._answer(offset, error)

    async def _answer(self, offset: Offset, error: StreamlogError | None) -> Offset:
        await asyncio.sleep(self.delay_s)
        if error is not None:
            raise error
        return offset

    async def poll(self) -> Sequence[Polled]:
        await asyncio.sleep(0.01)
        if self.polled == 3:
            self.polled += 1
            raise OutcomeUnknownError("once")
        found = self.records[self.polled : self.polled + 1]
        self.polled += len(found)
        return found

    async def close(self) -> None:
        self.closed += 1


def play(main: Callable[[SimLoop, OperationHistory, Watch], Coroutine[Any, Any, T]]) -> T:
    return run(lambda loop: main(loop, OperationHistory(lambda: loop.now), Watch()), seed=1)


def test_each_send_is_a_row_with_its_outcome() -> None:
    def refuses(value: bytes) -> StreamlogError | None:
        sequence = int(value.split(b"/")[1])
        if sequence % 10 == 3:
            return MessageTooLargeError("too large")
        return OutcomeUnknownError("the leader is gone") if sequence % 10 == 7 else None

    async def main(loop: SimLoop, history: OperationHistory, watch: Watch) -> None:
        log = FakeLog(refuses)
        producer = Producer("p0", log, history, watch, random.Random(1))
        sending = asyncio.create_task(producer.run([ONE, TWO], LOAD))
        await asyncio.sleep(5)
        producer.stopping = True
        await sending
        rows = list(history.rows)
        assert len(rows) > 50
        assert {row.outcome for row in rows} == set(Outcome)
        for row in rows:
            assert row.completed is not None
            assert row.value is not None
            assert row.sequence is not None
            wanted = {3: Outcome.FAIL, 7: Outcome.INFO}.get(row.sequence % 10, Outcome.OK)
            assert row.outcome is wanted, row
        assert len({row.value for row in rows}) == len(rows)
        for target in (ONE, TWO):
            mine = [row for row in rows if row.partition == target.partition]
            assert [row.sequence for row in mine] == list(range(len(mine)))
            assert all((key_of(row.value or b"") != b"") is target.keyed for row in mine)
        stands = {record.value: record.offset for record in log.records}
        assert all(stands[row.value] == row.offset for row in rows if row.outcome is Outcome.OK)

    play(main)


def test_a_consumer_records_what_it_is_given_and_goes_on_after_an_error() -> None:
    async def main(loop: SimLoop, history: OperationHistory, watch: Watch) -> None:
        log = FakeLog()
        producer = Producer("p0", log, history, watch, random.Random(1))
        for _ in range(8):
            await producer.send(ONE, 10)
        await producer.until_answered()
        consumer = Consumer("c0", log, history, watch)
        log.records.insert(3, Polled(ONE.partition, Offset(99), b"not given: the poll fails"))
        watch.high_watermark(PROCESS, ONE.partition, Offset(8))
        async with asyncio.timeout(5):
            await consumer.read_until([(ONE.partition, Offset(8))])
        assert [row.offset for row in history.select("poll")] == list(range(8))
        assert len(consumer.errors) == 1
        assert watch.violations == []

    play(main)


def test_what_a_calm_cluster_should_do_better() -> None:
    async def main(loop: SimLoop, history: OperationHistory, watch: Watch) -> None:
        slow = Producer("slow", FakeLog(delay_s=0.5), history, watch, random.Random(1))
        quick = Producer("quick", FakeLog(delay_s=0.1), history, watch, random.Random(1))
        rows = [await producer.send(ONE, 10) for producer in (slow, quick)]
        await asyncio.sleep(0.3)
        assert slow_or_unanswered(rows, 0.4) == [rows[0]]
        await slow.until_answered()
        assert slow_or_unanswered(rows, 0.4) == [rows[0]]
        assert slow_or_unanswered(rows, 1.0) == []

    play(main)
