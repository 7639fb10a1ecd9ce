"""The log directory: lock, identity, deletion, strays, one common fate (FAULTS: security, disk)."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from itertools import pairwise

import pytest

from streamlog.errors import DamagedFileError, InconsistentClusterError, LogDirectoryLockedError, StorageError
from streamlog.model import BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionId, TopicPartition
from streamlog.ports import FileSystem
from streamlog.records import validate
from streamlog.sim.machine import Machine
from streamlog.storage.directories import directory, offset_checkpoints
from streamlog.storage.directories.directory import LogDirectory
from streamlog.storage.files import names
from streamlog.storage.files.replace_file import read_file
from streamlog.storage.log.derived_state import DerivedState
from streamlog.storage.log_config import LogConfig
from tests.storage.batches import batch
from tests.storage.rig import DIRECTORY, LIMITS, PARTITION, Rig

CONFIG = LogConfig(segment_index_bytes=1024, file_delete_delay_ms=1000)


def opened(machine: Machine, *, node_id: int = 1, cluster_id: str | None = "cluster") -> LogDirectory:
    return machine.run(
        LogDirectory.open(
            machine.fs,
            DIRECTORY,
            clock=machine.clock,
            random=machine.random,
            probe=lambda event, /, **fields: None,
            node_id=BrokerId(node_id),
            cluster_id=cluster_id,
        )
    )


def listing(rig: Rig, path: str = DIRECTORY) -> list[str]:
    return rig.do(lambda: rig.machine.fs.list(path))


def test_a_second_owner_is_refused(rig: Rig) -> None:
    with pytest.raises(LogDirectoryLockedError, match="in use"):
        opened(rig.machine)
    rig.stop()
    opened(rig.machine)


def test_a_directory_whose_checkpoints_cannot_be_read_is_unlocked(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(1)

    def failing(fs: FileSystem, path: str) -> None:
        raise OSError(errno.EIO, "Input/output error", path)

    rig = Rig(machine, CONFIG)
    rig.machine.run(rig.directory.checkpoint())
    rig.stop()
    with monkeypatch.context() as patch:
        patch.setattr(offset_checkpoints, "read_offsets", failing)
        with pytest.raises(OSError, match="Input/output error"):
            opened(machine)
    opened(machine)


def test_another_node_or_cluster_is_refused_and_nothing_changes(rig: Rig) -> None:
    rig.stop()
    with pytest.raises(InconsistentClusterError, match="node 1"):
        opened(rig.machine, node_id=2)
    with pytest.raises(InconsistentClusterError, match="cluster"):
        opened(rig.machine, cluster_id="other")
    rig.start()
    assert rig.directory.clean_epoch == 7


def test_the_cluster_id_may_come_later_and_then_stays() -> None:
    machine = Machine(1)
    directory = opened(machine, cluster_id=None)
    assert directory.meta.cluster_id is None
    machine.run(directory.close(BrokerEpoch(1)))
    first = opened(machine)
    assert (first.meta.cluster_id, first.meta.directory_id) == ("cluster", directory.meta.directory_id)
    machine.run(first.close(BrokerEpoch(1)))
    assert opened(machine, cluster_id=None).meta.cluster_id == "cluster"
    machine.close()


def test_damaged_meta_properties_are_reported_with_a_remedy(rig: Rig) -> None:
    rig.stop()
    rig.machine.disk.damage(f"{DIRECTORY}/{names.META_PROPERTIES}", 0, b"versi0n")
    with pytest.raises(DamagedFileError, match="restore the file"):
        opened(rig.machine)


def test_the_clean_mark_is_removed_before_anything_else(rig: Rig) -> None:
    rig.stop()
    assert names.CLEAN_SHUTDOWN in listing(rig)
    rig.start()
    assert names.CLEAN_SHUTDOWN not in listing(rig)
    rig.power_cut()
    assert rig.directory.clean_epoch is None


def test_deletion_renames_at_once_and_removes_later() -> None:
    rig = Rig(Machine(1), CONFIG)
    rig.append(b"a")
    rig.machine.run(rig.directory.remove_log(PARTITION))
    (renamed,) = [name for name in listing(rig) if name.endswith("-delete")]
    assert renamed.startswith("topic-0.")
    rig.machine.sleep(1.1)
    rig.machine.run(rig.directory.reaper.remove_due())
    assert renamed not in listing(rig)


def test_a_deletion_that_was_cut_short_is_finished_at_the_next_start() -> None:
    rig = Rig(Machine(1), CONFIG)
    rig.append(b"a")
    rig.machine.run(rig.directory.remove_log(PARTITION))
    rig.crash()
    rig.machine.run(rig.directory.reaper.remove_due())
    assert not [name for name in listing(rig) if name.endswith("-delete")]


@pytest.mark.parametrize("change", ["renamed", "a directory in it", "a file"])
def test_a_deleted_directory_that_is_changed_by_hand_leaves_the_disk_online(change: str) -> None:
    rig = Rig(Machine(1), CONFIG)
    rig.append(b"a")
    rig.machine.run(rig.directory.remove_log(PARTITION))
    (name,) = [name for name in listing(rig) if name.endswith("-delete")]
    fs, path = rig.machine.fs, f"{DIRECTORY}/{name}"

    def by_hand() -> None:
        if change == "a directory in it":
            fs.mkdir(f"{path}/more")
            return
        fs.rename(path, f"{DIRECTORY}/rescued")
        if change == "a file":
            fs.open(path, create=True).close()

    rig.do(by_hand)
    rig.machine.sleep(1.1)
    rig.machine.run(rig.directory._guard(rig.directory.reaper.remove_due))  # type: ignore[arg-type]  # its result is not used
    assert rig.directory.failure is None
    assert [fields["path"] for event, fields in rig.events if event == "directory_not_removed"] == [path]
    assert (name in listing(rig)) == (change != "renamed")


def test_a_directory_with_many_files_is_removed_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "REMOVED_AT_ONCE", 2)
    rig = Rig(Machine(1), CONFIG)
    rig.append(b"a")
    rig.machine.run(rig.directory.remove_log(PARTITION))
    (name,) = [name for name in listing(rig) if name.endswith("-delete")]
    rig.machine.sleep(1.1)
    left = [len(listing(rig, f"{DIRECTORY}/{name}"))]
    while name in listing(rig):
        rig.do(rig.directory.reaper._remove_next)
        left.append(len(listing(rig, f"{DIRECTORY}/{name}")) if name in listing(rig) else 0)
    assert len(left) > 2
    assert all(before - after <= 2 for before, after in pairwise(left))


def test_after_a_fail_over_what_logs_derive_is_written_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(Machine(1), CONFIG)
    others = [TopicPartition("topic", PartitionId(number)) for number in range(1, 100)]
    turns: Counter[str] = Counter()
    write, install = DerivedState.write, DerivedState.install

    def counted_write(derived: DerivedState) -> bool:
        has_written = write(derived)
        turns[f"write {rig.machine.loop.steps}"] += has_written
        return has_written

    def counted_install(derived: DerivedState) -> None:
        turns[f"install {rig.machine.loop.steps}"] += 1
        install(derived)

    monkeypatch.setattr(DerivedState, "write", counted_write)
    monkeypatch.setattr(DerivedState, "install", counted_install)

    async def story() -> None:
        for partition in others:
            await rig.directory.create_log(partition, CONFIG)
        await rig.directory.checkpoint()
        for log in rig.directory.logs.values():
            log.assign_epoch(LeaderEpoch(5))
        turns.clear()
        checkpoint = asyncio.ensure_future(rig.directory.checkpoint())
        await asyncio.sleep(0)
        removal = asyncio.ensure_future(rig.directory.remove_log(others[-1]))  # in the middle of it
        await asyncio.gather(checkpoint, removal)

    rig.machine.run(story())
    assert max(turns.values()) <= 32
    assert sum(count for turn, count in turns.items() if turn.startswith("install")) == 99
    rig.directory.check()
    paths = [f"{rig.directory.partition_path(one)}/{names.LEADER_EPOCHS}" for one in rig.directory.logs]
    written = rig.do(lambda: [read_file(rig.machine.fs, path, 1_000) for path in paths])
    assert len(written) == 99
    assert all(b"5 0" in (text or b"") for text in written)


def test_a_log_that_is_removed_during_a_checkpoint_has_no_recovery_point_above_what_was_written() -> None:
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, file_delete_delay_ms=1000, segment_bytes=1024))
    others = [TopicPartition("topic", PartitionId(number)) for number in range(1, 100)]

    def append(epoch: int) -> None:
        data = batch([b"x" * 900])
        found = validate(data, 0, len(data), LIMITS, rig.now_ms)
        rig.directory.logs[others[-1]].append_as_leader(data, found, LeaderEpoch(epoch), rig.now_ms)

    async def story() -> None:
        for partition in others:
            await rig.directory.create_log(partition, rig.config)
        append(1)
        await rig.directory.group_commit.sync_now()
        await rig.directory.checkpoint()
        for epoch in (2, 3, 4):
            append(epoch)
        await rig.directory.group_commit.sync_now()
        for partition, log in rig.directory.logs.items():
            if partition != others[-1]:
                log.assign_epoch(LeaderEpoch(5))
        checkpoint = asyncio.ensure_future(rig.directory.checkpoint())
        await asyncio.sleep(0)
        removal = asyncio.ensure_future(rig.directory.remove_log(others[-1]))
        await checkpoint
        assert not removal.done()

    rig.machine.run(story())
    rig.power_cut()
    log = rig.directory.logs[others[-1]]
    assert log.damage is None
    assert log.log_end_offset == 4
    assert [entry.epoch for entry in log.derived.epochs.entries] == [1, 2, 3, 4]


def test_strays_are_kept_and_reported() -> None:
    rig = Rig(Machine(1), CONFIG)
    rig.append(b"a")
    rig.machine.run(rig.directory.remove_log(PARTITION, stray=True))
    rig.crash()
    assert [name for name in listing(rig) if name.endswith("-stray")]
    assert "stray_directory" in [event for event, _ in rig.events]


def test_long_topic_names_fit_after_removal() -> None:
    partition = TopicPartition("t" * 249, PartitionId(999_999))
    name = names.removed_directory_name(partition, 2**128 - 1, names.DELETE_SUFFIX)
    assert len(name) == 255
    assert names.is_deleted_or_stray(name)
    assert names.parse_partition_directory(name) is None


@pytest.mark.parametrize("name", ["topic", "topic-", "-1", "topic-01", "topic-x", "to/pic-1", "topic-12345678901"])
def test_other_directories_are_left_alone(name: str) -> None:
    assert names.parse_partition_directory(name) is None


def test_one_failed_sync_takes_all_logs_of_the_directory_offline(rig: Rig) -> None:
    other = TopicPartition("other", PartitionId(3))

    async def live() -> None:
        log = await rig.directory.create_log(other, CONFIG)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(rig.directory.run())
            waiting = [
                tasks.create_task(_outcome(rig.log.durability.wait_until_synced(Offset(1)))),
                tasks.create_task(_outcome(running)),
            ]
            await asyncio.sleep(0.05)
            rig.machine.disk.faults.sync_errors = 1
            rig.log.durability.request()
        assert [isinstance(task.result(), StorageError) for task in waiting] == [True, True]
        with pytest.raises(StorageError):
            log.try_read(Offset(0), 100)

    async def _outcome(work: object) -> BaseException | None:
        try:
            await work  # type: ignore[misc]  # a coroutine or a task
        except StorageError as e:
            return e
        return None

    rig.append(b"a")
    with pytest.raises(ExceptionGroup) as group:
        rig.machine.run(live())
    assert group.group_contains(StorageError)
    assert rig.directory.failure is not None


def test_group_commit_shares_syncs(rig: Rig) -> None:
    """Appends that arrive while a sync runs share the next one (SEMANTICS 5)."""

    async def live() -> int:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(rig.directory.run())
            before = rig.directory.group_commit.syncs
            await asyncio.gather(*[tasks.create_task(_one(i)) for i in range(64)])
            running.cancel()
        return rig.directory.group_commit.syncs - before

    async def _one(i: int) -> None:
        data = batch([b"%d" % i])
        done = rig.log.append_as_leader(data, validate(data, 0, len(data), LIMITS, 0), LeaderEpoch(0), 0)
        await rig.log.durability.wait_until_synced(done.next_offset)

    assert rig.machine.run(live()) <= 3


def test_logs_removed_while_they_are_synced_leave_the_directory_alone() -> None:
    """One of the files of a group commit goes while the other is synced, or before its turn comes."""
    for step in range(12):
        rig = Rig(Machine(step))
        machine, other = rig.machine, TopicPartition("other", PartitionId(0))

        async def removing(rig: Rig = rig, other: TopicPartition = other, step: int = step) -> None:
            logs = [rig.log, await rig.directory.create_log(other, rig.config)]
            committing = asyncio.get_running_loop().create_task(rig.directory.group_commit.run())
            await asyncio.sleep(0.01)
            data = batch([b"a"])
            for log in logs:
                log.append_as_leader(data, validate(data, 0, len(data), LIMITS, 0), LeaderEpoch(0), 0)
            for _ in range(step):
                await asyncio.sleep(1e-4)
            await rig.directory.remove_log(other)
            await asyncio.sleep(0.01)
            assert logs[0].ackable_end == 1
            committing.cancel()
            await asyncio.wait([committing])
            assert committing.cancelled()

        machine.run(removing())
        assert rig.directory.failure is None
        machine.close()
