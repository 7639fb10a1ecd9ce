"""Stopping and restarting one log: what is trusted, what is durable, what is damage (SEMANTICS 11)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from streamlog.errors import (
    StorageError,
)
from streamlog.model import LeaderEpoch, Offset, PartitionId, TopicPartition
from streamlog.records import validate
from streamlog.sim.machine import Machine
from streamlog.sim.process import Killed
from streamlog.storage.directories.offset_checkpoints import OffsetCheckpoints
from streamlog.storage.log_config import LogConfig
from streamlog.storage.recovery.recovery import Recovered, Recovery
from tests.storage.batches import batch
from tests.storage.rig import LIMITS, PARTITION, Rig


def test_a_clean_stop_is_believed_and_an_unclean_one_is_not(rig: Rig) -> None:
    for i in range(50):
        rig.append(b"%d" % i * 40, epoch=i // 20)
    rig.stop()
    rig.start()
    assert rig.directory.clean_epoch == 7
    assert len(rig.values()) == 50
    assert rig.log.epochs.latest == 2
    rig.append(b"more", epoch=2)
    rig.crash()
    assert rig.directory.clean_epoch is None
    assert len(rig.values()) == 51


def test_an_empty_log_is_not_scanned_after_a_clean_stop(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor synced: of thousands of new partitions that took most of a start."""
    scanned: list[str] = []
    run = Recovery.run

    async def counted(self: Recovery) -> Recovered:
        scanned.append("a log")
        return await run(self)

    monkeypatch.setattr(Recovery, "run", counted)
    rig.stop()
    rig.start()
    assert rig.directory.clean_epoch == 7
    assert not scanned
    assert rig.values() == []
    rig.append(b"first")
    rig.sync()
    rig.power_cut()
    assert scanned
    assert rig.values() == [(0, b"first")]


def test_a_log_that_was_empty_at_a_clean_stop_and_has_bytes_is_scanned(rig: Rig) -> None:
    rig.stop()
    rig.do(lambda: rig.machine.fs.open("/data/topic-0/00000000000000000000.log").pwritev([bytes(100)], 0))
    rig.start()
    assert "clean_stop_disproved" in [event for event, _ in rig.events]


@pytest.mark.parametrize("compact", [False, True])
def test_an_active_segment_that_is_emptied_after_a_clean_stop_is_damage(compact: bool) -> None:
    """It was taken for one that nothing had been written to, and the replica, without its records, for in sync."""
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, cleanup_compact=compact))
    for i in range(5):
        rig.append(b"%d" % i, keys=[b"key"])
    rig.stop()
    rig.do(lambda: rig.machine.fs.open("/data/topic-0/00000000000000000000.log").truncate(0))
    rig.start()
    assert "clean_stop_disproved" in [event for event, _ in rig.events]
    assert "was durable up to 5" in str(rig.log.damage)
    rig.machine.close()


def test_a_compacted_log_that_a_truncation_left_empty_behind_a_gap_is_opened_as_it_was() -> None:
    """It was taken for damaged: the segment's base offset is below the end."""
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, cleanup_compact=True))
    rig.do(lambda: rig.log.append_as_follower(batch([b"a"], keys=[b"key"], base_offset=5, epoch=0)))
    rig.sync()
    rig.machine.run(rig.log.truncate(Offset(5)))
    assert (rig.log.segments.active.base_offset, rig.log.log_end_offset) == (0, 5)
    rig.stop()
    rig.start()
    assert rig.log.damage is None
    assert "clean_stop_disproved" not in [event for event, _ in rig.events]
    assert rig.log.log_end_offset == 5
    rig.append(b"b", keys=[b"key"])
    assert rig.values() == [(5, b"b")]
    rig.machine.close()


def test_removed_logs_leave_nothing_to_their_namesakes(rig: Rig) -> None:
    for i in range(5):
        rig.append(b"%d" % i)
    rig.do(lambda: rig.log.advance_log_start(Offset(3)))
    rig.sync()
    rig.machine.run(rig.directory.checkpoint())
    rig.machine.run(rig.directory.remove_log(PARTITION))
    rig.machine.run(rig.directory.create_log(PARTITION, rig.config))
    rig.append(b"fresh")
    rig.sync()
    rig.power_cut()
    assert rig.values() == [(0, b"fresh")]
    assert rig.log.damage is None


def test_logs_that_are_removed_together_share_the_checkpoints(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleting a topic of many partitions went through all logs of the node for each of them."""
    others = [TopicPartition("other", PartitionId(number)) for number in range(10)]
    passes: list[list[TopicPartition]] = []

    async def counted(self: OffsetCheckpoints, known: dict[TopicPartition, Offset]) -> None:
        passes.append(list(known))

    async def story() -> None:
        for one in others:
            await rig.directory.create_log(one, rig.config)
        await rig.directory.checkpoint()
        monkeypatch.setattr(OffsetCheckpoints, "write_cleaned", counted)
        await asyncio.gather(*(rig.directory.remove_log(one) for one in others))

    rig.machine.run(story())
    assert list(rig.directory.checkpoints.recovery_points) == [PARTITION]
    assert passes == [[PARTITION, *others[1:]], [PARTITION]]


# Found by test_state_machine, shrunk to a script.


def test_an_epoch_that_begins_while_a_checkpoint_is_written_is_in_the_next_one() -> None:
    """Simulated seed 388 of the cluster: its file was put in place after the epoch began, and taken for up to date."""
    rig = Rig(Machine(1), LogConfig(segment_bytes=500, segment_index_bytes=1024))

    async def checkpoint_and_begin_an_epoch() -> None:
        checkpoint = asyncio.create_task(rig.directory.checkpoint())
        await asyncio.sleep(0)  # it writes, and waits for its sync
        assert rig.machine.fs.exists(f"{rig.log.directory}/leader-epoch-checkpoint.tmp")
        rig.log.append_as_leader(data, found, LeaderEpoch(1), rig.now_ms)
        await checkpoint

    rig.append(b"of the first", epoch=0)
    rig.sync()
    data = batch((b"of the second",))
    found = validate(data, 0, len(data), LIMITS, rig.now_ms)
    rig.machine.run(checkpoint_and_begin_an_epoch())
    for _ in range(10):  # into later segments: recovery does not read the one where the epoch began
        rig.append(b"x" * 200, epoch=1)
    rig.sync()
    rig.machine.run(rig.directory.checkpoint())
    rig.power_cut()
    assert rig.log.epochs.entries == ((0, 0), (1, 1))
    rig.machine.close()


def test_a_restart_that_was_not_durable_is_not_promised(rig: Rig) -> None:
    """A recovery point written after `restart_at`, before its names are synced, must not lie above the old log."""
    rig.append(b"old")
    rig.sync()
    rig.machine.run(rig.log.restart_at(Offset(22)))
    rig.machine.run(rig.directory.checkpoint())
    assert rig.log.ackable_end == 0
    for seed in range(20):  # whichever part of the changes the power cut keeps
        copy = Rig(Machine(seed))
        copy.append(b"old")
        copy.sync()
        copy.machine.run(copy.log.restart_at(Offset(22)))
        copy.machine.run(copy.directory.checkpoint())
        copy.power_cut()
        assert copy.log.damage is None
        copy.machine.close()


def test_a_log_that_restarts_lower_is_not_cut_by_an_older_log_start(rig: Rig) -> None:
    """The log start on disk is lowered before the log begins below it."""
    rig.machine.run(rig.log.restart_at(Offset(12)))
    rig.sync()
    rig.machine.run(rig.directory.checkpoint())
    rig.machine.run(rig.log.restart_at(Offset(11)))
    rig.append(b"a", b"b")
    rig.sync()
    rig.power_cut()
    assert rig.values() == [(11, b"a"), (12, b"b")]


def test_the_names_on_the_way_to_the_directory_are_durable() -> None:
    for seed in range(20):
        rig = Rig(Machine(seed))
        rig.append(b"a")
        rig.sync()
        rig.power_cut()
        assert rig.values() == [(0, b"a")]
        rig.machine.close()


def test_a_restart_that_a_power_cut_undoes_hides_nothing_that_is_appended_after_it(rig: Rig) -> None:
    """The checkpoint's log start, beyond the log's end since then, does not apply to what is appended from there on."""
    rig.append(b"a")
    rig.sync()
    rig.machine.run(rig.directory.save_log_starts({PARTITION: Offset(6)}))  # restart_at(6), and no further
    rig.power_cut()
    end = rig.log.log_end_offset
    rig.append(b"b", b"c")
    rig.sync()
    rig.crash()
    assert [value for offset, value in rig.values() if offset >= end] == [b"b", b"c"]


def test_a_first_segment_that_is_missing_after_a_kill_is_damage() -> None:
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, segment_bytes=150))
    for i in range(6):
        rig.append(b"%d" % i * 50)
    rig.sync()
    rig.machine.run(rig.directory.checkpoint())
    rig.machine.disk.remove(rig.log.segments.first.path(".log"))
    rig.crash()
    assert rig.log.damage is not None
    assert "missing" in str(rig.log.damage)


def test_a_missing_first_segment_is_found_again_at_the_next_start() -> None:
    """Until it is repaired: a checkpoint between the two starts does not write the later log start."""
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, segment_bytes=150))
    for i in range(6):
        rig.append(b"%d" % i * 50)
    rig.sync()
    rig.machine.run(rig.directory.checkpoint())
    rig.machine.disk.remove(rig.log.segments.first.path(".log"))
    rig.crash()
    rig.machine.run(rig.directory.checkpoint())
    rig.crash()
    assert rig.log.lost_head == 0
    rig.machine.run(rig.log.discard_damage())
    assert (rig.log.log_start_offset, rig.log.log_end_offset) == (0, 0)


@pytest.mark.parametrize("step", ["retention", "restart", "truncation"])
def test_a_disk_that_refuses_the_checkpoint_takes_its_directory_offline(step: str) -> None:
    """StorageError, as every failed write, never a bare OSError: only this directory ends."""
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, segment_bytes=150))
    for i in range(6):
        rig.append(b"%d" % i * 50)
    rig.sync()
    rig.machine.run(rig.directory.checkpoint())
    rig.log.advance_log_start(Offset(4))
    rig.machine.disk.faults.write_errors = 1
    steps: dict[str, Callable[[], object]] = {
        "retention": lambda: rig.retain(None, 6),
        "restart": lambda: rig.machine.run(rig.log.restart_at(Offset(9))),
        "truncation": lambda: rig.machine.run(rig.log.truncate(Offset(5))),
    }
    with pytest.raises(StorageError):
        steps[step]()
    assert rig.directory.failure is not None


def test_a_log_start_is_saved_only_for_a_log_that_is_here(rig: Rig) -> None:
    rig.machine.run(rig.directory.remove_log(PARTITION))
    rig.machine.run(rig.directory.save_log_starts({PARTITION: Offset(7)}))
    rig.machine.run(rig.directory.create_log(PARTITION, rig.config))
    assert rig.log.log_start_offset == 0


def test_a_kill_at_any_point_of_retention_is_no_damage() -> None:
    for changes in range(20):
        rig = Rig(Machine(changes), LogConfig(segment_index_bytes=1024, segment_bytes=150))
        for i in range(6):
            rig.append(b"%d" % i * 50)
        rig.sync()
        rig.machine.run(rig.directory.checkpoint())
        rig.log.advance_log_start(Offset(4))
        rig.machine.cut_after(changes)
        with contextlib.suppress(Killed):
            rig.retain(None, 6)
        rig.machine.cut_after(None)
        rig.power_cut()
        assert rig.log.damage is None
        assert [offset for offset, _ in rig.values()][-2:] == [4, 5]
        rig.machine.close()
