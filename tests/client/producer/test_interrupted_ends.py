"""Ctrl-C while the synchronous producer closes, or commits in `with producer.transaction()`: what it cancels has ended,
and is cleaned up, before KeyboardInterrupt is raised.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from streamlog.client import Producer
from streamlog.client.transactions.transaction_manager import TransactionManager, TransactionPhase

pytestmark = pytest.mark.timeout(120)


async def interrupted(*_: object, **__: object) -> Any:
    """Signals interrupt the main thread, which waits for this."""
    signal.raise_signal(signal.SIGINT)
    await asyncio.Event().wait()


async def turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def test_a_close(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    producer = Producer(bootstrap_servers="127.0.0.1:1")
    connections = producer._client._connections
    close = connections.close

    async def slow() -> None:
        await turns()
        await close()
        ended.append("closed")

    monkeypatch.setattr(producer._client._flushing, "settle", interrupted)
    monkeypatch.setattr(connections, "close", slow)
    with pytest.raises(KeyboardInterrupt):
        producer.close()
    assert ended == ["closed"]
    assert producer._thread.closed


@pytest.fixture
def producer(streamlog_cluster: Any) -> Iterator[Producer]:
    streamlog_cluster.create_topic("t")
    with Producer(bootstrap_servers=streamlog_cluster.bootstrap_servers, transactional_id="x") as one:
        yield one


def manager(producer: Producer) -> TransactionManager:
    found = producer._client._transactions
    assert found is not None
    return found


def test_a_commit_whose_records_are_not_written_yet(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager(producer), "_settle", interrupted)
    with pytest.raises(KeyboardInterrupt), producer.transaction():
        producer.send("t", b"aborted")
    monkeypatch.undo()
    assert manager(producer).state is TransactionPhase.READY
    with producer.transaction():
        producer.send("t", b"committed")


def test_a_commit_that_has_not_begun(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    call = producer._thread.call_to_its_end

    def first_interrupted(work: Any) -> Any:
        monkeypatch.setattr(producer._thread, "call_to_its_end", call)
        work.close()
        raise KeyboardInterrupt

    def send() -> None:
        producer.send("t", b"aborted")
        monkeypatch.setattr(producer._thread, "call_to_its_end", first_interrupted)

    with pytest.raises(KeyboardInterrupt), producer.transaction():
        send()
    assert manager(producer).state is TransactionPhase.READY


def test_a_transaction_that_has_just_begun(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = manager(producer).begin

    async def begun() -> None:
        await begin()
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(manager(producer), "begin", begun)
    with pytest.raises(KeyboardInterrupt), producer.transaction():
        producer.send("t", b"aborted")  # where the interrupt came only now
    assert manager(producer).state is TransactionPhase.READY


def test_a_commit_that_the_coordinator_may_have_decided(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager(producer), "_request_end", interrupted)
    with pytest.raises(KeyboardInterrupt), producer.transaction():
        producer.send("t", b"committed")
    monkeypatch.undo()
    only = r"being committed; it may be committed already, so nothing but another commit ends it\)$"
    for refused, why in (
        (producer.begin_transaction, "the previous transaction has not ended"),
        (producer.abort_transaction, "there is no transaction that can be aborted"),
    ):
        with pytest.raises(Exception, match=rf"^{why} \(.*{only}"):
            refused()
    producer.commit_transaction()
    with producer.transaction():
        producer.send("t", b"next")
