"""Nodes, quorum and disks through streamlogctl."""

from __future__ import annotations

import json
import socket

import pytest

from streamlog.api.errors import to_message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.cli.cluster import voters
from streamlog.errors import StorageError
from streamlog.metadata.features import METADATA_VERSION_MAX
from tests.cli.served import USAGE, ServedCluster, refused
from tests.support.health_samples import cluster


def test_describe(served: ServedCluster) -> None:
    served.run("topic", "create", "t", "--partitions", "3")
    served.cluster.rig.fence(3)
    lines = served.run("cluster", "describe").stdout.splitlines()
    assert "controller\t1" in lines
    assert "voters_without_vote\tnone" in lines
    assert "under_replicated_partition_count\t3" in lines
    assert lines[-4].startswith("NODE\tADDRESS\tRACK\tSTATE")
    assert lines[-3].startswith("1\tnode1:9092\t\tactive\tyes\tno\t3\t")
    assert lines[-1].split("\t")[3] == "fenced"


def test_describe_for_programs(served: ServedCluster) -> None:
    found = json.loads(served.run("cluster", "describe", "--output", "json").stdout)
    assert found["cluster_id"] == "cluster-of-tests"
    assert [node["state"] for node in found["nodes"]] == ["active"] * 3
    assert found["voters_without_vote"] == []


def test_quorum(served: ServedCluster) -> None:
    lines = served.run("cluster", "quorum").stdout.splitlines()
    assert lines[:2] == ["leader\t1", "term\t3"]
    assert lines[-1] == "2\tnode2:9092\tvoter\tyes\tunknown\tunknown"


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_lost_quorum_is_an_exit_code_and_is_said_beside_the_rows(
    served: ServedCluster, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    monkeypatch.setattr(voters, "with_admin", lambda *_, **__: cluster(held=(None, None, None)))
    monkeypatch.setattr(voters, "not_answering", frozenset)
    done = served.run("cluster", "quorum", "--output", output)
    assert done.exit_code == 1
    assert done.stderr == "No metadata quorum: 0 of 3 voters answer this machine: start the nodes that do not.\n"
    assert "quorum" not in done.stdout


def test_voters_come_and_go(served: ServedCluster) -> None:
    assert served.run("cluster", "add-voter", "3").stdout == "Node 3 is a voter. Voters: 1,2,3.\n"
    assert served.run("cluster", "remove-voter", "2").stdout == "Node 2 is not a voter. Voters: 1,3.\n"
    assert "streamlogctl cluster quorum" in refused(served.run("cluster", "remove-voter", "2"))
    with socket.socket() as stopped:
        stopped.bind(("127.0.0.1", 0))  # reserved, and refuses connections
        address = f"127.0.0.1:{stopped.getsockname()[1]}"
        added = served.run("cluster", "add-voter", "2", "--address", address)
    assert added.stdout == "Node 2 is a voter. Voters: 1,2,3.\n"
    waits = f"Node 2 does not answer at {address} from this machine; waiting until it does, and has caught up.\n"
    assert added.stderr == waits


def test_a_vote_that_is_not_lost_is_not_restored(served: ServedCluster) -> None:
    assert served.run("cluster", "restore-voter", "1").stdout == "Node 1 has its vote.\n"
    assert "node 9 is not a voter; the voters are 1" in refused(served.run("cluster", "restore-voter", "9"))


def test_a_drain_is_begun_shown_and_called_off(served: ServedCluster) -> None:
    served.run("topic", "create", "t", "--replica-assignment", "1:2,2:3,3:1")
    done = served.run("cluster", "drain", "2")
    assert done.stdout == "Node 2 is being drained: 2 replicas are left, 2 of them are moving now.\n"
    assert "2 replicas are left" in served.run("cluster", "drain", "2", "--show").stdout
    done = served.run("cluster", "drain", "2", "--cancel")
    assert done.stdout == "Node 2 is not being drained; it has 2 replicas.\n"


def test_a_drain_is_waited_for(served: ServedCluster) -> None:
    done = served.run("cluster", "drain", "2", "--wait")
    assert done.stdout == "Node 2 has no replicas: stop it, then run 'streamlogctl cluster unregister 2'.\n"


def test_a_node_that_cannot_be_drained_or_is_not_there(served: ServedCluster) -> None:
    served.run("topic", "create", "t", "--replication-factor", "3")
    assert "no other active node" in refused(served.run("cluster", "drain", "2"))
    assert "streamlogctl cluster describe" in refused(served.run("cluster", "drain", "9"))


def test_a_node_is_forgotten_once_it_is_stopped(served: ServedCluster) -> None:
    refused(served.run("cluster", "unregister", "3"))
    served.cluster.rig.fence(3)
    assert served.run("cluster", "unregister", "3").stdout == "Node 3 is unregistered.\n"


def test_log_directories(served: ServedCluster) -> None:
    replica = pb.LogDirReplica(topic="t", partition=1, size_bytes=5, log_start=2, log_end=9, damaged_ranges=2)
    scrub = pb.ScrubProgress(started_ms=0, read_bytes=2, total_bytes=5)
    works = pb.LogDir(path="/a", total_bytes=100, usable_bytes=-1, replicas=[replica], scrub=scrub)
    moving = pb.FutureReplica(topic="t", partition=2, size_bytes=3, offset_lag=4)
    ended = pb.FutureReplica(topic="t", partition=3, error=to_message(StorageError("/a: no space left")))
    works.future_replicas.extend([moving, ended])
    failed = pb.LogDir(path="/b", error=to_message(StorageError("/b: no space left")))
    served.cluster.log_dirs = [
        pb.NodeLogDirs(node_id=1, log_dirs=[works, failed]),
        pb.NodeLogDirs(node_id=2, error=to_message(StorageError("gone"))),
    ]
    done = served.run("cluster", "log-dirs")
    assert done.stdout.splitlines()[1:] == [
        "1\t/a\tactive\t1\t5\tunknown\t100\t2\t40% since 1970-01-01 00:00",
        "1\t/b\toffline\t0\t0\t0\t0\t0\tnot yet",
    ]
    assert "Error: node 2: gone." in refused(done)
    assert "topic 'nosuch' does not exist" in refused(served.run("cluster", "log-dirs", "--topic", "nosuch"))
    done = served.run("cluster", "log-dirs", "--broker", "1", "--replicas")
    assert done.stdout.splitlines()[1:] == [
        "1\t/a\tt\t1\t5\t2\t9\t2\tno\t0\t",
        "1\t/a\tt\t2\t3\t\t\t0\tyes\t4\tunder way",
        "1\t/a\tt\t3\t0\t\t\t0\tyes\t0\tended: /a: no space left",
    ]
    larger = pb.LogDirReplica(topic="large", partition=0, size_bytes=9)
    works.replicas.extend([replica, larger])
    served.cluster.log_dirs = [pb.NodeLogDirs(node_id=1, log_dirs=[works])]
    done = served.run("cluster", "log-dirs", "--by-topic")
    assert done.stdout.splitlines()[1:] == ["t\t1\t2\t10\t5\t4", "large\t1\t1\t9\t9\t0"]
    assert served.run("cluster", "log-dirs", "--by-topic", "--replicas").exit_code == USAGE


def test_release_and_level(served: ServedCluster) -> None:
    assert "version\t0.1.0\n" in served.run("cluster", "api").stdout
    assert served.run("cluster", "upgrade").stdout == f"metadata.version is {METADATA_VERSION_MAX}.\n"


@pytest.mark.parametrize(
    "arguments", [("drain",), ("drain", "x"), ("drain", "1", "--cancel", "--show"), ("unregister",), ("add-voter",)]
)
def test_wrong_usage(served: ServedCluster, arguments: tuple[str, ...]) -> None:
    assert served.run("cluster", *arguments).exit_code == USAGE
