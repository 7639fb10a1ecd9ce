"""The runbooks of docs/operations, walked on a cluster of real nodes: each command of a section, in its order.

The other sections need what a test cannot have (a full disk, another release), or are walked where the subject is
tested; tests/cli/test_messages.py checks the commands of all of them with the parser.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from streamlog.cli.main import main
from streamlog.client import AsyncProducer
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.operations.runbook import commands

WAIT_S = 300.0  # for a busy machine; it takes a second


class Operator:
    def __init__(self, cluster: InProcessCluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory

    def run(self, words: list[str], status: int = 0) -> str:
        environment = {"STREAMLOG_BOOTSTRAP_SERVERS": self.cluster.address(1)}
        done = CliRunner().invoke(main, words, env=environment)
        assert done.exit_code == status, f"{words}: {done.output}"
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.run([*words, "--output", "json"]))

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline

    def nothing_is_under_replicated(self) -> bool:
        return not any(topic["partitions"] for topic in self.json("topic", "describe", "--under-replicated-partitions"))

    def roles(self) -> dict[int, str]:
        return {voter["node"]: voter["role"] for voter in self.json("cluster", "quorum")["voters"]}


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """Four nodes that vote, with a topic of three replicas."""
    directory = tmp_path_factory.mktemp("streamlog")
    with InProcessCluster(directory, nodes=4) as cluster:
        one = Operator(cluster, directory)
        one.run(["topic", "create", "orders", "--replica-assignment", "1:2:3,2:3:1,3:1:2"])

        async def write() -> None:
            async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                await (await producer.send_many("orders", [b"a record"] * 300))

        asyncio.run(write())
        yield one


def test_a_disk_is_lost(operator: Operator) -> None:
    before, after = commands("A disk is lost")[:2], commands("A disk is lost")[2:]
    operator.cluster.stop_node(2)
    shutil.rmtree(operator.directory / "node-2")
    operator.until(lambda: not operator.nothing_is_under_replicated())
    unavailable, under_replicated = map(operator.run, before)
    assert "orders" not in unavailable
    assert "Topic: orders" in under_replicated
    operator.cluster.start_node(2)
    operator.until(lambda: set(operator.roles().values()) == {"leader", "voter"})
    operator.until(operator.nothing_is_under_replicated)
    quorum, under_replicated, verified = map(operator.run, after)
    assert "no vote" not in quorum
    assert "orders" not in under_replicated
    assert verified.count("\tok\t") == 9


def test_voters_are_changed(operator: Operator) -> None:
    look, remove, add, look_again = commands("Voters are changed")
    operator.run(look)
    assert "Node 2 is not a voter." in operator.run(remove)
    assert set(operator.roles()) == {1, 3, 4}
    assert "Node 2 is a voter." in operator.run(add)
    operator.run(look_again)
    assert set(operator.roles()) == {1, 2, 3, 4}


def test_a_node_is_removed(operator: Operator) -> None:
    drain, remove_voter, unregister = commands("A node is removed")
    assert "Node 2 has no replicas" in operator.run(drain)
    operator.run(remove_voter)
    operator.cluster.stop_node(2)

    def stopped() -> bool:
        states = {node["node"]: node["state"] for node in operator.json("cluster", "describe")["nodes"]}
        return states[2] == "fenced"

    operator.until(stopped)
    operator.run(unregister)
    assert [node["node"] for node in operator.json("cluster", "describe")["nodes"]] == [1, 3, 4]
    operator.until(operator.nothing_is_under_replicated)
    operator.run(["partition", "verify", "orders"])
