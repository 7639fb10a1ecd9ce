"""Programs that forget to close their consumer: a warning names it, its group has no member, nothing else is said."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlog.client import Admin, Producer
from streamlog.model import PartitionId, TopicPartition
from streamlog.pytest_plugin.cluster import InProcessCluster

pytestmark = pytest.mark.timeout(180)
ROOT = Path(__file__).parents[3]

SYNC = """
import sys
from streamlog.client import Consumer

servers, topic = sys.argv[1:]
consumer = Consumer(
    bootstrap_servers=servers, group_id=topic, auto_offset_reset="earliest", auto_commit_interval_ms=600_000
)
consumer.subscribe([topic]{listener})
for _ in range(2):
    assert len(consumer.poll(4, timeout_s=60)) == 4
{end}
"""
ASYNC = """
import asyncio, sys
from streamlog.client import AsyncConsumer

servers, topic = sys.argv[1:]

async def main():
    consumer = AsyncConsumer(
        bootstrap_servers=servers, group_id=topic, auto_offset_reset="earliest", auto_commit_interval_ms=600_000
    )
    await consumer.start()
    consumer.subscribe([topic])
    async for record in consumer:
        if record.offset == 3:
            break

{run}
"""
RUN = "asyncio.run(main())"
STOPPED = "loop = asyncio.new_event_loop(); loop.run_until_complete(main())"

PROGRAMS = {
    "sync": SYNC.format(listener="", end=""),
    "sync-collected": SYNC.format(listener="", end="del consumer"),
    "sync-exit": SYNC.format(listener="", end="sys.exit(0)"),
    "sync-listener": SYNC.format(listener=", on_revoked=print", end=""),
    "async": ASYNC.format(run=RUN),
    "async-stopped-loop": ASYNC.format(run=STOPPED),
}
COMMITTED = {name: 3 if name.startswith("async") else 4 for name in PROGRAMS if name != "async"}
"""The records of the last poll, or that a loop was at, are not processed. `asyncio.run` cancels the membership."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    with InProcessCluster(tmp_path_factory.mktemp("streamlog"), nodes=1) as cluster:
        yield cluster


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "default::ResourceWarning", "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, check=False)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_consumer_that_is_not_closed_leaves_its_group(cluster: InProcessCluster, name: str) -> None:
    cluster.create_topic(name, partitions=1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send_many(name, [b"%d" % number for number in range(10)]).result(60)
    ended = run(PROGRAMS[name], cluster.bootstrap_servers, name)
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr  # listeners are not called
    warning = f"consumer of group {name!r} was not closed: it leaves its group now"
    assert ended.stderr.count(warning) == 1, ended.stderr
    for noise in (
        "Task was destroyed",
        "GeneratorExit",
        "Traceback",
        "Exception ignored",
        "never awaited",
        "not committed",
    ):
        assert noise not in ended.stderr, ended.stderr
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        while admin.describe_group(name).members:  # the end of a stream arrives after the program's end
            pass
        offsets = admin.list_group_offsets(name)
    partition = TopicPartition(name, PartitionId(0))
    assert (offsets[partition].offset if partition in offsets else None) == COMMITTED.get(name)


@pytest.mark.parametrize("end", ["consumer.close(); consumer.close()", "next(iter(consumer)); consumer.close()"])
def test_a_closed_consumer_warns_of_nothing(cluster: InProcessCluster, end: str) -> None:
    name = f"closed-{len(end)}"
    cluster.create_topic(name, partitions=1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send_many(name, [b"%d" % number for number in range(10)]).result(60)
    ended = run(SYNC.format(listener="", end=end), cluster.bootstrap_servers, name)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_consumer_without_a_group(cluster: InProcessCluster) -> None:
    program = (
        "import sys; from streamlog.client import Consumer\nc = Consumer(bootstrap_servers=sys.argv[1], client_id='m')"
    )
    ended = run(program, cluster.bootstrap_servers)
    assert ended.returncode == 0
    assert "consumer 'm' was not closed: it is closed now" in ended.stderr
