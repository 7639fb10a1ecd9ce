"""Clients of the simulated cluster: they produce and consume as programs do, and record what came of it.

The clients' own library is seen through two small protocols (`nodes` has the adapters), so that what is recorded does
not depend on it. A producer sends without waiting for the answer of the record before; its sends are queued in order.

Whether an error means that a record was not written is seldom certain: only a refusal of the record itself is a FAIL,
all else is INFO.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from streamlog.errors import (
    InvalidRecordError,
    MessageTooLargeError,
    StreamlogError,
)
from streamlog.model import Offset, TopicPartition
from streamlog.sim.history import OperationHistory, Outcome, Row

from ..checking.checks import POLL, PRODUCE, value_of
from ..checking.watch import Watch
from ..plan import Load

REFUSED: Final = (InvalidRecordError, MessageTooLargeError)
"""Errors of a record that was never written. INVALID_TIMESTAMP is none: a retry is refused by another node's clock."""

KEYS: Final = 5
BURST: Final = 20
UNANSWERED_MAX: Final = 200
"""Sends of one producer without an answer: more, and it waits."""


class Polled(NamedTuple):
    partition: TopicPartition
    offset: Offset
    value: bytes | None


class Sender(Protocol):
    """An idempotent producer with acks=all."""

    async def send(self, partition: TopicPartition, key: bytes | None, value: bytes) -> Awaitable[Offset]:
        """Returns once the record is queued, behind all that were queued before. The answer: where it stands, or a
        StreamlogError.
        """
        ...

    async def close(self) -> None: ...


class Reader(Protocol):
    """A consumer of an assignment, from the beginning."""

    async def poll(self) -> Sequence[Polled]:
        """What comes next; nothing after a while in which nothing came. StreamlogError."""
        ...

    async def close(self) -> None: ...


class Target(Struct, frozen=True, kw_only=True):
    """A partition that is written to."""

    partition: TopicPartition
    keyed: bool
    min_insync_replicas: int


class Producer:
    """One process that sends. `rows` are its own, in order."""

    def __init__(self, name: str, sender: Sender, history: OperationHistory, watch: Watch, rng: random.Random) -> None:
        self.name = name
        self._sender = sender
        self._history = history
        self._watch = watch
        self._rng = rng
        self._sequences: dict[TopicPartition, int] = {}
        self._answering: dict[asyncio.Task[None], None] = {}
        self.stopping = False

    async def run(self, targets: Sequence[Target], load: Load) -> None:
        """Send until stopped, then wait for the answers."""
        while not self.stopping:
            count = BURST if self._rng.random() < load.burst_chance else 1
            for _ in range(count):
                await self.send(self._rng.choice(targets), self._rng.randint(0, load.value_bytes_max))
            await asyncio.sleep(self._rng.expovariate(load.sends_per_s))
            while len(self._answering) > UNANSWERED_MAX:
                await asyncio.wait(self._answering, return_when=asyncio.FIRST_COMPLETED)
        await self.until_answered()

    async def until_answered(self) -> None:
        while self._answering:
            await asyncio.wait(self._answering)

    async def send(self, target: Target, size_bytes: int) -> Row:
        """Returns once the record is queued; the row is closed when the answer comes."""
        sequence = self._sequences.get(target.partition, -1) + 1
        self._sequences[target.partition] = sequence
        key = b"k%d" % self._rng.randrange(KEYS) if target.keyed else None
        # Sequences count by partition, and so must what makes a value unique.
        process = f"{self.name}:{target.partition}"
        value = value_of(process, sequence, key, size_bytes=size_bytes)
        row = self._history.invoke(process, PRODUCE, partition=target.partition, sequence=sequence, value=value)
        try:
            answer = await self._sender.send(target.partition, key, value)
        except StreamlogError as error:
            self._failed(row, error)
            return row
        task = asyncio.get_running_loop().create_task(self._answered(row, answer, target))
        self._answering[task] = None
        task.add_done_callback(lambda task: self._answering.pop(task, None))
        return row

    async def _answered(self, row: Row, answer: Awaitable[Offset], target: Target) -> None:
        try:
            offset = await answer
        except StreamlogError as error:
            self._failed(row, error)
            return
        self._history.ok(row, offset=offset)
        self._watch.acknowledged(self.name, target.partition, offset, target.min_insync_replicas)

    def _failed(self, row: Row, error: StreamlogError) -> None:
        text = f"{error.code}: {error}"
        if isinstance(error, REFUSED):
            self._history.fail(row, text)
        else:
            self._history.info(row, text)

    async def close(self) -> None:
        await self._sender.close()


class Consumer:
    """One process that reads; its assignment never changes."""

    def __init__(self, name: str, reader: Reader, history: OperationHistory, watch: Watch) -> None:
        self.name = name
        self._reader = reader
        self._history = history
        self._watch = watch
        self.errors: list[StreamlogError] = []
        self.positions: dict[TopicPartition, Offset] = {}  # one past the last that it was given
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            await self.poll()

    async def poll(self) -> None:
        try:
            polled = await self._reader.poll()
        except StreamlogError as error:
            self.errors.append(error)
            await asyncio.sleep(0.1)
            return
        for record in polled:
            self._record(record)

    def _record(self, record: Polled) -> None:
        row = self._history.invoke(self.name, POLL, partition=record.partition, value=record.value)
        self._history.ok(row, offset=record.offset)
        self._watch.given(self.name, record.partition, record.offset)
        self.positions[record.partition] = Offset(record.offset + 1)

    async def read_until(self, ends: Iterable[tuple[TopicPartition, Offset]]) -> None:
        """Poll until it has been given everything below these."""
        wanted = dict(ends)
        while any(self.positions.get(partition, Offset(0)) < end for partition, end in wanted.items()):
            await self.poll()

    async def close(self) -> None:
        await self._reader.close()


def slow_or_unanswered(rows: Sequence[Row], within_s: float) -> list[Row]:
    """I19: those that a calm cluster should have done better with."""
    return [
        row
        for row in rows
        if row.outcome is not Outcome.OK or row.completed is None or row.completed - row.invoked > within_s
    ]
