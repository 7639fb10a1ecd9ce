"""New replicas are created a few at a time, and wait where the process may open no more files."""

from __future__ import annotations

import pytest

from streamlog.broker.table.replica_creations import AT_ONCE, FILES_FREE, WARNED_EACH_S
from streamlog.errors import LeaderNotAvailableError
from streamlog.model import TopicPartition
from streamlog.storage.directories.directories import LogDirectories
from streamlog.storage.log.log import Log
from streamlog.storage.log_config import LogConfig
from tests.broker.rig import Rig

EVENT = "replicas_lack_descriptors"


def create(rig: Rig, count: int) -> None:
    for number in range(1, count + 1):
        rig.create(f"t{number}", number)


def test_new_replicas_wait_for_descriptors(rig: Rig) -> None:
    """A request for more partitions than the process may open files for ended all nodes: EMFILE, on a disk that is
    fine.
    """
    rig.create("old", 99)
    rig.rest()
    rig.machine.disk.faults.free_descriptors = FILES_FREE - 1
    create(rig, 20)
    rig.rest(WARNED_EACH_S - 10)
    assert rig.names() == ["old-0"]
    with pytest.raises(LeaderNotAvailableError):
        rig.leader("t1", 1)
    assert rig.probed(EVENT) == [{"free": FILES_FREE - 1, "needed": FILES_FREE}]
    assert rig.replicas.lacks_descriptors
    rig.append(b"fine", name="old")
    rig.machine.disk.faults.free_descriptors = FILES_FREE
    rig.rest(5)
    assert len(rig.names()) == 21
    rig.append(b"now", name="t1")
    assert len(rig.probed(EVENT)) == 1
    assert not rig.replicas.lacks_descriptors


def test_a_topic_deleted_while_it_waits_is_not_created(rig: Rig) -> None:
    rig.machine.disk.faults.free_descriptors = 0
    create(rig, AT_ONCE + 1)
    rig.rest()
    for number in range(1, AT_ONCE + 2):
        rig.delete(number)
    rig.rest(5)
    rig.machine.disk.faults.free_descriptors = FILES_FREE
    rig.rest(5)
    assert rig.names() == []
    rig.create("u", 99)
    rig.rest()
    assert rig.names() == ["u-0"]


def test_the_warning_is_repeated_each_minute(rig: Rig) -> None:
    rig.machine.disk.faults.free_descriptors = 0
    rig.create("t")
    rig.rest(WARNED_EACH_S * 2 + 10)
    assert len(rig.probed(EVENT)) == 3


def test_a_few_are_created_at_a_time(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    original = LogDirectories.create_log
    active, seen = 0, set[int]()

    async def counted(self: LogDirectories, partition: TopicPartition, config: LogConfig) -> Log:
        nonlocal active
        active += 1
        seen.add(active)
        try:
            return await original(self, partition, config)
        finally:
            active -= 1

    monkeypatch.setattr(LogDirectories, "create_log", counted)
    create(rig, 100)
    rig.rest(5)
    assert len(rig.names()) == 100
    assert max(seen) == AT_ONCE
