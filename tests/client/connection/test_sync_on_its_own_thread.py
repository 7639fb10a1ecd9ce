"""A synchronous client that is used on its own thread: in a done callback, or by what the collector finalizes there."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from streamlog.client import Admin, Consumer, Producer
from streamlog.client.connection.sync_loop import LoopThread
from streamlog.errors import ClientClosedError, ThrottledError

pytestmark = pytest.mark.timeout(60)
NO_NODE = "127.0.0.1:1"


def on_its_thread(thread: LoopThread, work: Callable[[], object]) -> Future[object]:
    """As a done callback."""

    async def run() -> object:
        return work()

    return thread.begin(run())


@pytest.fixture
def producer() -> Iterator[Producer]:
    one = Producer(bootstrap_servers=NO_NODE)
    yield one
    one.close(timeout_s=0)


def test_a_method_that_waits_raises(producer: Producer) -> None:
    sent = producer.send("t", b"x")
    for work in (producer.flush, sent.result, sent.exception, lambda: producer.send_many("t", [b"x"])):
        with pytest.raises(RuntimeError, match="call it in another thread, or use the asynchronous client"):
            on_its_thread(producer._thread, work).result(30)
    consumer = Consumer(bootstrap_servers=NO_NODE)
    with pytest.raises(RuntimeError, match="would never return"):
        on_its_thread(consumer._thread, consumer.poll).result(30)
    consumer.close()


def test_send_does_not_wait_there(producer: Producer) -> None:
    def fill() -> None:
        while True:
            producer.send("t", bytes(1 << 20))

    with pytest.raises(ThrottledError, match=r"buffer\.memory"):
        on_its_thread(producer._thread, fill).result(30)


@pytest.mark.parametrize("front", [Admin, Consumer, Producer])
def test_close_begins_there_and_does_not_wait(front: Any) -> None:
    client = front(bootstrap_servers=NO_NODE)
    on_its_thread(client._thread, client.close).result(30)
    client._thread._thread.join(30)
    assert client._thread._loop.is_closed()
    client.close()
    if front is not Consumer:
        work = client.list_topics if front is Admin else client.flush
        with pytest.raises(ClientClosedError):
            work()


def test_close_of_another_thread_while_it_is_closed_there(producer: Producer) -> None:
    producer.send("t", b"x")
    on_its_thread(producer._thread, lambda: producer.close(timeout_s=0.1)).result(30)
    producer.close()
    assert producer._thread.closed


def test_a_second_close_there_shortens_the_first(producer: Producer) -> None:
    producer.send("t", b"x")
    on_its_thread(producer._thread, producer.close).result(30)
    on_its_thread(producer._thread, lambda: producer.close(timeout_s=0)).result(30)
    producer._thread._thread.join(30)
    assert producer._thread.closed


def test_a_generator_with_a_consumer_that_is_collected_there() -> None:
    def rows() -> Iterator[object]:
        with Consumer(bootstrap_servers=NO_NODE) as consumer:
            yield consumer._thread
            yield from consumer

    class Job:
        def __init__(self) -> None:
            self.rows, self.me = rows(), self

    job = Job()
    thread: Any = next(job.rows)
    gc.disable()
    try:
        del job
        assert on_its_thread(thread, gc.collect).result(30) != 0
        thread._thread.join(30)
    finally:
        gc.enable()
    assert thread.closed


def test_a_flush_in_a_done_callback_is_logged_as_its_failure(
    streamlog_cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    streamlog_cluster.create_topic("t")
    with Producer(bootstrap_servers=streamlog_cluster.bootstrap_servers) as producer:
        sent = producer.send("t", b"1")
        sent.add_done_callback(lambda _: producer.flush())
        sent.result(30)
        assert producer.send("t", b"2").result(30).partition >= 0
    assert "call it in another thread" in caplog.text
