"""The runbooks of docs/operations for what has failed, walked on three real nodes: each command of a section, in its
order.

A disk without space is one whose writes fail with ENOSPC, a wrong clock one that is set forward, in the node's ports.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from streamlog.client import EARLIEST, Consumer, Producer
from streamlog.errors import StorageError
from streamlog.model import Acks, PartitionId, ProducerEpoch, ProducerId, TopicPartition
from streamlog.ports.posix_disk import PosixFile
from streamlog.ports.system import SystemClock
from streamlog.pytest_plugin import cluster as plugin
from streamlog.pytest_plugin.cluster import InProcessCluster
from streamlog.records.header import TRANSACTIONAL_BIT
from tests.cli.commands import COMMAND, environment
from tests.operations.operator import Operator
from tests.operations.runbook import commands
from tests.storage.batches import batch

READ_S = 60.0
HOUR_MS = 3_600_000
HANGING = 900_000
"""A producer id that no node allocates here."""
AFTER_ALL = "2100-01-01T00:00:00Z"


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    with InProcessCluster(tmp_path / "cluster") as cluster:
        one = Operator(cluster, tmp_path / "cluster")
        one.run(["topic", "create", "orders", "--replica-assignment", "1:2:3"])
        yield one


def write(operator: Operator, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=operator.cluster.bootstrap_servers) as producer:
        for sent in [producer.send(topic, b"record %d" % number) for number in range(count)]:
            sent.result(READ_S)


def read(operator: Operator, topic: str, count: int) -> list[bytes | None]:
    """The first committed records of partition 0."""
    found: list[bytes | None] = []
    with Consumer(bootstrap_servers=operator.cluster.bootstrap_servers, isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition(topic, PartitionId(0))], start=EARLIEST)
        while len(found) < count:
            some = consumer.poll(timeout_s=READ_S)
            assert some, f"{len(found)} of {count} records"
            found += [record.value for record in some]
    return found


def first_errors(operator: Operator, *commands: list[str]) -> list[str]:
    """The first line of each on standard error; they run without an end."""
    readers = [
        subprocess.Popen(
            [*COMMAND, *words], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment(operator.cluster)
        )
        for words in commands
    ]
    found = []
    for one in readers:
        with one:
            assert one.stderr is not None
            found.append(one.stderr.readline().decode().strip())
            one.kill()
    return found


def test_the_majority_of_the_voters_is_lost(operator: Operator) -> None:
    """Nothing can be created, and the command that names the voters answers all the same."""
    (quorum,) = commands("The majority of the voters is lost")
    for node_id in (2, 3):
        operator.cluster.stop_node(node_id)
    # Once the leader has noticed it; what it had accepted before may be carried out or not.
    create = ["topic", "create", "late", "--request-timeout-ms", "2000"]
    operator.until(lambda: "No metadata quorum: 1 of 3 voters answers" in operator.output(create))
    shown = operator.run(quorum, status=1)
    assert re.findall(r"^(\d)\t\S+\tvoter\t(yes|no)\b", shown, re.MULTILINE) == [("1", "yes"), ("2", "no"), ("3", "no")]
    assert "No metadata quorum: 1 of 3 voters answers this machine: start the nodes that do not." in shown
    health = operator.output(["cluster", "health"])
    for node_id in (2, 3):
        assert re.search(rf"Node {node_id} (does not answer at|\(\S+\) is fenced)", health), health
    for said in first_errors(
        operator, ["consume", "orders"], ["verifiable", "consume", "--topic", "orders", "--group-id", "readers"]
    ):
        assert (
            said == "Waiting for records: No metadata quorum: 1 of 3 voters answers (see: streamlogctl cluster quorum)."
        )
    logger = ["broker-logger", "describe", "--broker"]
    assert "root" in operator.run([*logger, "1"])
    look = [*logger, "2", "--request-timeout-ms", "3000"]
    operator.until(lambda: "node 2 " in operator.run(look, status=1))
    assert "quorum" not in operator.run(look, status=1), "that node would not answer with one either"
    operator.cluster.start_node(2)
    operator.cluster.start_node(3)
    operator.until(operator.nothing_is_under_replicated)
    operator.run(["topic", "create", "after"])


def test_partitions_without_a_leader(operator: Operator) -> None:
    """The last one in sync is lost; the other replica lacks what was written after it had stopped."""
    unavailable, dry_run, elect = commands("Partitions without a leader")
    operator.run(["topic", "create", "two", "--replica-assignment", "2:3", "--config", "min.insync.replicas=1"])
    write(operator, "two", 3)
    operator.cluster.stop_node(3)
    write(operator, "two", 2)
    operator.cluster.stop_node(2)
    operator.cluster.start_node(3)
    operator.until(lambda: "Topic: two" in operator.run(unavailable))
    assert "two-0" in operator.run(dry_run)
    operator.run(elect)
    operator.until(lambda: "Topic: two" not in operator.run(unavailable))
    assert read(operator, "two", 3) == [b"record 0", b"record 1", b"record 2"]
    operator.cluster.start_node(2)
    operator.until(operator.nothing_is_under_replicated)


def test_a_hanging_transaction(operator: Operator) -> None:
    """Of a producer that no coordinator knows; readers of committed records wait before it until it is ended."""
    listing, find, abort = commands("A hanging transaction")
    write(operator, "orders", 1)
    hang(operator.cluster, "orders", HANGING)
    write(operator, "orders", 2)
    operator.run(listing)
    operator.run(find)
    assert "orders" in operator.run([*find, "--open-for-ms", "0"])
    operator.run([str(HANGING) if word == "1000" else word for word in abort])
    assert "orders" not in operator.run([*find, "--open-for-ms", "0"])
    assert read(operator, "orders", 3) == [b"record 0", b"record 0", b"record 1"]


def hang(cluster: InProcessCluster, topic: str, producer_id: int) -> None:
    """A batch of a transaction in partition 0, past the verification that every producer's batch goes through."""
    leader = cluster.with_admin(lambda admin: admin.describe_topic(topic)).partitions[0].leader
    assert leader is not None
    node = cluster._nodes[leader]._node
    assert node is not None
    assert node._plane is not None
    replica = node._plane.replicas.leader(topic, None, PartitionId(0))
    now_ms = SystemClock().wall_ms()
    data = batch([b"?"], producer=(producer_id, 0, 0), attributes=TRANSACTIONAL_BIT, timestamp=now_ms)

    async def append() -> None:
        with replica.appends.verifications.begin(ProducerId(producer_id), ProducerEpoch(0)) as guard:
            await replica.wait_for(replica.appends.append_encoded(data, Acks.ALL, guard))

    cluster._run(append())


class Clock(SystemClock):
    """Its wall clock is set forward by this."""

    ahead_ms = HOUR_MS

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


def test_a_clock_is_wrong(operator: Operator) -> None:
    """It is set right while the node runs."""
    describe, health = commands("A clock is wrong")
    clock = Clock()

    def skew_ms() -> int | None:
        nodes = {node["node"]: node for node in operator.json("cluster", "describe")["nodes"]}
        found: int | None = nodes[3]["clock_skew_ms"]
        return found

    operator.cluster.stop_node(3)
    with patch.object(plugin, "SystemClock", lambda: clock):
        operator.cluster.start_node(3)
    operator.until(lambda: (skew_ms() or 0) > HOUR_MS // 2)
    assert str(skew_ms()) in operator.run(describe)
    assert "The clock of node 3 " in operator.run(health, status=3)
    clock.ahead_ms = 0
    operator.until(lambda: "The clock of node 3 " not in operator.output(health))
    assert abs(skew_ms() or 0) < HOUR_MS // 2


class FullDisk:
    """While `is_full`, files below the directory cannot grow."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)
        self.is_full = False
        self.refused = 0

    @contextmanager
    def installed(self) -> Iterator[None]:
        disk, pwritev = self, PosixFile.pwritev

        def limited(self: PosixFile, buffers: Sequence[bytes], offset: int) -> None:
            if disk.is_full and self.path.startswith(disk.directory):
                disk.refused += 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
            pwritev(self, buffers, offset)

        with patch.object(PosixFile, "pwritev", limited):
            yield


def test_a_disk_is_full(operator: Operator) -> None:
    """What keeps less, and what follows where it comes too late: with its only directory the node stops; there is space
    again, it is restarted and catches up.
    """
    by_node, by_topic, retention, dry_run, trim = commands("A disk is full")
    write(operator, "orders", 5)
    operator.run(by_node)
    operator.until(lambda: "orders" in operator.run(by_topic))
    operator.run(retention)
    for words in (dry_run, trim):
        assert "orders" in operator.run([AFTER_ALL if word.startswith("2026-") else word for word in words])
    disk = FullDisk(operator.directory / "node-2")
    with disk.installed():
        disk.is_full = True
        write(operator, "orders", 5)
        operator.until(lambda: not operator.nothing_is_under_replicated())
        with pytest.raises(StorageError, match="No space left on device"):
            operator.cluster.stop_node(2)
        assert disk.refused
    operator.cluster.start_node(2)
    operator.until(operator.nothing_is_under_replicated)
    write(operator, "orders", 1)
    operator.run(["partition", "verify", "orders"])


def test_a_backup_is_restored(operator: Operator, tmp_path: Path) -> None:
    """Of a group's offsets by a file, of a whole cluster by copies of all directories."""
    export, restore, _by_time = commands("Backup and restore")[-3:]
    write(operator, "orders", 4)
    with Consumer(bootstrap_servers=operator.cluster.bootstrap_servers, group_id="billing") as consumer:
        consumer.commit({TopicPartition("orders", PartitionId(0)): 3})
    assert export[-2:] == [">", "offsets.csv"]
    (tmp_path / "offsets.csv").write_text(operator.run(export[:-2]))
    operator.run(["group", "reset-offsets", "billing", "--topic", "orders", "--to-earliest", "--execute"])
    operator.run([str(tmp_path / word) if word == "offsets.csv" else word for word in restore])
    (committed,) = operator.cluster.with_admin(lambda admin: admin.list_group_offsets("billing")).values()
    assert committed.offset == 3
    for node_id in (1, 2, 3):
        operator.cluster.stop_node(node_id)
    copy = tmp_path / "copy"
    shutil.copytree(operator.directory, copy)
    shutil.rmtree(operator.directory)
    shutil.copytree(copy, operator.directory)
    with ThreadPoolExecutor(3) as together:
        list(together.map(operator.cluster.start_node, (1, 2, 3)))
    assert read(operator, "orders", 4) == [b"record %d" % number for number in range(4)]
    (committed,) = operator.cluster.with_admin(lambda admin: admin.list_group_offsets("billing")).values()
    assert committed.offset == 3
