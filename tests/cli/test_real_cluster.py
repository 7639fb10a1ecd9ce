"""The commands of `topic`, `config`, `cluster` and `partition` on real nodes, in the order of the README's walk."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from streamlog.cli.main import main
from streamlog.client import EARLIEST, AsyncProducer, Consumer
from streamlog.pytest_plugin.cluster import InProcessCluster

Run = Callable[..., str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    with InProcessCluster(tmp_path_factory.mktemp("streamlog"), nodes=4) as cluster:
        yield cluster


@pytest.fixture
def run(cluster: InProcessCluster) -> Run:
    """`streamlogctl ARGUMENTS`, which must succeed: what it prints."""

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(main, arguments, env={"STREAMLOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers})
        assert done.exit_code == 0, done.output
        return done.stdout

    return run


def write(cluster: InProcessCluster, topic: str, count: int) -> None:
    async def send() -> None:
        async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await (await producer.send_many(topic, [b"x" * 100] * count))

    asyncio.run(send())


def test_topics(run: Run) -> None:
    assert run("topic", "create", "--topic", "test1", "--partitions", "2", "--replication-factor", "1") == (
        "Created topic test1.\n"
    )
    heading, first, second = run("topic", "describe", "test1").splitlines()
    assert heading == "Topic: test1\tPartitionCount: 2\tReplicationFactor: 1\tConfigs:"
    for line, number in ((first, 0), (second, 1)):
        leader = line.split("\t")[3].removeprefix("Leader: ")
        assert line == f"\tTopic: test1\tPartition: {number}\tLeader: {leader}\tReplicas: {leader}\tIsr: {leader}"
    assert "test1" in run("topic", "list").splitlines()
    run("topic", "alter", "test1", "--partitions", "3", "--config", "retention.ms=60000")
    assert "PartitionCount: 3\tReplicationFactor: 1\tConfigs: retention.ms=60000" in run("topic", "describe", "test1")
    run("topic", "delete", "test1")
    assert "test1" not in run("topic", "list").splitlines()


def test_configs(run: Run) -> None:
    run("topic", "create", "configured")
    run("config", "alter", "--topic", "configured", "--set", "cleanup.policy=compact")
    assert "cleanup.policy\tcompact\tDYNAMIC_TOPIC_CONFIG" in run("config", "describe", "--topic", "configured")
    assert run("config", "describe", "--topic", "conf.*ed") == run("config", "describe", "--topic", "configured")
    everything = run("config", "describe", "--topic", "configured", "--all", "--long")
    assert "segment.bytes" in everything
    run("config", "alter", "--all-brokers", "--set", "log.retention.hours=24")
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG" in run("config", "describe", "--broker", "1")
    run("config", "alter", "--all-brokers", "--delete-config", "log.retention.hours")


def test_cluster(cluster: InProcessCluster, run: Run) -> None:
    def described() -> Any:
        return json.loads(run("cluster", "describe", "-o", "json"))

    found, deadline = described(), time.monotonic() + 60
    while {node["state"] for node in found["nodes"]} != {"active"}:  # one may be fenced for a moment under load
        assert time.monotonic() < deadline, found["nodes"]
        found = described()
    assert len(found["nodes"]) == 4
    quorum = json.loads(run("cluster", "quorum", "-o", "json"))
    assert len(quorum["voters"]) == 4
    assert all(voter["lag"] < 1_000 for voter in quorum["voters"]), "the leader knows how far each one is"
    assert quorum["leader"] == found["controller"]
    run("topic", "create", "sized", "--partitions", "1", "--replication-factor", "2")
    write(cluster, "sized", 50)
    rows = json.loads(run("cluster", "log-dirs", "--topic", "size[d]", "--replicas", "-o", "json"))
    assert [row["log_end"] for row in rows] == [50, 50]
    assert all(row["size_bytes"] > 50 * 100 for row in rows)
    assert "idempotence" in run("cluster", "api")
    assert run("cluster", "upgrade").startswith("metadata.version is ")


def test_replicas_are_moved_and_identical(cluster: InProcessCluster, run: Run) -> None:
    run("topic", "create", "moved", "--replica-assignment", "1:2:3")
    write(cluster, "moved", 2_000)
    assert "All replicas have moved." in run("partition", "reassign", "moved-0", "--replicas", "4,2,3", "--wait")
    [topic] = json.loads(run("topic", "describe", "moved", "-o", "json"))
    assert topic["partitions"][0]["replicas"] == [4, 2, 3]
    assert "moved-0\t4" in run("partition", "elect", "moved-0")
    [digests] = json.loads(run("partition", "verify", "move[d]", "-o", "json"))
    assert digests["identical"]
    assert [replica["node"] for replica in digests["replicas"]] == [4, 2, 3]


def test_a_node_is_drained(cluster: InProcessCluster, run: Run) -> None:
    run("topic", "create", "drained", "--replica-assignment", "3:1,1:3,2:3")
    write(cluster, "drained", 500)
    assert "Node 3 has no replicas" in run("cluster", "drain", "3", "--wait")
    [topic] = json.loads(run("topic", "describe", "drained", "-o", "json"))
    assert all(3 not in partition["replicas"] for partition in topic["partitions"])
    assert "is not being drained" in run("cluster", "drain", "3", "--cancel")


def test_records_are_deleted_on_all_replicas(cluster: InProcessCluster, run: Run, tmp_path: Path) -> None:
    """By offset and by topic; what is deleted stays so when another replica is elected."""

    def table(*arguments: str) -> list[str]:
        return run(*arguments).splitlines()[1:]

    run("topic", "create", "cut", "--replica-assignment", "1:2:3")
    write(cluster, "cut", 30)
    assert table("records", "delete", "cut-0", "--before", "10") == ["cut\t0\t10"]
    assert table("offsets", "cut", "--time", "earliest") == ["cut\t0\t10"]
    plan = tmp_path / "offsets.json"
    plan.write_text(json.dumps({"partitions": [{"topic": "cut", "partition": 0, "offset": 12}]}))
    assert table("records", "delete", "--offset-json-file", str(plan)) == ["cut\t0\t12"]
    replicas = json.loads(run("cluster", "log-dirs", "--topic", "cut", "--replicas", "-o", "json"))
    assert [(one["node"], one["log_start"], one["log_end"]) for one in replicas] == [
        (1, 12, 30),
        (2, 12, 30),
        (3, 12, 30),
    ]
    assert table("topic", "trim", "cut", "--keep-last", "5", "--dry-run") == ["cut\t0\t25\t13"]
    assert table("topic", "trim", "cut", "--keep-last", "5") == ["cut\t0\t25\t13"]
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign_topics(["cut"], start=EARLIEST)
        assert next(iter(consumer)).offset == 25
    assert table("topic", "trim", "cut", "--before-time", "2020-01-01T00:00:00Z") == ["cut\t0\t25\t0"]
    assert table("topic", "trim", "cut", "--before-time", "2120-01-01T00:00:00Z") == ["cut\t0\t30\t5"]
    write(cluster, "cut", 3)
    assert table("offsets", "cut") == ["cut\t0\t33"]
    run("partition", "reassign", "cut-0", "--replicas", "2,3,1", "--wait")
    run("partition", "elect", "cut-0")
    assert table("offsets", "cut", "--time", "earliest") == ["cut\t0\t30"]


def test_records_that_cannot_be_deleted(cluster: InProcessCluster, run: Run) -> None:
    run("topic", "create", "kept", "--config", "cleanup.policy=compact", "--partitions", "1")
    run("topic", "create", "short", "--partitions", "1")
    environment = {"STREAMLOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}

    def refused(*arguments: str) -> str:
        done = CliRunner().invoke(main, ["records", "delete", *arguments], env=environment)
        assert done.exit_code == 1, done.output
        return done.stderr

    assert "topic 'kept' has a cleanup.policy without 'delete'" in refused("kept-0", "--before", "latest")
    assert "records before offset 1 cannot be deleted: the high watermark is 0" in refused("short-0", "--before", "1")
    assert "does not exist" in refused("missing-0", "--before", "latest")
    assert "is internal" in refused("__consumer_offsets-0", "--before", "latest")


def test_replicas_are_moved_to_a_new_node(run: Run, tmp_path: Path) -> None:
    """Three nodes have all replicas of the topic, node 4 none: the plan is shown, generated, carried out."""
    run("topic", "create", "busy", "--replica-assignment", "1:2,2:3,3:1,1:2,2:3,3:1")
    generated = json.loads(run("partition", "reassign", "--generate", "busy", "--brokers", "1,2,3", "-o", "json"))
    assert len(generated["current"]["partitions"]) == 6
    assert all(4 not in one["replicas"] for one in generated["proposed"]["partitions"])
    assert "Proposed partition reassignment configuration" in run("partition", "reassign", "--generate", "busy")
    plan_file = tmp_path / "plan.json"
    shown = json.loads(run("cluster", "rebalance", "--plan-file", str(plan_file), "-o", "json"))
    after = [node["replicas_after"] for node in shown["nodes"]]
    assert max(after) - min(after) <= 1
    assert shown["partitions"] == json.loads(plan_file.read_text())["partitions"]
    assert run("partition", "reassign", "--list", "-o", "json") == "[]\n", "nothing has been started"
    run("cluster", "rebalance", "--execute", "--throttle", "100000000", "--wait")
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG" not in run("config", "describe", "--broker", "1"), "the limit is removed"
    assert "nothing to move" in run("cluster", "rebalance")
    assert "Cancelled the moves of 0 partitions." in run("cluster", "rebalance", "--cancel")
    moves = {"partitions": [{"topic": "busy", "partition": 0, "replicas": [1, 2]}]}
    plan_file.write_text(json.dumps(moves))
    said = run("partition", "reassign", "--reassignment-json-file", str(plan_file), "--throttle", "1000000", "--wait")
    assert said == "Moving busy-0.\nAll replicas have moved.\n"
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG" not in run("config", "describe", "--broker", "1"), "the limit is removed"
