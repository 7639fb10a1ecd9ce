"""Several log directories: placement, one failing without the others, and what does not belong together."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from typing import cast

import pytest

from streamlog.errors import InconsistentClusterError, StorageError
from streamlog.model import BrokerEpoch, BrokerId, PartitionId, TopicPartition
from streamlog.ports import FileSystem, no_probe
from streamlog.sim.machine import Machine
from streamlog.storage.directories.directories import LogDirectories
from streamlog.storage.directories.directory import LogDirectory
from streamlog.storage.log_config import LogConfig

CONFIG = LogConfig(segment_index_bytes=1024)
PATHS = ("/a", "/b", "/c")


@pytest.fixture
def machine() -> Iterator[Machine]:
    machine = Machine(1)
    yield machine
    machine.close()


def partition(number: int) -> TopicPartition:
    return TopicPartition("topic", PartitionId(number))


async def opened(machine: Machine, paths: tuple[str, ...] = PATHS) -> LogDirectories:
    directories = await LogDirectories.open(
        machine.fs, paths, clock=machine.clock, random=machine.random, probe=no_probe, node_id=BrokerId(1)
    )
    await directories.open_logs(lambda _: CONFIG)
    return directories


@pytest.mark.parametrize("topics", [("topic",), ("u", "topic")])
def test_partitions_that_are_made_at_once_spread_too(machine: Machine, topics: tuple[str, ...]) -> None:
    async def fill() -> list[list[int]]:
        directories = await opened(machine)
        for topic in topics:
            await asyncio.gather(
                *(directories.create_log(TopicPartition(topic, PartitionId(n)), CONFIG) for n in range(6))
            )
        counts = [[sum(p.topic == topic for p in one.logs) for one in directories] for topic in topics]
        await directories.close()
        return counts

    assert machine.run(fill()) == [[2, 2, 2]] * len(topics)


def test_a_topic_spreads_though_one_directory_is_emptier(machine: Machine) -> None:
    async def fill() -> list[int]:
        directories = await opened(machine)
        for number in range(4):
            await next(iter(directories)).create_log(TopicPartition("old", PartitionId(number)), CONFIG)
        for number in range(3):
            await directories.create_log(partition(number), CONFIG)
        counts = [sum(p.topic == "topic" for p in one.logs) for one in directories]
        await directories.close()
        return counts

    assert machine.run(fill()) == [1, 1, 1]


def test_partitions_spread_over_the_directories_and_are_found_again(machine: Machine) -> None:
    async def fill() -> list[int]:
        directories = await opened(machine)
        for number in range(7):
            await directories.create_log(partition(number), CONFIG)
        counts = [len(directory.logs) for directory in directories]
        await directories.close(BrokerEpoch(3))
        return counts

    assert machine.run(fill()) == [3, 2, 2]

    async def look() -> None:
        directories = await opened(machine)
        assert directories.clean_epoch == 3
        assert all(directories.get(partition(number)) is not None for number in range(7))
        await directories.remove_log(partition(0))
        assert directories.get(partition(0)) is None
        await directories.close()

    machine.run(look())


def test_a_directory_that_fails_leaves_the_others_at_work(machine: Machine) -> None:
    async def live() -> tuple[list[str], list[str]]:
        directories = await opened(machine)
        reported: list[str] = []

        def on_offline(directory: LogDirectory) -> None:
            reported.append(directory.path)

        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(directories.run(on_offline))
            await asyncio.sleep(0.01)
            list(directories)[1].fail(OSError(5, "I/O error"))
            await asyncio.sleep(0.01)
            assert sorted(directories.offline) == ["/b"]
            places = []
            for number in range(4):
                log = await directories.create_log(partition(number), CONFIG)
                places.append(log.directory)
            running.cancel()
        await directories.close()
        return reported, places

    reported, places = machine.run(live())
    assert reported == ["/b"]
    assert not [place for place in places if place.startswith("/b")]


class Failing:
    """The machine's files; those below the paths in `broken` cannot be listed."""

    def __init__(self, machine: Machine, error: int) -> None:
        self._fs = machine.fs
        self._error = error
        self.broken: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> object:
        return getattr(self._fs, name)

    def list(self, path: str) -> list[str]:
        if any(path == one or path.startswith(f"{one}/") for one in self.broken):
            raise OSError(self._error, "planted", path)
        return self._fs.list(path)


async def opened_on_broken_disks(machine: Machine, *broken: str, error: int = errno.EIO) -> LogDirectories:
    """They break between the opening of the directories and that of their logs."""
    files = Failing(machine, error)
    directories = await LogDirectories.open(
        cast(FileSystem, files),
        PATHS,
        clock=machine.clock,
        random=machine.random,
        probe=no_probe,
        node_id=BrokerId(1),
    )
    files.broken = broken
    try:
        await directories.open_logs(lambda _: CONFIG)
    except BaseException:
        await directories.close()
        raise
    return directories


async def filled(machine: Machine) -> None:
    directories = await opened(machine)
    for number in range(6):
        await directories.create_log(partition(number), CONFIG)
    await directories.close(BrokerEpoch(3))


# /b breaks as its moves are read, /b/topic-1 as its log is opened: partition 4 may be open by then.
@pytest.mark.parametrize("broken", ["/b", "/b/topic-1"])
def test_a_disk_that_fails_while_logs_are_opened_is_offline(machine: Machine, broken: str) -> None:
    async def live() -> None:
        await filled(machine)
        directories = await opened_on_broken_disks(machine, broken)
        assert sorted(directories.offline) == ["/b"]
        assert directories.clean_epoch is None
        found = [number for number in range(6) if directories.get(partition(number)) is not None]
        assert found == [0, 2, 3, 5]
        log = await directories.create_log(partition(6), CONFIG)
        assert not log.directory.startswith("/b")
        await directories.close()
        whole = await opened(machine)  # the lock of /b was released
        assert all(whole.get(partition(number)) is not None for number in range(7))
        await whole.close()

    machine.run(live())


def test_all_disks_that_fail_while_logs_are_opened_end_the_start(machine: Machine) -> None:
    async def live() -> None:
        await filled(machine)
        await opened_on_broken_disks(machine, *PATHS)

    with pytest.raises(StorageError, match=r"no log directory can be used: .*/a .*/b .*/c "):
        machine.run(live())


def test_a_lack_of_descriptors_is_no_failed_disk(machine: Machine) -> None:
    async def live() -> None:
        await filled(machine)
        await opened_on_broken_disks(machine, "/b", error=errno.EMFILE)

    with pytest.raises(OSError, match="planted"):
        machine.run(live())


def test_the_last_failure_ends_the_node(machine: Machine) -> None:
    async def live() -> None:
        directories = await opened(machine)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(directories.run(lambda _: None))
            await asyncio.sleep(0.01)
            for directory in directories:
                directory.fail(OSError(5, "I/O error"))

    with pytest.raises(ExceptionGroup) as group:
        machine.run(live())
    assert group.group_contains(StorageError)


def test_a_partition_in_two_directories_is_refused(machine: Machine) -> None:
    async def twice() -> None:
        directories = await opened(machine, ("/a", "/b"))
        await directories.create_log(partition(0), CONFIG)
        await list(directories)[1].create_log(partition(0), CONFIG)
        await directories.close()
        await opened(machine, ("/a", "/b"))

    with pytest.raises(InconsistentClusterError, match=r"/a and in /b"):
        machine.run(twice())


def test_a_copied_directory_is_refused(machine: Machine) -> None:
    async def copy() -> None:
        directories = await opened(machine, ("/a",))
        await directories.close()
        machine.fs.mkdir("/b")
        source = machine.fs.open("/a/meta.properties")
        machine.fs.open("/b/meta.properties", create=True).pwritev([source.pread(1000, 0)], 0)
        await opened(machine, ("/a", "/b"))

    with pytest.raises(InconsistentClusterError, match="copy"):
        machine.run(copy())

    async def alone() -> None:
        await (await opened(machine, ("/a",))).close()  # the locks were let go

    machine.run(alone())
