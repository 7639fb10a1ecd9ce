"""The programs of examples/go, java, node and rust: built by their builds, run as their READMEs say on one cluster."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from streamlog.client import EARLIEST, Admin, Consumer
from streamlog.daemon.local_cluster import LocalCluster
from tests.clients.builds import LANGUAGES, built

pytestmark = [pytest.mark.process, pytest.mark.clients, pytest.mark.timeout(1800)]

TIMEOUT_S = 180.0
COUNT = 1_200


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    cluster = LocalCluster(tmp_path_factory.mktemp("programs") / "cluster")
    cluster.create(1, 0, {})
    (node,) = cluster.nodes
    cluster.start(node)
    try:
        yield node.address
    finally:
        cluster.kill(node)


def read_committed(server: str, topic: str, count: int) -> list[bytes]:
    values: list[bytes] = []
    with Consumer(bootstrap_servers=server, isolation_level="read_committed") as consumer:
        consumer.assign_topics([topic], start=EARLIEST)
        while len(values) < count:
            polled = consumer.poll(timeout_s=TIMEOUT_S)
            assert polled, f"{len(values)} of {count} records"
            values += [record.value or b"" for record in polled]
    return sorted(values)


@pytest.mark.parametrize("name", LANGUAGES)
def test_the_three_programs_do_what_they_say(server: str, name: str) -> None:
    language = built(name)
    words, upper = f"{name}-words", f"{name}-upper"
    lines = [f"line {number} of {name}" for number in range(COUNT)]

    def run(program: str, *arguments: str, given: str = "") -> list[str]:
        option = "-" if name == "go" else "--"
        done = subprocess.run(
            [*language.program(program), f"{option}servers", server, *arguments],
            input=given,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    count = ["-count" if name == "go" else "--count", str(COUNT)]
    with Admin(bootstrap_servers=server) as admin:
        for topic in (words, upper):
            admin.create_topic(topic, partitions=3)
    assert run("producer", words, given="\n".join(lines) + "\n") == [f"{COUNT} records written"]
    printed = run("group", *count, words, f"{name}-readers")
    assert sorted(line.split(" ", 1)[1] for line in printed) == sorted(lines)
    places = {line.split(" ", 1)[0] for line in printed}
    assert len(places) == COUNT
    assert run("exactly-once", *count, words, upper, f"{name}-copiers")[-1] == f"{COUNT} records copied"
    assert read_committed(server, upper, COUNT) == sorted(line.upper().encode() for line in lines)
