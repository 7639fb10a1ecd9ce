"""Elections, moves and comparisons of replicas through streamlogctl."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from streamlog.api.errors import to_message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.cli.common import session
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import ConfigChange, ConfigDescription, ConfigResource
from streamlog.config import Operation
from streamlog.errors import BrokerNotAvailableError, StorageError
from tests.cli.served import USAGE, ServedCluster, refused
from tests.support.health_samples import config_entry


def _restarted_leader(served: ServedCluster) -> None:
    """t-0 prefers node 1, and is led by node 2 since node 1 was away."""
    served.run("topic", "create", "t", "--replica-assignment", "1:2,2:1")
    served.cluster.rig.fence(1)
    served.cluster.rig.start(1)
    served.cluster.rig.alter_isr([1, 2], "t", 0)


def test_leaderships_go_back_to_the_preferred_replicas(served: ServedCluster) -> None:
    _restarted_leader(served)
    done = served.run("partition", "elect", "--all")
    assert done.stdout == "PARTITION\tLEADER\tOUTCOME\nt-0\t1\telected\n"
    assert served.run("partition", "elect", "--all").stdout == "No partition needs an election.\n"


def test_a_partition_by_name_in_three_ways(served: ServedCluster) -> None:
    _restarted_leader(served)
    for named in (("t-0",), ("t:0",), ("--topic", "t", "--partition", "0")):
        assert "t-0\t1\t" in served.run("partition", "elect", *named).stdout
    done = served.run("partition", "elect", "t-1")
    assert done.stdout.splitlines()[1] == "t-1\t2\tleads already"
    assert done.exit_code == 0


def test_all_partitions_of_topics(served: ServedCluster) -> None:
    """Of one by its name, or of those that a regular expression matches; or one partition of each."""
    _restarted_leader(served)
    served.run("topic", "create", "u", "--replica-assignment", "3:2")
    served.run("topic", "create", "other", "--replica-assignment", "3:2")
    done = served.run("partition", "elect", "--topic", "[tu]")
    assert done.stdout.splitlines()[1:] == ["t-0\t1\telected", "t-1\t2\tleads already", "u-0\t3\tleads already"]
    assert served.run("partition", "elect", "--topic", "t").stdout.splitlines()[1:] == [
        "t-0\t1\tleads already",
        "t-1\t2\tleads already",
    ]
    assert served.run("partition", "elect", "--topic", "[tu]", "--partition", "1").stdout.splitlines()[1:] == [
        "t-1\t2\tleads already"
    ]
    nowhere = served.run("partition", "elect", "--topic", "[tu]", "--partition", "7")
    assert "none of 2 topics has a partition 7" in refused(nowhere)
    assert "no topic matches 'x+'" in refused(served.run("partition", "elect", "--topic", "x+"))
    assert "topic 'missing' does not exist" in refused(served.run("partition", "elect", "--topic", "missing"))


def test_an_election_without_anybody_to_elect(served: ServedCluster) -> None:
    served.run("topic", "create", "t", "--replica-assignment", "1:2")
    served.cluster.rig.fence(2)
    served.cluster.rig.fence(1)
    done = served.run("partition", "elect", "t-0")
    assert "t-0\tnone\tfailed" in done.stdout
    assert "t-0" in refused(done)
    served.cluster.rig.start(2, clean=False)
    preview = served.run("partition", "elect", "t-0", "--election-type", "unclean", "--dry-run")
    assert preview.stdout.splitlines() == [
        "PARTITION\tREPLICA\tSTATE\tIN_SYNC_LAST\tLAST_EPOCH\tLOG_END\tLOST_RECORDS\tWOULD_LEAD",
        "t-0\t1\tfenced\tyes\tunknown\tunknown\tunknown\tno",
        "t-0\t2\talive\tno\t0\t10\t0\tyes",
    ]
    assert "Nodes 1 have not answered" in preview.stderr
    assert "t-0\tnone\tfailed" in served.run("partition", "elect", "t-0").stdout, "nothing has changed"
    assert "t-0\t2\telected" in served.run("partition", "elect", "t-0", "--election-type", "unclean").stdout
    for usage in (("--dry-run",), ("--election-type", "preferred", "--dry-run")):
        assert served.run("partition", "elect", "t-0", *usage).exit_code == 2


def test_replicas_are_moved_listed_and_the_move_called_off(served: ServedCluster) -> None:
    served.run("topic", "create", "t", "--replica-assignment", "1:2")
    assert served.run("partition", "reassign", "--list").stdout == "There are no reassignments in progress.\n"
    assert served.run("partition", "reassign", "t-0", "--replicas", "1,3").stdout == "Moving t-0.\n"
    listed = served.run("partition", "reassign", "--list").stdout.splitlines()
    assert listed[1].startswith("t-0\t")
    assert listed[1].split("\t")[2:4] == ["3", "2"]
    assert served.run("partition", "reassign", "t-0", "--cancel").stdout == "Cancelled the move of t-0.\n"
    assert "reassign --list" in refused(served.run("partition", "reassign", "t-0", "--cancel"))


def test_a_file_of_kafkas_tool(served: ServedCluster, tmp_path: Path) -> None:
    served.run("topic", "create", "t", "--replica-assignment", "1:2")
    file = tmp_path / "moves.json"
    file.write_text('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [3, 1]}]}')
    assert served.run("partition", "reassign", "--reassignment-json-file", str(file)).stdout == "Moving t-0.\n"


@pytest.mark.parametrize(
    ("partitions", "why"),
    [
        ('{"topic": "t"}', "is not a list of reassignments"),
        ('{"topic": "t", "partition": 0, "replicas": "12"}', "'12' is not a list of nodes"),
        ('{"topic": "t", "partition": 0, "replicas": [1, 2.5]}', "2.5 is not a whole number"),
        ('{"topic": "t", "partition": 0, "replicas": [true]}', "True is not a whole number"),
        ('{"topic": "t", "partition": 0.5, "replicas": [1]}', "0.5 is not a whole number"),
        ('{"topic": "t", "partition": -1, "replicas": [1]}', "-1 is not a whole number in 0.."),
        ("", "names no partitions"),
    ],
)
def test_a_file_that_is_no_plan(served: ServedCluster, tmp_path: Path, partitions: str, why: str) -> None:
    served.run("topic", "create", "t", "--replica-assignment", "1:2")
    file = tmp_path / "moves.json"
    file.write_text(f'{{"partitions": [{partitions}]}}')
    done = served.run("partition", "reassign", "--reassignment-json-file", str(file))
    assert done.exit_code == USAGE
    assert why in done.stderr


class Limits(AsyncAdmin):
    """Of the nodes' settings: those of all nodes."""

    values: ClassVar[dict[str, str]] = {}

    async def describe_configs(
        self, resources: Iterable[ConfigResource], *, names: Iterable[str] = ()
    ) -> tuple[ConfigDescription, ...]:
        entries = tuple(config_entry(name, value) for name, value in self.values.items())
        return tuple(ConfigDescription(resource=one, entries=entries, error=None) for one in resources)

    async def alter_config(self, resource: ConfigResource, changes: Sequence[ConfigChange]) -> None:
        for one in changes:
            if one.operation is Operation.DELETE:
                del self.values[one.name]
            else:
                self.values[one.name] = one.value


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(session, "AsyncAdmin", Limits)
    monkeypatch.setattr(Limits, "values", {})
    return Limits.values


def test_the_limit_of_moves_is_removed_although_one_is_refused(
    served: ServedCluster, limits: dict[str, str], tmp_path: Path
) -> None:
    served.run("topic", "create", "t", "--replica-assignment", "1:2,1:2")
    file = tmp_path / "moves.json"
    moves = [{"topic": "t", "partition": 0, "replicas": [2, 1]}, {"topic": "t", "partition": 1, "replicas": [1, 9]}]
    file.write_text(json.dumps({"partitions": moves}))
    move = ("partition", "reassign", "--throttle", "1000", "--reassignment-json-file", str(file))
    done = served.run(*move, "--wait")
    assert done.exit_code == 1
    assert done.stdout == "Moving t-0.\nAll replicas have moved.\n"
    assert "The limit of moves is removed." in done.stderr
    assert "node 9" in done.stderr
    file.write_text(json.dumps({"partitions": moves[1:]}))
    assert "The limit of moves is removed." in served.run(*move).stderr, "nothing is moving"
    assert not limits


def test_a_limit_of_before_is_in_force_again_after_moves(served: ServedCluster, limits: dict[str, str]) -> None:
    limits["leader.replication.throttled.rate"] = "5"
    served.run("topic", "create", "t", "--replica-assignment", "1:2")
    done = served.run("partition", "reassign", "t-0", "--replicas", "2,1", "--throttle", "1000", "--wait")
    assert "The limit of moves is what it was before." in done.stderr
    assert limits == {"leader.replication.throttled.rate": "5"}


def test_a_limit_of_other_moves_is_not_replaced(served: ServedCluster, limits: dict[str, str]) -> None:
    """Both would restore it: it would be in force for ever."""
    served.run("topic", "create", "t", "--replica-assignment", "1:2,1:2")
    served.run("partition", "reassign", "t-0", "--replicas", "1,3", "--throttle", "1000")
    said = refused(served.run("partition", "reassign", "t-1", "--replicas", "1,3", "--throttle", "2000"))
    assert "a limit holds for all moves: leave --throttle out" in said
    assert "--set leader.replication.throttled.rate=2000" in said
    assert set(limits.values()) == {"1000"}
    assert served.run("partition", "reassign", "t-1", "--replicas", "1,3").stdout == "Moving t-1.\n"


def test_moves_at_the_same_limit_follow_others(served: ServedCluster, limits: dict[str, str]) -> None:
    """Batches one after another, or a command that was interrupted and is run again."""
    served.run("topic", "create", "t", "--replica-assignment", "1:2,1:2")
    for moved in ("t-0", "t-1", "t-0"):
        done = served.run("partition", "reassign", moved, "--replicas", "1,3", "--throttle", "1000")
        assert done.stdout == f"Moving {moved}.\n"
    assert set(limits.values()) == {"1000"}


def test_a_limit_that_was_changed_meanwhile_stays(
    served: ServedCluster, limits: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def changes(*_: object) -> tuple[()]:
        limits["leader.replication.throttled.rate"] = "7"
        return ()

    monkeypatch.setattr(Limits, "list_partition_reassignments", changes)
    served.run("topic", "create", "t", "--replica-assignment", "1:2")
    done = served.run("partition", "reassign", "t-0", "--replicas", "1,3", "--throttle", "1000", "--wait")
    assert "The limit of moves was changed meanwhile, and stays." in done.stderr
    assert limits == {"leader.replication.throttled.rate": "7"}


def test_a_limit_by_which_others_move_stays(
    served: ServedCluster, limits: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They began meanwhile, with the same one."""

    async def other(*_: object) -> tuple[object, ...]:
        return (SimpleNamespace(topic="other", partition=SimpleNamespace(partition=0)),)

    monkeypatch.setattr(Limits, "list_partition_reassignments", other)
    served.run("topic", "create", "t", "--replica-assignment", "1:2")
    done = served.run("partition", "reassign", "t-0", "--replicas", "1,3", "--throttle", "1000", "--wait")
    assert "The limit of moves stays: other replicas are being moved. To remove it: streamlogctl" in done.stderr
    assert set(limits.values()) == {"1000"}


def test_the_limit_of_moves_stays_where_their_end_is_unknown(
    served: ServedCluster, limits: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object) -> None:
        raise StorageError("the disk failed")

    monkeypatch.setattr(Limits, "list_partition_reassignments", fails)
    served.run("topic", "create", "t", "--replica-assignment", "1:2")
    done = served.run("partition", "reassign", "t-0", "--replicas", "1,3", "--throttle", "1000", "--wait")
    assert done.exit_code == 1
    assert "The limit of moves stays" in done.stderr
    assert "the disk failed" in done.stderr
    assert set(limits.values()) == {"1000"}


def test_a_rebalance_prints_one_document(served: ServedCluster, limits: dict[str, str]) -> None:
    served.run("topic", "create", "t", "--replica-assignment", "1:2,1:2")
    done = served.run("cluster", "rebalance", "--to", "1,2", "--execute", "--throttle", "1000", "--wait", "-o", "json")
    assert len(json.loads(done.stdout)["moves"]) == 1
    assert "The limit of moves is removed." in done.stderr
    assert not limits


def test_a_long_file_is_sent_in_parts(served: ServedCluster, tmp_path: Path) -> None:
    served.run("topic", "create", "t", "--replica-assignment", "1:2")
    file = tmp_path / "moves.json"
    moves = [{"topic": "t", "partition": number, "replicas": [2, 1]} for number in range(2_001)]
    file.write_text(json.dumps({"partitions": moves}))
    done = served.run("partition", "reassign", "--reassignment-json-file", str(file))
    assert done.stdout == "Moving t-0.\n"
    assert "Error: t-2000: " in done.stderr


def test_nodes_that_are_not_there(served: ServedCluster) -> None:
    served.run("topic", "create", "t", "--replica-assignment", "1:2")
    assert "streamlogctl cluster describe" in refused(served.run("partition", "reassign", "t-0", "--replicas", "1,9"))


def _digest(node_id: int, letter: bytes) -> pb.ReplicaDigest:
    return pb.ReplicaDigest(node_id=node_id, digest=letter * 32, batch_count=3, high_watermark=9, log_end=9)


def test_replicas_that_are_identical(served: ServedCluster) -> None:
    served.run("topic", "create", "t", "--replica-assignment", "1:2,2:1")
    for index in (0, 1):
        served.cluster.digests["t", index] = pb.DigestReplicasResponse(
            end_offset=9, replicas=[_digest(1, b"a"), _digest(2, b"a")], identical=True
        )
    done = served.run("partition", "verify", "t")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[1] == "t-0\t1\tok\t0..9\t3\t9\t" + "61" * 8
    assert done.stderr == "All replicas of 2 partitions are identical.\n"
    only = served.run("partition", "verify", "--topic", "t", "--partition", "1")
    assert len(only.stdout.splitlines()) == 3
    named = served.run("partition", "verify", "t-1")
    assert (named.stdout, named.stderr) == (only.stdout, "All replicas of 1 partition are identical.\n")
    assert "topic 't-2' does not exist" in refused(served.run("partition", "verify", "t-2"))
    assert "topic t has no partition 2" in refused(served.run("partition", "verify", "t", "--partition", "2"))


def test_replicas_that_differ(served: ServedCluster) -> None:
    served.run("topic", "create", "t", "--replica-assignment", "1:2")
    served.cluster.digests["t", 0] = pb.DigestReplicasResponse(
        end_offset=9, replicas=[_digest(1, b"a"), _digest(2, b"b")]
    )
    done = served.run("partition", "verify", "t")
    assert "t-0\t2\tdiffers\t" in done.stdout
    assert "the replicas of t-0 are not identical" in refused(done)
    [found] = json.loads(served.run("partition", "verify", "-o", "json").stdout)
    assert (found["identical"], found["replicas"][1]["digest"]) == (False, "62" * 32)


def test_a_replica_that_cannot_be_read(served: ServedCluster) -> None:
    served.run("topic", "create", "t", "--replica-assignment", "1:2")
    gone = pb.ReplicaDigest(node_id=2, error=to_message(BrokerNotAvailableError("node 2 is not alive")))
    served.cluster.digests["t", 0] = pb.DigestReplicasResponse(end_offset=9, replicas=[_digest(1, b"a"), gone])
    done = served.run("partition", "verify", "t")
    assert "t-0\t2\tfailed\t" in done.stdout
    assert done.exit_code == 1
    assert "topic 'missing' does not exist" in refused(served.run("partition", "verify", "missing"))


def test_a_repair(served: ServedCluster) -> None:
    found = pb.DamagedRange(path="/d/t-0/0.log", position=7, begin_offset=3, end_offset=5, reason="CRC mismatch")
    repaired = pb.DamagedRange(path="/d/t-0/0.log", position=9, begin_offset=6, end_offset=7, repaired_from=1)
    rows = [pb.ReplicaRepair(node_id=1), pb.ReplicaRepair(node_id=2, damages=[found, repaired])]
    served.cluster.repairs["t", 0] = pb.RepairReplicasResponse(replicas=rows)
    done = served.run("partition", "repair", "t-0", "--dry-run")
    assert served.cluster.last.dry_run
    assert done.exit_code == 1
    assert done.stdout.splitlines()[1] == "t-0\t2\t3..5\tdamaged\t\t/d/t-0/0.log\t7\tCRC mismatch"
    del rows[1].damages[0]
    served.cluster.repairs["t", 0] = pb.RepairReplicasResponse(replicas=rows)
    done = served.run("partition", "repair", "t-0")
    assert done.exit_code == 0
    assert "t-0\t2\t6..7\trepaired\t1\t" in done.stdout
    served.cluster.repairs["t", 0] = pb.RepairReplicasResponse(replicas=rows[:1])
    assert "The replicas of t-0 are intact." in served.run("partition", "repair", "t-0").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("repair",),
        ("elect",),
        ("elect", "t-0", "--all"),
        ("elect", "t"),
        ("elect", "--partition", "0"),
        ("elect", "--all", "--topic", "t"),
        ("reassign",),
        ("reassign", "t-0"),
        ("reassign", "t-0", "--replicas", "1,x"),
        ("reassign", "t-0", "--replicas", "1", "--cancel"),
    ],
)
def test_wrong_usage(served: ServedCluster, arguments: tuple[str, ...]) -> None:
    assert served.run("partition", *arguments).exit_code == USAGE


def _log_dirs(served: ServedCluster, *, moved: bool, error: str = "") -> None:
    replica = pb.LogDirReplica(topic="t", partition=0)
    future = pb.FutureReplica(topic="t", partition=0, error=to_message(StorageError(error)) if error else None)
    source = pb.LogDir(path="/a", replicas=[] if moved else [replica])
    target = pb.LogDir(path="/b", replicas=[replica] if moved else [], future_replicas=[future] if error else [])
    served.cluster.log_dirs = [pb.NodeLogDirs(node_id=1, log_dirs=[source, target])]


def test_a_replica_moves_to_another_log_directory(served: ServedCluster) -> None:
    move = ("partition", "move-log-dir", "t-0", "--broker", "1", "--log-dir")
    assert served.run(*move, "/b").stdout == "t-0 moves to /b of node 1.\n"
    assert "t-0: no such directory" in refused(served.run(*move, "/c"))
    _log_dirs(served, moved=True)
    assert served.run(*move, "/b", "--wait").stdout.endswith("All replicas have moved.\n")
    moved = "t-0 moves to /b of node 1.\nAll replicas have moved.\n"
    assert served.run(*move, "/b", "--wait", "t:0").stdout == moved, "it is the same partition"
    _log_dirs(served, moved=False, error="/b is full")
    assert "t-0: /b is full" in refused(served.run(*move, "/b", "--wait"))
    _log_dirs(served, moved=False)
    assert "request it again" in refused(served.run(*move, "/b", "--wait"))
    assert served.run("partition", "move-log-dir", "t-0").exit_code == USAGE


def test_a_rebalance_onto_too_few_nodes_is_not_wrong_usage(served: ServedCluster) -> None:
    served.run("topic", "create", "t", "--replica-assignment", "1:2")
    said = refused(served.run("cluster", "rebalance", "--to", "1"))
    assert said.startswith(
        "Error: t-0 has 2 replicas, more than there are nodes, 1: give more nodes with --to, or start "
    )
