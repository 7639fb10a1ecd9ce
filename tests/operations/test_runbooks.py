"""The runbooks of docs/operations for what is replaced and changed, walked on four real nodes: each command of a
section, in its order; those for failures are in test_failure_runbooks, the upgrade is in test_upgrade.

A node that is added is walked in tests/cli; tests/cli/test_messages.py checks the commands of all with the parser.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator

import pytest

from streamlog.client import AsyncProducer
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.operations.operator import Operator
from tests.operations.runbook import commands


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
