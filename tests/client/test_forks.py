"""In a process that was forked from one with a client, that client refuses, and a new one works; the parent's too."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from streamlog.pytest_plugin.cluster import InProcessCluster

# What is printed is a line each, of the parent and of its children in turn.
PROGRAM = """
import asyncio, gc, os, sys
from streamlog.client import EARLIEST, Admin, AsyncAdmin, Consumer, Producer
from streamlog.errors import ClientClosedError
servers = sys.argv[1]

def in_child(work):
    sys.stdout.flush()
    if child := os.fork():
        print("exit", os.waitpid(child, 0)[1])
        return
    try:
        print(work())
    except ClientClosedError as error:
        print(error.code, str(error).partition(" one ")[0])
    sys.exit()  # with all that happens at the end of an interpreter

def new():
    with Producer(bootstrap_servers=servers) as producer:
        return producer.send("t", b"of the child").result(60).topic

def read():
    found = []
    with Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign_topics(["t"], start=EARLIEST)
        while len(found) < 2:
            found += [record.value for record in consumer.poll(timeout_s=60)]
    return sorted(found)[:2]

def forgotten():
    global admin, producer
    del admin, producer
    gc.collect()

in_child(new)
admin = Admin(bootstrap_servers=servers)
admin.list_topics()
producer = Producer(bootstrap_servers=servers)
sent = producer.send("t", b"of the parent")
sent.result(60)
in_child(new)
in_child(read)
in_child(admin.list_topics)
in_child(admin.close)
in_child(lambda: producer.send("t", b"x"))
in_child(forgotten)
in_child(lambda: in_child(new))
producer.send("t", b"of the parent").result(60)
print(len(admin.list_topics()))
admin.close()
producer.close()
in_child(new)
with asyncio.Runner() as runner:
    inherited = AsyncAdmin(bootstrap_servers=servers)
    runner.run(inherited.start())
    runner.run(inherited.list_topics())
    in_child(lambda: asyncio.run(inherited.list_topics()))
    print(len(runner.run(inherited.list_topics())))
    runner.run(inherited.close())
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    with InProcessCluster(tmp_path_factory.mktemp("streamlog"), nodes=1) as running:
        running.create_topic("t", partitions=1)
        yield running


def test_clients_and_forks(cluster: InProcessCluster) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM, cluster.bootstrap_servers],  # of os.fork
        capture_output=True,
        text=True,
        timeout=110,
    )
    refused = "CLIENT_CLOSED this process was forked from the"
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [
        *("t", "exit 0"),
        *("t", "exit 0"),
        *("[b'of the child', b'of the child']", "exit 0"),
        *(refused, "exit 0"),
        *("None", "exit 0"),  # closing what came along does nothing
        *(refused, "exit 0"),
        *("None", "exit 0"),
        *("t", "exit 0", "None", "exit 0"),  # of a child's child
        "1",  # the parent's clients go on
        *("t", "exit 0"),
        *(refused, "exit 0"),  # of asyncio
        "1",
    ]
