"""Programs that forget to close their producer: their records are written all the same, and a warning names it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamlog.client import Admin, Consumer, Producer
from streamlog.client.connection import unclosed
from streamlog.model import PartitionId, TopicPartition
from streamlog.pytest_plugin.cluster import InProcessCluster

pytestmark = pytest.mark.timeout(180)
ROOT = Path(__file__).parents[3]

SYNC = """
import sys
from streamlog.client import Producer

producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000, delivery_timeout_ms=200_000, **{settings})
for number in range(5):
    producer.send(sys.argv[2], b"%d" % number * {size})
{end}
"""

ASYNC = """
import asyncio, sys
from streamlog.client import AsyncProducer

async def main():
    producer = AsyncProducer(bootstrap_servers=sys.argv[1], linger_ms=60_000, delivery_timeout_ms=200_000, **{settings})
    await producer.start()
    {first}
    for number in range(5):
        producer.send(sys.argv[2], b"%d" % number * {size})
    {end}

{run}
"""
RUN = "asyncio.run(main())"
STOPPED = "loop = asyncio.new_event_loop(); loop.run_until_complete(main())"
KNOWN = "await producer.partition_count(sys.argv[2])"
LARGE = "dict(compression_type='gzip', batch_size=1 << 20)"

PROGRAMS = {
    "sync": SYNC.format(settings="{}", size=1, end=""),
    "sync-collected": SYNC.format(settings="{}", size=1, end="del producer"),
    "sync-exit": SYNC.format(settings="{}", size=1, end="sys.exit(0)"),
    "sync-compressed-by-workers": SYNC.format(settings=LARGE, size=60_000, end=""),
    "async": ASYNC.format(settings="{}", first="", size=1, end="", run=RUN),
    "async-topic-known": ASYNC.format(settings="{}", first=KNOWN, size=1, end="", run=RUN),
    "async-in-flight": ASYNC.format(
        settings="{}",
        first=KNOWN,
        size=1,
        end="asyncio.ensure_future(producer.flush())\n    await asyncio.sleep(0)",
        run=RUN,
    ),
    "async-compressed-by-workers": ASYNC.format(settings=LARGE, first=KNOWN, size=60_000, end="", run=RUN),
    "async-stopped-loop": ASYNC.format(settings="{}", first=KNOWN, size=1, end="", run=STOPPED),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    with InProcessCluster(tmp_path_factory.mktemp("streamlog"), nodes=1) as cluster:
        yield cluster


def run(program: str, *arguments: str, warnings: str = "default::ResourceWarning") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", warnings, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, check=False)


@pytest.mark.parametrize("name", PROGRAMS)
def test_records_of_a_producer_that_is_not_closed_are_written(cluster: InProcessCluster, name: str) -> None:
    cluster.create_topic(name, partitions=1)
    ended = run(PROGRAMS[name], cluster.bootstrap_servers, name)
    assert ended.returncode == 0, ended.stderr
    warning = f"producer of {cluster.bootstrap_servers} was not closed: its records are sent now"
    assert ended.stderr.count(warning) == 1, ended.stderr
    for noise in ("Task was destroyed", "GeneratorExit", "Traceback", "Exception ignored", "never awaited"):
        assert noise not in ended.stderr, ended.stderr
    assert written(cluster, name) == [b"0", b"1", b"2", b"3", b"4"]


def written(cluster: InProcessCluster, topic: str) -> list[bytes]:
    """The first bytes of five records."""
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, PartitionId(0))])
        found: list[bytes | None] = []
        while len(found) < 5:
            found += [record.value for record in consumer.poll(10)]
    return [value[:1] for value in found if value is not None]


@pytest.mark.parametrize("name", ["sync", "sync-collected", "async", "async-stopped-loop"])
def test_they_are_written_where_warnings_are_errors(cluster: InProcessCluster, name: str) -> None:
    topic = f"{name}-error"
    cluster.create_topic(topic, partitions=1)
    ended = run(PROGRAMS[name], cluster.bootstrap_servers, topic, warnings="error::ResourceWarning")
    assert f"ResourceWarning: producer of {cluster.bootstrap_servers} was not closed" in ended.stderr
    assert written(cluster, topic) == [b"0", b"1", b"2", b"3", b"4"]


def test_where_warnings_are_errors_each_client_is_closed() -> None:
    ended = run(MANY.format(flush_s=0.2, count=3), warnings="error")
    assert ended.stderr.count("RuntimeWarning: producer ") == 3, ended.stderr


CLOSED_LATE = """
import asyncio
from streamlog.client import AsyncProducer
from streamlog.client.connection import unclosed
unclosed.FLUSH_S = 0.1

async def work(open):
    async with AsyncProducer(bootstrap_servers="127.0.0.1:1") as producer:
        open.set()
        try:
            await asyncio.Event().wait()
        finally:
            while not producer._closing:
                await asyncio.sleep(0)

async def main():
    global kept
    open = asyncio.Event()
    kept = asyncio.create_task(work(open))
    await open.wait()

asyncio.run(main())
"""


def test_where_warnings_are_errors_a_task_that_closes_its_producer_late_ends() -> None:
    assert "was not closed" in run(CLOSED_LATE, warnings="error").stderr


def test_what_cannot_be_sent_is_reported() -> None:
    """The bound is shortened, as no node answers."""
    short = "from streamlog.client.connection import unclosed\nunclosed.FLUSH_S = 0.2\n"
    ended = run(short + SYNC.format(settings="dict(client_id='meter')", size=1, end=""), "127.0.0.1:1", "t")
    assert "producer 'meter' was not closed, and records that it held may be lost" in ended.stderr
    assert "Traceback" not in ended.stderr


MANY = """
import asyncio
from streamlog.client import AsyncProducer
from streamlog.client.connection import unclosed

unclosed.FLUSH_S = {flush_s}
kept = []

async def main():
    for number in range({count}):
        settings = {{"linger.ms": 60_000, "max.block.ms": 900_000, "client.id": f"p{{number}}"}}
        producer = AsyncProducer(settings, bootstrap_servers="127.0.0.1:1")
        await producer.start()
        producer.send("t", b"v")
        kept.append(producer)

loop = asyncio.new_event_loop()
loop.run_until_complete(main())
"""


HOOKED = """
import asyncio, warnings
from streamlog.client import AsyncProducer

def failing(*_, **__):
    raise RuntimeError("of the program")

warnings.simplefilter("always")
warnings.showwarning = failing

async def main():
    producer = await AsyncProducer(bootstrap_servers="127.0.0.1:1", max_block_ms=1_000).start()

    async def user():
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(1_000):  # the background ends first
                await asyncio.sleep(0)
            await producer.close(timeout_s=1)
            print("closed")

    kept.append(asyncio.ensure_future(user()))
    await asyncio.sleep(0)

kept = []
asyncio.run(main())
"""


def test_a_hook_of_warnings_that_raises_leaves_no_close_waiting() -> None:
    ended = run(HOOKED, "")
    assert "closed" in ended.stdout


def test_many_producers_of_a_cluster_that_is_gone_wait_no_longer_than_one() -> None:
    """Each for itself would take 150 s, which is more than `run` waits."""
    ended = run(MANY.format(flush_s=5, count=30), "")
    assert ended.stderr.count("records that it held may be lost: 1 records were not acknowledged") == 30
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("front", [Producer, Consumer])
def test_one_that_was_dropped_is_gone_once_it_is_closed(front: Any) -> None:
    before = len(unclosed._closing)
    client = front(bootstrap_servers="127.0.0.1:1")
    thread = client._thread
    with pytest.warns(ResourceWarning, match="was not closed"):
        del client
    thread._thread.join()
    assert thread._loop.is_closed()
    assert len(unclosed._closing) == before


def test_ctrl_c_ends_the_wait_and_the_lost_records_are_reported() -> None:
    program = MANY.format(flush_s=600, count=2)
    command = [sys.executable, "-W", "default::ResourceWarning", "-c", program]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as ending:
        assert ending.stderr is not None
        lines = iter(ending.stderr.readline, "")
        assert any("was not closed: its records are sent now" in line for line in lines)
        ending.send_signal(signal.SIGINT)
        rest = "".join(lines)
        ending.wait(60)
    assert rest.count("interrupted") == 2, rest
    assert "Traceback" not in rest


def test_a_closed_producer_warns_of_nothing(cluster: InProcessCluster) -> None:
    cluster.create_topic("closed", partitions=1)
    program = SYNC.format(settings="{}", size=1, end="producer.close(); producer.close()")
    ended = run(program, cluster.bootstrap_servers, "closed")
    assert (ended.returncode, ended.stderr) == (0, "")
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert admin.describe_topic("closed").name == "closed"
