"""The states of a producer's transactions, and whom it asks to end them."""

from __future__ import annotations

import asyncio
import random
from typing import cast

import pytest

from streamlog.api.calls import Message, Response, UnaryCall
from streamlog.api.pb import batches_pb2, common_pb2
from streamlog.api.pb import transactions_pb2 as pb
from streamlog.client.connection.backoff import Backoff
from streamlog.client.producer.batches.wire_batch import ProducerIdAndEpoch
from streamlog.client.producer.threaded_producer import ThreadedProducer
from streamlog.client.transactions.transaction_manager import TransactionManager, TransactionPhase, TransactionRules
from streamlog.errors import InvalidTransactionStateError, NetworkError, StreamlogError
from streamlog.model import ProducerEpoch
from streamlog.sim import SimLoop, run
from streamlog.sim.clock import SimClock

from ..stage import Stage, play

ANY = "any"
RULES = TransactionRules(transactional_id="x", timeout_ms=60_000, two_phase=False, call_timeout_s=60, attempt_s=30)


class FakeNodes:
    """Node 2 coordinates."""

    def __init__(self) -> None:
        self.ended_at: list[str] = []
        self.fails_with: list[StreamlogError] = []

    async def ask(self, call: UnaryCall[Response], request: Message, *, address: str, timeout_s: float) -> Response:
        if isinstance(request, batches_pb2.InitProducerIdRequest):
            return cast(Response, batches_pb2.InitProducerIdResponse(producer_id=7, producer_epoch=0))
        assert isinstance(request, pb.EndTransactionRequest)
        self.ended_at.append(address)
        if self.fails_with:
            raise self.fails_with.pop(0)
        answer = pb.EndTransactionResponse(
            producer_id=7,
            producer_epoch=request.producer_epoch + 1,
            coordinator=common_pb2.Node(node_id=2, host="n2", port=9092),
        )
        return cast(Response, answer)

    async def ask_any(self, call: UnaryCall[Response], request: Message, *, timeout_s: float) -> Response:
        return await self.ask(call, request, address=ANY, timeout_s=timeout_s)


def test_a_commit_that_was_cancelled_leaves_commit_and_abort() -> None:
    async def story(loop: SimLoop) -> None:
        nodes, written = FakeNodes(), asyncio.Event()

        async def settle() -> None:
            await written.wait()

        transactions = TransactionManager(
            RULES,
            nodes,
            SimClock(loop),
            Backoff(random.Random(1)),
            settle=settle,
            drop=lambda _: None,
            on_state=lambda *_: None,
        )
        for end in (transactions.commit, transactions.abort):
            await transactions.begin()
            transactions.touch()
            committing = asyncio.ensure_future(transactions.commit())
            await asyncio.sleep(1)
            committing.cancel()
            await asyncio.gather(committing, return_exceptions=True)
            with pytest.raises(InvalidTransactionStateError, match="ends when its records are written"):
                transactions.check_open()
            ended = asyncio.ensure_future(end())
            await asyncio.sleep(1)
            written.set()
            await ended
            written.clear()
            assert transactions.state is TransactionPhase.READY
        assert len(nodes.ended_at) == 2

    run(story, seed=1)


def test_the_coordinator_is_asked_directly_once_it_is_known_and_any_node_where_it_does_not_answer() -> None:
    async def story(loop: SimLoop) -> None:
        nodes = FakeNodes()

        async def settle() -> None:
            """Nothing is on its way."""

        transactions = TransactionManager(
            RULES,
            nodes,
            SimClock(loop),
            Backoff(random.Random(1)),
            settle=settle,
            drop=lambda _: None,
            on_state=lambda *_: None,
        )

        async def one() -> None:
            await transactions.begin()
            transactions.touch()
            await transactions.commit()

        await one()
        await one()
        assert nodes.ended_at == [ANY, "n2:9092"]
        nodes.fails_with = [NetworkError("gone")]
        await one()
        assert nodes.ended_at[2:] == ["n2:9092", ANY]
        await one()
        assert nodes.ended_at[4:] == ["n2:9092"]

    run(story, seed=1)


class Ends:
    """What is sent to the coordinator instead of EndTransaction."""

    def __init__(self, transactions: TransactionManager) -> None:
        self._transactions = transactions
        self.commits: list[bool] = []

    async def end(self, *, commit: bool) -> ProducerIdAndEpoch:
        self.commits.append(commit)
        identity = self._transactions._identity
        return identity._replace(epoch=ProducerEpoch(identity.epoch + 1))


def test_an_abort_drops_what_another_thread_has_just_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t", 1)
        config = {"bootstrap.servers": stage.cluster.bootstrap, "transactional.id": "x"}
        async with ThreadedProducer(config, None, None, ports=stage.ports) as producer:
            transactions = producer._transactions
            assert transactions is not None
            ends = Ends(transactions)
            monkeypatch.setattr(transactions, "_request_end", ends.end)
            await producer.begin_transaction()
            await producer.partition_count("t")
            sent = producer.send_here("t", b"aborted", None, (), None, None)  # the loop does not know of its batch yet
            await producer.abort_transaction()
            assert ends.commits == [False]
            assert isinstance(sent.exception(), InvalidTransactionStateError)
            await producer.begin_transaction()
            producer.send_here("t", b"committed", None, (), None, None)
            await producer.commit_transaction()
            assert ends.commits == [False, True]
        assert log.values() == [b"committed"]

    play(story)
