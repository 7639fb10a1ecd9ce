"""Programs that write in transactions: by the client library, and by raw messages of PublishStream."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import Final, Protocol

from msgspec import Struct

from streamlog.api import calls
from streamlog.api.pb import groups_pb2, transactions_pb2
from streamlog.api.pb import records_pb2 as pb
from streamlog.client.producer.async_producer import AsyncProducer
from streamlog.errors import ProducerFencedError, RequestTimedOutError, StreamlogError
from streamlog.model import TopicPartition
from streamlog.ports import Ports

from .transaction_ledger import Ledger, Outcome, Transaction
from .transaction_plan import NODES, WriterPlan

RECORDS_MAX: Final = 6
ANSWER_S: Final = 8.0
CONTRADICTION_CHANCE: Final = 0.3
SLOW_CHANCE: Final = 0.05
REST_CHANCE: Final = 0.05
RESTS_S: Final = 2.0
"""At most: longer than the second after which what was opened with the end before is taken back."""
_PUBLISH: Final = "streamlog.v1.Records/PublishStream"
_END: Final = calls.unary("streamlog.v1.Transactions/EndTransaction", transactions_pb2.EndTransactionResponse)
_OUTCOMES: Final = {
    pb.TRANSACTION_OUTCOME_COMMITTED: Outcome.COMMITTED,
    pb.TRANSACTION_OUTCOME_ABORTED: Outcome.ABORTED,
}


class Stage(Struct, frozen=True, kw_only=True):
    """What a writer works with."""

    plan: WriterPlan
    ports: Ports
    servers: Sequence[str]
    partitions: Sequence[TopicPartition]  # the first one is what groups have read
    ledger: Ledger
    rng: random.Random
    errors: Counter[str]

    async def dawdle(self) -> None:
        """Now and then beyond the time-out."""
        if self.rng.random() < SLOW_CHANCE:
            await asyncio.sleep(self.rng.uniform(0, 2 * self.plan.timeout_ms / 1000))

    async def rest(self) -> None:
        """Between two transactions."""
        await asyncio.sleep(self.rng.uniform(0, RESTS_S if self.rng.random() < REST_CHANCE else 0.1))


class Writer(Protocol):
    async def work(self, count: int | None = None) -> None:
        """One transaction after another, for ever or until so many are committed. ProducerFencedError: another program
        has the id.
        """
        ...


def make_writer(stage: Stage) -> Writer:
    return StreamWriter(stage) if stage.plan.by_stream else LibraryWriter(stage)


class LibraryWriter:
    """AsyncProducer. Another producer of the same identity may ask for the other end at about the same time."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._others: list[asyncio.Future[None]] = []

    async def work(self, count: int | None = None) -> None:
        stage, done = self._stage, 0
        producer = AsyncProducer(
            bootstrap_servers=",".join(stage.servers),
            transactional_id=stage.plan.name,
            transaction_timeout_ms=stage.plan.timeout_ms,
            request_timeout_ms=1_500,
            delivery_timeout_ms=3_000,
            max_block_ms=6_000,
            retry_backoff_max_ms=300,
            ports=stage.ports,
        )
        try:
            async with producer:
                while count is None or done < count:
                    try:
                        done += await self._one(producer, calm=count is not None)
                    except RequestTimedOutError as error:
                        stage.errors[error.code] += 1  # no coordinator: the next transaction begins later
                    await stage.rest()
        finally:
            if self._others:
                await asyncio.wait(self._others)

    async def _one(self, producer: AsyncProducer, *, calm: bool) -> bool:
        """Whether it was committed."""
        stage, rng = self._stage, self._stage.rng
        await producer.begin_transaction()
        one = stage.ledger.begin(stage.plan.name)
        try:
            await self._write(producer, one, calm=calm)
        except StreamlogError as error:
            stage.errors[error.code] += 1
            await self._abort(producer, one)
            return False
        if not calm and rng.random() < stage.plan.abort_chance:
            await self._abort(producer, one)
            return False
        one.outcome = Outcome.UNKNOWN
        if not calm and rng.random() < CONTRADICTION_CHANCE:
            self._others.append(asyncio.ensure_future(self._contradict(producer)))
        return await self._commit(producer, one)

    async def _commit(self, producer: AsyncProducer, one: Transaction) -> bool:
        while True:
            try:
                await producer.commit_transaction()
            except RequestTimedOutError as error:
                self._stage.errors[error.code] += 1  # not known: asked again
            except StreamlogError as error:
                self._stage.errors[error.code] += 1
                await self._abort(producer, one)  # only if this is possible it is certain that it was not committed
                return False
            else:
                self._stage.ledger.decide(one, Outcome.COMMITTED)
                return True

    async def _abort(self, producer: AsyncProducer, one: Transaction) -> None:
        while True:
            try:
                await producer.abort_transaction()
            except RequestTimedOutError:
                continue
            self._stage.ledger.decide(one, Outcome.ABORTED)
            return

    async def _write(self, producer: AsyncProducer, one: Transaction, *, calm: bool) -> None:
        stage, rng = self._stage, self._stage.rng
        for _ in range(rng.randint(1, RECORDS_MAX)):
            partition = rng.choice(stage.partitions)
            producer.send(partition.topic, one.next_value(), partition=partition.partition)
            if rng.random() < 0.3:
                await producer.flush()
            if not calm:
                await stage.dawdle()
        if rng.random() < stage.plan.offset_chance:
            one.offset = one.number
            await producer.send_offsets({stage.partitions[0]: one.offset}, stage.plan.name)

    async def _contradict(self, producer: AsyncProducer) -> None:
        stage = self._stage
        identity = producer._required()._identity
        request = transactions_pb2.EndTransactionRequest(
            transactional_id=stage.plan.name,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            commit=False,
        )
        await asyncio.sleep(stage.rng.uniform(0, 0.1))
        channel = stage.ports.network.connect(stage.rng.choice(stage.servers))
        try:
            await _END(channel, request, timeout_s=2.0)
        except StreamlogError as error:
            stage.errors[f"contradiction {error.code}"] += 1
        finally:
            await channel.close()


class StreamWriter:
    """Raw messages of PublishStream, at any node; what was not answered is asked after by the token."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._token = b""  # names the transaction that is open, or the next one
        self._open: Transaction | None = None
        self._left: int | None = None

    async def work(self, count: int | None = None) -> None:
        stage = self._stage
        self._left = count
        while self._left != 0:
            channel = stage.ports.network.connect(stage.rng.choice(stage.servers))
            try:
                async with calls.stream(channel, _PUBLISH, pb.PublishStreamResponse) as stream:
                    await self._go_on(stream)
            except ProducerFencedError:
                raise
            except (StreamlogError, TimeoutError) as error:
                stage.errors[error.code if isinstance(error, StreamlogError) else "no answer"] += 1
            finally:
                await channel.close()
            await asyncio.sleep(stage.rng.uniform(0, 0.2))

    async def _go_on(self, stream: calls.CallStream[pb.PublishStreamResponse]) -> None:
        plan, rng = self._stage.plan, self._stage.rng
        transactional = pb.TransactionalWriter(transactional_id=plan.name, timeout_ms=plan.timeout_ms)
        options = pb.PublishOptions(timeout_ms=3_000)
        await stream.send(
            pb.PublishStreamRequest(transactional=transactional, producer_token=self._token, options=options)
        )
        begun = await self._answer(stream)
        if self._open is not None and begun.former_outcome:
            self._stage.ledger.decide(self._open, _OUTCOMES[begun.former_outcome])
        self._open = None
        while self._left != 0:
            await self._one(stream)
            if self._left is None and rng.random() < 0.1:
                return  # another stream goes on, at another node
            await self._stage.rest()

    async def _one(self, stream: calls.CallStream[pb.PublishStreamResponse]) -> None:
        stage, plan, rng = self._stage, self._stage.plan, self._stage.rng
        one = self._open = stage.ledger.begin(plan.name)
        waiting = 0
        for _ in range(rng.randint(1, RECORDS_MAX)):
            partition = rng.choice(stage.partitions)
            record = pb.PublishRecord(value=one.next_value(), partition=partition.partition)
            await stream.send(pb.PublishStreamRequest(topic=partition.topic, records=[record]))
            waiting += 1
            while waiting and rng.random() < 0.4:
                await self._answer(stream)
                waiting -= 1
            if self._left is None:
                await stage.dawdle()
        end = pb.PublishStreamRequest(end=pb.TRANSACTION_END_COMMIT)
        if self._left is None and rng.random() < plan.abort_chance:
            end.end = pb.TRANSACTION_END_ABORT
        if rng.random() < plan.offset_chance:
            one.offset, first = one.number, stage.partitions[0]
            place = groups_pb2.OffsetToCommit(topic=first.topic, partition=first.partition, offset=one.offset)
            end.offsets.add(group=plan.name, offsets=[place])
        if end.end == pb.TRANSACTION_END_COMMIT:
            one.outcome = Outcome.UNKNOWN
        await stream.send(end)
        for _ in range(waiting):
            await self._answer(stream)
        response = await self._answer(stream)
        stage.ledger.decide(one, _OUTCOMES[response.outcome])
        self._open = None
        if self._left is not None and one.outcome is Outcome.COMMITTED:
            self._left -= 1

    async def _answer(self, stream: calls.CallStream[pb.PublishStreamResponse]) -> pb.PublishStreamResponse:
        async with asyncio.timeout(ANSWER_S):
            answer = await stream.recv()
        if answer is None:
            raise RequestTimedOutError("the stream has ended")
        self._token = answer.producer_token
        for result in answer.results:
            if result.HasField("error"):
                self._stage.errors[result.error.code] += 1
        return answer


def addresses() -> list[str]:
    return [f"{name}:9092" for name in NODES]
