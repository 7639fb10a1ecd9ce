"""The clients as users have them: real nodes over loopback, real ports, asynchronous and synchronous."""

from __future__ import annotations

import inspect
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from streamlog.client import (
    EARLIEST,
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    Producer,
    RecordFuture,
)
from streamlog.errors import ClientClosedError, InvalidConfigError, RequestTimedOutError, UnknownTopicOrPartitionError

pytestmark = pytest.mark.timeout(120)


def lines(count: int) -> list[bytes]:
    return [b"line %d" % number for number in range(count)]


@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_asynchronous(streamlog_cluster: Any, codec: str) -> None:
    streamlog_cluster.create_topic("t", partitions=3)
    servers = streamlog_cluster.bootstrap_servers
    async with AsyncProducer(bootstrap_servers=servers, compression_type=codec) as producer:
        sent = [producer.send("t", line, key=b"%d" % (number % 7)) for number, line in enumerate(lines(1000))]
        places = [await future for future in sent]
        many = await (await producer.send_many("t", lines(5000)))
    assert sum(part.record_count for part in many) == 5000
    async with AsyncConsumer({"bootstrap.servers": servers}) as consumer:
        await consumer.assign_topics(["t"], start=EARLIEST)
        found = {}
        async for record in consumer:
            found[record.partition, record.offset] = record.value
            if len(found) == 6000:
                break
        assert [found[place.partition, place.offset] for place in places] == lines(1000)
        ends = await consumer.end_offsets([("t", number) for number in range(3)])
        assert sum(ends.values()) == 6000


def test_a_commit_without_a_group_in_a_loop(streamlog_cluster: Any) -> None:
    servers = streamlog_cluster.bootstrap_servers
    streamlog_cluster.create_topic("t")
    with Producer(bootstrap_servers=servers) as producer:
        producer.send_many("t", lines(10)).result(30)
    with Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign_topics(["t"], start=EARLIEST)
        next(iter(consumer))
        with pytest.raises(InvalidConfigError, match=r"set group\.id"):
            consumer.commit()


def test_synchronous(streamlog_cluster: Any) -> None:
    servers = streamlog_cluster.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic("t", partitions=2)
    called: list[RecordFuture] = []
    with Producer(bootstrap_servers=servers, linger_ms=1) as producer:
        first = producer.send("t", b"first", partition=0)
        assert first.result(30).offset == 0
        producer.send("t", b"second", partition=0).add_done_callback(called.append)
        sent = [producer.send("t", line, partition=1) for line in lines(2000)]
        producer.flush()
        assert [one.result().offset for one in sent] == list(range(2000))
        assert sum(part.record_count for part in producer.send_many("t", lines(100), partition=0).result(30)) == 100
        assert [future.result().offset for future in called] == [1]
    with pytest.raises(ClientClosedError):
        producer.send("t", b"late")
    with Consumer(bootstrap_servers=servers, max_poll_records=300) as consumer:
        consumer.assign([("t", 1)], start=0)
        got = []
        for record in consumer:
            got.append(record.value)
            assert consumer.position(("t", 1)) == record.offset + 1
            if len(got) == 450:
                break
        got += [record.value for record in consumer.poll(10, timeout_s=30)]
        batch = consumer.poll_batch(timeout_s=30)
        assert batch is not None
        assert batch.first_offset == 460
        got += [record.value for record in batch.records()]
        while len(got) < 2000:
            got += [record.value for record in consumer.poll(timeout_s=30)]
        assert got == lines(2000)
        assert consumer.poll(timeout_s=0.05) == []
        consumer.seek(("t", 1), 1999)
        assert [record.value for record in consumer.poll(timeout_s=30)] == [b"line 1999"]


def test_a_member_of_a_group_without_an_event_loop(streamlog_cluster: Any) -> None:
    streamlog_cluster.create_topic("t", partitions=2)
    servers = streamlog_cluster.bootstrap_servers
    with Producer(bootstrap_servers=servers) as producer:
        for partition in range(2):
            producer.send_many("t", lines(1000), partition=partition).result(30)
    calls: list[tuple[str, int, str]] = []

    def consumer(**settings: Any) -> Consumer:
        return Consumer(bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest", **settings)

    def note(what: str) -> Any:
        return lambda partitions: calls.append((what, len(partitions), threading.current_thread().name))

    with consumer(max_poll_records=100) as first:

        def revoked(partitions: Any) -> None:
            note("revoked")(partitions)
            first.commit()

        first.subscribe(["t"], on_assigned=note("assigned"), on_revoked=revoked)
        for got, record in enumerate(first, start=1):
            if got == 150:
                first.commit()
                assert sum(at.offset for at in first.committed([("t", 0), ("t", 1)]).values() if at is not None) == 150
                first.commit(record)
            if got == 250:
                break
        assert first.member_epoch == 1
        first.commit_async().result(30)
        assert calls == [("assigned", 2, "MainThread")]
    assert calls[1:] == [("revoked", 2, "MainThread")]
    with consumer(enable_auto_commit=False) as second:
        second.subscribe(["t"])
        assert len(second.subscription) == 1
        some = second.poll(10, timeout_s=30)
        assert {record.offset for record in some} <= set(range(1000))
        places = second.committed([("t", 0), ("t", 1)])
        assert sum(at.offset for at in places.values() if at is not None) == 250
        second.unsubscribe()
        assert second.member_id is None
    with Admin(bootstrap_servers=servers) as admin:
        assert sum(one.lag or 0 for one in admin.group_lag("g")) == 1750


def test_what_a_listener_raises_reaches_the_poll(streamlog_cluster: Any) -> None:
    streamlog_cluster.create_topic("t")

    def fail(_partitions: Any) -> None:
        raise ZeroDivisionError

    with Consumer(bootstrap_servers=streamlog_cluster.bootstrap_servers, group_id="g") as consumer:
        consumer.subscribe(["t"], on_assigned=fail)
        with pytest.raises(ZeroDivisionError):
            consumer.poll(timeout_s=30)


def test_an_error_in_a_loop_commits_what_came_before(streamlog_cluster: Any) -> None:
    streamlog_cluster.create_topic("t")
    servers = streamlog_cluster.bootstrap_servers
    with Producer(bootstrap_servers=servers) as producer:
        producer.send_many("t", lines(100)).result(30)

    def read() -> None:
        with Consumer(bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            for record in consumer:
                if record.offset == 41:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        read()
    with Admin(bootstrap_servers=servers) as admin:
        (at,) = admin.list_group_offsets("g").values()
        assert at.offset == 41


@pytest.mark.parametrize(
    ("takes", "read"),
    [
        ("take", lambda consumer: consumer.poll(timeout_s=30)),
        ("take", lambda consumer: next(iter(consumer))),
        ("take_batch", lambda consumer: consumer.poll_batch(timeout_s=30)),
        ("take_batch", lambda consumer: consumer.poll_batches({("t", 0): 100}, bytes_max=1 << 20, timeout_s=30)),
    ],
    ids=["poll", "loop", "poll_batch", "poll_batches"],
)
def test_what_an_interrupted_call_has_taken_is_read_again(
    streamlog_cluster: Any, monkeypatch: pytest.MonkeyPatch, takes: str, read: Callable[[Consumer], object]
) -> None:
    servers = streamlog_cluster.bootstrap_servers
    streamlog_cluster.create_topic("t")
    with Producer(bootstrap_servers=servers) as producer:
        producer.send_many("t", lines(100)).result(30)
    with Consumer(bootstrap_servers=servers, group_id="g") as consumer:
        consumer.assign([("t", 0)], start=EARLIEST)
        assert len(consumer.poll(10, timeout_s=30)) == 10
        reader = consumer._client._reader
        take = getattr(reader, takes)

        def interrupted(*args: Any) -> Any:
            taken = take(*args)
            signal.raise_signal(signal.SIGINT)  # in the main thread, which waits for what was taken
            return taken

        monkeypatch.setattr(reader, takes, interrupted)
        with pytest.raises(KeyboardInterrupt):
            read(consumer)
        monkeypatch.undo()
        assert consumer.position(("t", 0)) == 10
        consumer.commit()
        assert [at.offset for at in consumer.committed([("t", 0)]).values() if at is not None] == [10]
        assert [record.offset for record in consumer.poll(2, timeout_s=30)] == [10, 11]


def test_many_threads_share_a_producer(streamlog_cluster: Any) -> None:
    streamlog_cluster.create_topic("t", partitions=4)
    servers = streamlog_cluster.bootstrap_servers
    with Producer(bootstrap_servers=servers, linger_ms=1, buffer_memory=300_000, max_request_size=200_000) as producer:

        def write(partition: int) -> None:
            for line in lines(5000):
                producer.send("t", line, partition=partition)

        threads = [threading.Thread(target=write, args=(partition,)) for partition in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign_topics(["t"], start=EARLIEST)
        got: dict[int, list[bytes | None]] = {partition: [] for partition in range(4)}
        while sum(map(len, got.values())) < 20_000:
            for record in consumer.poll(5000, timeout_s=30):
                got[record.partition].append(record.value)
    assert list(got.values()) == [lines(5000)] * 4


def test_many_threads_close_a_client(streamlog_cluster: Any) -> None:
    streamlog_cluster.create_topic("t")
    servers = streamlog_cluster.bootstrap_servers
    producer, admin = Producer(bootstrap_servers=servers, linger_ms=60_000), Admin(bootstrap_servers=servers)
    sent = [producer.send("t", b"x" * 200) for _ in range(20_000)]

    def close() -> bool:
        producer.close()
        admin.close()
        return sent[-1].done()

    with ThreadPoolExecutor(4) as threads:
        closing = [threads.submit(close) for _ in range(4)]
    assert [one.result() for one in closing] == [True] * 4
    assert sorted(one.result().offset for one in sent) == list(range(20_000))


def test_errors_reach_the_caller(streamlog_cluster: Any) -> None:
    servers = streamlog_cluster.bootstrap_servers
    with Producer(bootstrap_servers=servers) as producer, pytest.raises(UnknownTopicOrPartitionError, match="nope"):
        producer.send("nope", b"x").result(30)
    with Consumer(bootstrap_servers=servers) as consumer, pytest.raises(UnknownTopicOrPartitionError, match="nope"):
        consumer.assign([("nope", 0)])


@pytest.mark.parametrize("front", [Producer, Consumer, Admin])
def test_one_that_cannot_be_made_leaves_no_thread(front: Callable[..., object], tmp_path: Path) -> None:
    before = set(threading.enumerate())
    path = tmp_path / "ca.pem"
    path.write_text("no certificate")
    with pytest.raises(InvalidConfigError):
        front(bootstrap_servers="127.0.0.1:1", security_protocol="SSL", ssl_truststore_location=str(path))
    assert set(threading.enumerate()) <= before


def test_nobody_listens() -> None:
    producer = Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=300)
    with pytest.raises(RequestTimedOutError, match=r"no node answered within 0\.3 s: .*connection refused"):
        producer.send("t", b"x").result(30)
    producer.close(timeout_s=0)
    with pytest.raises(ClientClosedError):
        producer.send("t", b"x")


@pytest.mark.parametrize(
    ("front", "client"), [(Producer, AsyncProducer), (Consumer, AsyncConsumer), (Admin, AsyncAdmin)]
)
def test_a_front_has_what_its_client_has(front: type, client: type) -> None:
    names = {name for name, _ in inspect.getmembers(client) if not name.startswith("_")}
    # The producer's front waits for space by itself, in `send`; `connection.unclosed` sees the client alone.
    assert names - {"start", "is_full", "wait_until_room", "enqueue"} == {
        name for name, _ in inspect.getmembers(front) if not name.startswith("_")
    }
