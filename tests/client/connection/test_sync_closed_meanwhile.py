"""A thread that waits on a synchronous client's loop, while another one closes the client: the wait ends."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from concurrent.futures import Future
from threading import Event, Thread
from typing import Any, cast

import pytest

from streamlog.client import Producer
from streamlog.client.connection import sync_loop
from streamlog.client.connection.sync_loop import wait_on
from streamlog.client.producer.sent_records import SentRecord
from streamlog.errors import ClientClosedError, RequestTimedOutError


async def work() -> int:
    return 1


class Batch:
    """The promise of a record that is not acknowledged yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.done = False

    def outcome(self, index: int) -> str:
        return "written"


@pytest.fixture
def loop() -> asyncio.AbstractEventLoop:
    """Its thread has stopped it."""
    return asyncio.new_event_loop()


@pytest.fixture
def batch(loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> Batch:
    """The loop is closed when it has got work, which it does not run."""
    found = Batch(loop)
    submit = asyncio.run_coroutine_threadsafe

    def closed_then(one: Coroutine[Any, Any, Any], on: asyncio.AbstractEventLoop) -> Future[Any]:
        future = submit(one, on)
        on.close()
        return future

    monkeypatch.setattr(sync_loop, "LOOK_S", 0.001)
    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", closed_then)
    return found


def test_work_that_the_loop_does_not_run_any_more(batch: Batch) -> None:
    with pytest.raises(ClientClosedError, match="was closed meanwhile"):
        wait_on(batch.loop, work())


def test_work_that_is_no_coroutine_of_python(batch: Batch) -> None:
    """As uvloop's, which do not say whether they have begun."""

    class Work(Coroutine[Any, Any, int]):
        def send(self, _value: object) -> None: ...
        def throw(self, *_error: object) -> None: ...
        def close(self) -> None: ...
        def __await__(self) -> Any: ...

    with pytest.raises(ClientClosedError, match="was closed meanwhile"):
        wait_on(batch.loop, Work())


def test_work_for_a_loop_that_has_just_been_closed(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_loop, "_check", lambda on, _: on.close())
    with pytest.raises(ClientClosedError, match="the client is closed"):
        wait_on(loop, work())


def test_a_record_that_is_acknowledged_while_the_producer_is_closed(batch: Batch) -> None:
    record = SentRecord()
    record.promise, record.index = cast(Any, batch), 0
    with pytest.raises(ClientClosedError):
        record.result()

    loop = batch.loop = asyncio.new_event_loop()
    close = loop.close

    def acknowledge() -> None:
        batch.done = True
        close()

    cast(Any, loop).close = acknowledge
    assert cast(Any, record.result()) == "written"


def test_a_timeout_of_the_work_itself_is_raised() -> None:
    async def late() -> None:
        raise TimeoutError("of the work")

    thread = sync_loop.LoopThread("test")
    with pytest.raises(TimeoutError, match="of the work"):
        thread.call(late())
    thread.close()


pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_loop_that_a_callback_has_ended(
    ending: type[BaseException], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As SystemExit leaves `run_forever`."""
    monkeypatch.setattr(sync_loop, "LOOK_S", 0.001)

    def leave() -> None:
        raise ending

    async def never() -> None:
        thread._loop.call_soon(leave)
        await asyncio.Event().wait()

    for how in ("call", "call_in_front"):
        thread = sync_loop.LoopThread("test")
        with pytest.raises(ClientClosedError, match="was closed meanwhile"):
            getattr(thread, how)(never())
        thread._thread.join()
        assert thread.closed
        thread.close()
    assert f"{ending()!r}, raised on the thread of a client" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # its thread ends by it
def test_a_done_callback_that_exits_closes_the_producer(streamlog_cluster: Any) -> None:
    streamlog_cluster.create_topic("exits")
    producer = Producer(bootstrap_servers=streamlog_cluster.bootstrap_servers)
    producer.send("exits", b"x").add_done_callback(lambda _: sys.exit(1))
    producer._thread._thread.join()
    with pytest.raises(ClientClosedError):
        producer.flush(timeout_s=1)
    producer.close(timeout_s=1)


def test_a_close_in_another_thread_shortens_one_that_waits() -> None:
    producer = Producer(bootstrap_servers="127.0.0.1:1")
    waiting = producer.send("unknown", b"x")
    raised: list[BaseException | None] = []

    def close() -> None:
        with pytest.raises(RequestTimedOutError) as error:
            producer.close()
        raised.append(error.value)

    waits, settle = Event(), producer._client._flushing.settle

    async def noted() -> None:
        waits.set()
        await settle()

    producer._client._flushing.settle = noted  # type: ignore[method-assign]
    first = Thread(target=close)
    first.start()
    waits.wait()
    producer.close(timeout_s=0)
    first.join()
    assert raised
    with pytest.raises(ClientClosedError):
        waiting.result()
    producer.close(timeout_s=0)


def test_a_function_in_front_that_runs_while_the_client_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a listener, while another thread closes the consumer."""
    monkeypatch.setattr(sync_loop, "LOOK_S", 0.001)
    thread = sync_loop.LoopThread("test")

    def closed_by_another() -> None:
        thread._loop.call_soon_threadsafe(thread._loop.stop)
        thread._thread.join()

    with pytest.raises(ClientClosedError, match="was closed meanwhile"):
        thread.call_in_front(thread.in_front(closed_by_another))


def test_work_in_front_for_a_loop_that_has_just_been_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = sync_loop.LoopThread("test")
    thread.close()
    monkeypatch.setattr(sync_loop, "_check", lambda *_: None)
    with pytest.raises(ClientClosedError, match="the client is closed"):
        thread.call_in_front(work())


def test_what_a_client_has_begun_ends_with_it() -> None:
    """As `commit_async`."""
    seen: list[str] = []

    async def never() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            thread.stop()
            await asyncio.sleep(0)
            seen.append("ended")

    thread = sync_loop.LoopThread("test")
    begun = thread.begin(never())
    given_up = thread.begin(never())
    thread.call(work())
    given_up.cancel()
    thread.close()
    with pytest.raises(ClientClosedError, match="was closed meanwhile"):
        begun.result(30)
    assert seen == ["ended", "ended"]
