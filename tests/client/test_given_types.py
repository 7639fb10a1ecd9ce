"""What consumers and producers refuse because of its type, with a sentence that names it."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from streamlog.client import Admin, AsyncConsumer, AsyncProducer, Consumer, Producer
from streamlog.client.producer.partitioner import RoundRobinPartitioner
from streamlog.errors import InvalidConfigError, InvalidRequestError

pytestmark = pytest.mark.timeout(120)

T0 = ("t", 0)
TIMEOUT = "timeout_s must be a number of seconds or None, not '1' (str)"


async def refused(call: Callable[[], Any], message: str) -> None:
    async def called() -> None:
        answer = call()
        if inspect.isawaitable(answer):
            await answer
        elif isinstance(answer, Future):
            answer.result(30)

    with pytest.raises(InvalidRequestError, match=f"^{re.escape(message)}$") as raised:
        await called()
    assert message.startswith(str(raised.value.details["field"]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda one: one.poll(timeout_s="1"), TIMEOUT),
        (lambda one: one.poll_batch(timeout_s="1"), TIMEOUT),
        (lambda one: one.commit({T0: 5}, timeout_s="1"), TIMEOUT),
        (lambda one: one.committed([T0], timeout_s="1"), TIMEOUT),
        (lambda one: one.end_offsets([T0], timeout_s="1"), TIMEOUT),
        (lambda one: one.close(timeout_s="1"), TIMEOUT),
        (lambda one: one.commit("t"), "offsets must be a dict, not 't' (str)"),
        (lambda one: one.commit_async([T0]), "offsets must be a dict, not [('t', 0)] (list)"),
        (lambda one: one.offsets_for_times([T0]), "times must be a dict, not [('t', 0)] (list)"),
        (lambda one: one.subscribe(["t"], pattern=5), "pattern must be a str or None, not 5 (int)"),
        (lambda one: one.subscribe(["t"], on_assigned="f"), "on_assigned must be a function or None, not 'f' (str)"),
    ],
)
def test_a_consumer(call: Callable[[Any], Any], message: str) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:1", "group_id": "g"}

    async def scenario() -> None:
        for consumer in (AsyncConsumer(**settings), AsyncConsumer(**settings, value_deserializer=str)):
            await consumer.start()
            await refused(partial(call, consumer), message)
            await consumer.close(timeout_s=0)

    asyncio.run(scenario())
    consumer = Consumer(**settings)
    asyncio.run(refused(partial(call, consumer), message))
    consumer.close(timeout_s=0)


@pytest.mark.parametrize("method", ["flush", "close"])
def test_a_producer(method: str) -> None:
    one: Any = "1"

    async def scenario() -> None:
        async with AsyncProducer(bootstrap_servers="127.0.0.1:1") as producer:
            await refused(lambda: getattr(producer, method)(timeout_s=one), TIMEOUT)

    asyncio.run(scenario())
    with Producer(bootstrap_servers="127.0.0.1:1") as producer:
        asyncio.run(refused(lambda: getattr(producer, method)(timeout_s=one), TIMEOUT))


def test_offsets_in_a_transaction(streamlog_cluster: Any) -> None:
    with Producer(bootstrap_servers=streamlog_cluster.bootstrap_servers, transactional_id="x") as producer:
        send: Any = producer.send_offsets
        producer.begin_transaction()
        for given, group, message in (
            ([T0], "g", "offsets must be a dict, not [('t', 0)] (list)"),
            ({T0: 5}, 5, "group must be a str or a GroupMetadata, not 5 (int)"),
        ):
            with pytest.raises(InvalidRequestError, match=f"^{re.escape(message)}$"):
                send(given, group)
        producer.abort_transaction()


@pytest.fixture
def clients() -> Iterator[dict[str, Any]]:
    nowhere = "127.0.0.1:1"
    with Consumer(bootstrap_servers=nowhere) as one, Producer(bootstrap_servers=nowhere) as two:  # noqa: SIM117  too long
        with Admin(bootstrap_servers=nowhere) as three:
            yield {"consumer": one, "producer": two, "admin": three}


def test_arguments_that_are_missing_are_those_of_the_class_that_is_used(clients: dict[str, Any]) -> None:
    for client, method, message in (
        ("consumer", "committed", "Consumer.committed() missing 1 required positional argument: 'partitions'"),
        ("consumer", "lag", "Consumer.lag() missing 1 required positional argument: 'partition'"),
        ("producer", "partition_count", "Producer.partition_count() missing 1 required positional argument: 'topic'"),
        ("admin", "create_topic", "create_topic(): missing a required argument: 'name'"),
    ):
        with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
            getattr(clients[client], method)()


@pytest.mark.parametrize("given", ["random", RoundRobinPartitioner, 5])
def test_a_partitioner(given: Any) -> None:
    for kind in (Producer, AsyncProducer):
        with pytest.raises(InvalidConfigError, match=r"^partitioner must be an object with a method `partition` or"):
            kind(bootstrap_servers="127.0.0.1:1", partitioner=given)
