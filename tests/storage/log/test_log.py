"""Appending, reading, cutting and restarting one log (SEMANTICS 5, 6, 11)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

import pytest

from streamlog.errors import (
    CorruptMessageError,
    FencedLeaderEpochError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    StorageError,
    ThrottledError,
)
from streamlog.model import LeaderEpoch, Offset
from streamlog.records import TimestampType, read_header, validate
from streamlog.records.decode import decode_batch, iter_batches
from streamlog.sim.machine import Machine
from streamlog.sim.process import Killed
from streamlog.storage.files.checkpoints import EpochEntry
from streamlog.storage.log.epochs import LeaderEpochs
from streamlog.storage.log_config import LogConfig
from tests.storage.batches import batch
from tests.storage.rig import LIMITS, PARTITION, Rig


def test_what_is_appended_is_read(rig: Rig) -> None:
    first = rig.append(b"a", b"b")
    second = rig.append(b"c")
    assert (first.first_offset, first.next_offset) == (0, 2)
    assert (second.first_offset, second.next_offset) == (2, 3)
    assert rig.values() == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_known_positions_of_the_requirements(rig: Rig) -> None:
    """One record a batch, key group_demo, values {"id":0}...: positions 0, 86, 172, 258, 344, 430."""
    for i in range(6):
        rig.append(b'{"id":%d}' % i, keys=[b"group_demo"])
    data = rig.read(0)
    assert [data.find(b"group_demo", 86 * i) // 86 for i in range(6)] == list(range(6))
    assert len(data) == 516


def test_the_leader_stamps_offset_and_epoch_and_keeps_the_rest(rig: Rig) -> None:
    sent = batch([b"a"], base_offset=77, epoch=3)
    rig.append(b"x", epoch=5)
    rig.append_bytes(sent, epoch=5)
    stored = rig.read(1)
    assert read_header(stored, 0).base_offset == 1
    assert read_header(stored, 0).leader_epoch == 5
    assert stored[16:] == sent[16:]


def test_log_append_time_is_stamped_and_the_crc_follows(rig: Rig) -> None:
    rig.log.config = LogConfig(segment_index_bytes=1024, timestamp_type=TimestampType.LOG_APPEND_TIME)
    done = rig.append(b"a", timestamp=5)
    assert done.log_append_time_ms == rig.now_ms
    (record,) = decode_batch(rig.read(0))
    assert record.timestamp == rig.now_ms
    rig.crash()
    assert rig.log.log_end_offset == 1  # recovery checks the CRC


def test_nothing_is_ackable_before_its_sync(rig: Rig) -> None:
    rig.append(b"a")
    assert rig.log.ackable_end == 0
    rig.sync()
    assert rig.log.ackable_end == 1


def test_page_cache_policy_is_one_setting_away() -> None:
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, flush_messages=2**63 - 1))
    rig.append(b"a")
    assert rig.log.ackable_end == 1
    rig.machine.close()


def test_flush_ms_syncs_within_the_time() -> None:
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, flush_messages=2**63 - 1, flush_ms=50))
    rig.sync()
    rig.append(b"a")
    rig.sync()
    assert rig.log.durability.synced_end == 0
    rig.machine.sleep(0.06)
    rig.sync()
    assert rig.log.durability.synced_end == 1
    rig.machine.close()


def test_waiters_hear_of_the_sync_that_covers_them(rig: Rig) -> None:
    async def append_and_wait() -> list[int]:
        import asyncio

        synced_ends: list[int] = []
        rig.log.durability.listen(synced_ends.append)
        async with asyncio.TaskGroup() as tasks:
            rig.log.durability.request()
            waiting = tasks.create_task(rig.log.durability.wait_until_synced(Offset(1)))
            await rig.directory.group_commit.sync_now()
            await waiting
        return synced_ends

    rig.append(b"a")
    assert rig.machine.run(append_and_wait()) == [1]


def test_a_failed_sync_is_final(rig: Rig) -> None:
    """SEMANTICS 5: the directory goes offline; the next sync, which would say OK, is never made."""
    rig.append(b"a")
    rig.machine.disk.faults.sync_errors = 1
    with pytest.raises(StorageError):
        rig.sync()
    with pytest.raises(StorageError):
        rig.append(b"b")
    with pytest.raises(StorageError):
        rig.read(0)
    assert rig.directory.failure is not None
    assert rig.log.ackable_end == 0


def test_nothing_counts_as_synced_after_a_failure(rig: Rig) -> None:
    """What waited for a sync when another write failed waits no more; that is no sync."""
    rig.append(b"a")
    rig.sync()
    rig.append(b"b")
    rig.machine.disk.faults.write_errors = 1
    with pytest.raises(StorageError):
        rig.append(b"c")
    reported: list[int] = []
    rig.log.durability.listen(reported.append)
    rig.sync()
    assert rig.log.durability.synced_end == 1
    assert reported == []


def test_a_full_disk_takes_the_directory_offline_and_loses_nothing_synced(rig: Rig) -> None:
    rig.append(b"a")
    rig.sync()
    rig.machine.disk.faults.capacity_bytes = rig.machine.disk.used_bytes() + 4096
    with pytest.raises(StorageError):
        rig.append(b"b" * 9000)
    rig.machine.disk.faults.capacity_bytes = 1 << 40
    rig.crash()
    assert rig.values() == [(0, b"a")]


def test_reads_end_at_whole_batches_and_below_the_bound(rig: Rig) -> None:
    for i in range(100):
        rig.append(b"%03d" % i)
    size = len(rig.read(0, end=1))
    assert len(rig.read(0, size * 3 + 5)) == size * 3
    assert len(rig.read(10, 1)) == size  # at least one
    assert rig.read(10, end=10) == b""
    assert rig.read(100) == b""
    assert len(rig.read(95)) == size * 5
    for offset in (101, -1):
        with pytest.raises(OffsetOutOfRangeError) as e:
            rig.read(offset)
        assert (e.value.details["log_start"], e.value.details["log_end"]) == (0, 100)


@pytest.mark.parametrize("end", [None, 100])
def test_a_read_that_waits_for_the_disk_has_nothing_of_what_is_appended_meanwhile(rig: Rig, end: int | None) -> None:
    """Its end was the high watermark, and the log's own, when it began: a reader got what no follower had yet."""
    for i in range(100):
        rig.append(b"%03d" % i)
    rig.sync()
    rig.stop()
    rig.start()
    rig.machine.disk.faults.cold = 1.0
    log = rig.log

    async def story() -> bytes:
        bound = None if end is None else Offset(end)
        reading = asyncio.ensure_future(log.read(Offset(0), 1 << 20, end_offset=bound))
        await asyncio.sleep(0)
        data = batch([b"late"])
        log.append_as_leader(data, validate(data, 0, len(data), LIMITS, rig.now_ms), LeaderEpoch(0), rig.now_ms)
        return await reading

    got = rig.machine.run(story())
    assert [record.value for record in iter_batches(got, 0, len(got))][-1] == b"099"
    assert log.log_end_offset == 101


@pytest.mark.parametrize("cold", [0.0, 1.0])
def test_a_batch_that_does_not_fit_is_not_passed_over(rig: Rig, cold: float) -> None:
    """The next segment's would fit, and is none of it: found as records that a follower never got."""
    rig.append(b"large" * 100)
    rig.do(rig.log.roll_now)
    rig.append(b"small")
    rig.machine.disk.faults.cold = cold
    log, room = rig.log, 200
    assert rig.machine.run(log.read(Offset(0), room, end_offset=None, at_least_one=False)) == b""
    if not cold:
        assert rig.do(lambda: log.try_read(Offset(0), room, at_least_one=False)) == b""
    assert (
        read_header(rig.machine.run(log.read(Offset(1), room, end_offset=None, at_least_one=False)), 0).base_offset == 1
    )


def test_segments_roll_by_size_age_index_and_on_demand() -> None:
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=24, segment_bytes=1000, segment_ms=500, index_interval_bytes=1))
    rig.append(b"x" * 300)
    rig.append(b"x" * 300)
    assert [s.base_offset for s in rig.log.segments] == [0]
    rig.append(b"x" * 500)
    assert [s.base_offset for s in rig.log.segments] == [0, 2]
    rig.append(b"x", timestamp=1501)
    assert [s.base_offset for s in rig.log.segments] == [0, 2, 3]
    for _ in range(4):
        rig.append(b"x", timestamp=1501)
    assert len(rig.log.segments) == 5  # an index of 24 bytes has three places, a time index one
    rig.do(rig.log.roll_now)
    assert len(rig.log.segments) == 6
    assert rig.values()[-1] == (7, b"x")
    with pytest.raises(MessageTooLargeError):
        rig.append(b"x" * 1001)
    rig.machine.close()


def test_files_are_named_and_preallocated_as_kafkas() -> None:
    rig = Rig(Machine(1), LogConfig())
    rig.append(b"x")
    directory = rig.log.directory
    names = rig.do(lambda: rig.machine.fs.list(directory))
    assert names == [f"{0:020d}.index", f"{0:020d}.log", f"{0:020d}.timeindex"]

    def size(name: str) -> int:
        file = rig.machine.fs.open_readonly(f"{directory}/{name}")
        return file.size()

    assert rig.do(lambda: size(names[0])) == 10485760
    assert rig.do(lambda: size(names[2])) == 10485756
    rig.machine.run(rig.directory.checkpoint())
    assert "leader-epoch-checkpoint" in rig.do(lambda: rig.machine.fs.list(directory))
    rig.machine.close()


def test_lookup_by_timestamp_finds_the_first_at_or_above() -> None:
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, segment_bytes=2000, index_interval_bytes=200))
    for i in range(100):
        rig.append(b"x" * 20, timestamp=1000 + 10 * i)

    def lookup(timestamp: int) -> int | None:
        found = rig.machine.run(rig.log.offset_for_timestamp(timestamp))
        return None if found is None else found.offset

    assert lookup(0) == 0
    assert [lookup(1000 + 10 * i) for i in range(100)] == list(range(100))
    assert lookup(1005) == 1
    assert lookup(1991) is None
    rig.machine.close()


def test_epochs_have_the_end_of_each(rig: Rig) -> None:
    """SEMANTICS 2: the latest epoch ends at the log's end, an older one where the next begins."""
    rig.append(b"a", epoch=1)
    rig.append(b"b", epoch=1)
    rig.append(b"c", epoch=4)
    assert rig.log.end_offset_for(LeaderEpoch(4)) == (4, 3)
    assert rig.log.end_offset_for(LeaderEpoch(1)) == (1, 2)
    assert rig.log.end_offset_for(LeaderEpoch(2)) == (1, 2)
    assert rig.log.end_offset_for(LeaderEpoch(0)) == (0, 0)
    assert rig.log.end_offset_for(LeaderEpoch(5)) == (-1, -1)
    with pytest.raises(FencedLeaderEpochError):
        rig.append(b"d", epoch=3)


def test_truncation_cuts_and_the_log_goes_on(rig: Rig) -> None:
    for i in range(10):
        rig.append(b"%d" % i, epoch=i // 4)
    rig.sync()
    rig.machine.run(rig.log.truncate(Offset(6)))
    assert rig.log.log_end_offset == 6
    assert rig.log.ackable_end == 6
    assert rig.log.epochs.latest == 1
    rig.append(b"new", epoch=7)
    assert rig.values()[-2:] == [(5, b"5"), (6, b"new")]
    rig.sync()
    rig.power_cut()
    assert rig.values()[-2:] == [(5, b"5"), (6, b"new")]


def test_a_straddling_batch_goes_as_a_whole(rig: Rig) -> None:
    rig.append(b"0", b"1")
    rig.append(b"2", b"3", b"4")
    rig.machine.run(rig.log.truncate(Offset(3)))
    assert rig.log.log_end_offset == 2


def test_truncation_across_segments_and_to_the_start() -> None:
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, segment_bytes=300))
    for i in range(20):
        rig.append(b"%d" % i * 50)
    rig.sync()
    rig.machine.run(rig.log.truncate(Offset(5)))
    assert [offset for offset, _ in rig.values()] == [0, 1, 2, 3, 4]
    rig.machine.run(rig.log.restart_at(Offset(100)))
    assert (rig.log.log_start_offset, rig.log.log_end_offset) == (100, 100)
    rig.append(b"again")
    rig.sync()
    rig.power_cut()
    assert rig.values() == [(100, b"again")]
    rig.machine.close()


def test_a_sync_does_not_count_across_a_truncation(rig: Rig) -> None:
    """What was synced at an offset is not what stands there after a cut and a new append."""
    rig.append(b"old")
    log = rig.log
    ticket = rig.do(log.durability.begin)
    rig.machine.run(log.truncate(Offset(0)))
    rig.append(b"new")
    rig.do(lambda: log.durability.end(ticket))
    assert log.ackable_end == 0


def test_delete_records_moves_the_start(rig: Rig) -> None:
    for i in range(10):
        rig.append(b"%d" % i)
    rig.do(lambda: rig.log.advance_log_start(Offset(4)))
    assert rig.values()[0] == (4, b"4")
    with pytest.raises(OffsetOutOfRangeError):
        rig.read(3)
    rig.sync()
    rig.machine.run(rig.directory.checkpoint())
    rig.power_cut()
    assert rig.log.log_start_offset == 4


def test_followers_append_what_they_got(rig: Rig) -> None:
    first = batch([b"a"], base_offset=0, epoch=0) + batch([b"b"], base_offset=5, epoch=2)
    with pytest.raises(CorruptMessageError):  # offsets join, unless compaction was at work where it comes from
        rig.do(lambda: rig.log.append_as_follower(first))
    rig.log.leader_has_gaps = True
    rig.do(lambda: rig.log.append_as_follower(first))
    rig.log.leader_has_gaps = False
    assert rig.log.has_gaps
    with pytest.raises(CorruptMessageError):  # no index can name it
        rig.do(lambda: rig.log.append_as_follower(batch([b"c"], base_offset=2**40, epoch=2)))
    assert rig.log.log_end_offset == 6
    assert rig.log.end_offset_for(LeaderEpoch(0)) == (0, 5)
    bad = batch([b"c"], base_offset=6, epoch=2)
    for damaged in (bad[:-1], bad[:70] + b"?" + bad[71:], batch([b"c"], base_offset=5, epoch=2), b""):
        with pytest.raises(CorruptMessageError):
            rig.do(partial(rig.log.append_as_follower, damaged))
    with pytest.raises(CorruptMessageError):
        rig.do(lambda: rig.log.append_as_follower(batch([b"c"], base_offset=6, epoch=1)))
    assert rig.values() == [(0, b"a"), (5, b"b")]


def test_an_epoch_in_which_nothing_was_written_is_forgotten_by_who_follows_again(rig: Rig) -> None:
    """It led for a moment, under an epoch that the next leader's records are not of: they stand before it there (the
    cluster's simulation, seed 389: such a replica refused them for ever).
    """
    rig.append(b"a")
    rig.do(lambda: rig.log.assign_epoch(LeaderEpoch(1)))
    rig.do(lambda: rig.log.append_as_follower(batch([b"b"], base_offset=1, epoch=0)))
    rig.do(lambda: rig.log.append_as_follower(batch([b"c"], base_offset=2, epoch=2)))
    assert rig.values() == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert [tuple(entry) for entry in rig.log.epochs.entries] == [(0, 0), (2, 2)]
    with pytest.raises(CorruptMessageError):
        rig.do(lambda: rig.log.append_as_follower(batch([b"d"], base_offset=3, epoch=1)))
    rig.sync()
    rig.power_cut()
    assert [tuple(entry) for entry in rig.log.epochs.entries] == [(0, 0), (2, 2)]


def test_replicas_with_the_same_records_have_the_same_table_of_epochs() -> None:
    """One led epoch 1 for a moment and wrote nothing; another leads epoch 2 from the same offset on."""

    def table(rig: Rig) -> list[tuple[int, int]]:
        return [(entry.epoch, entry.start_offset) for entry in rig.log.epochs.entries]

    led, follows = Rig(Machine(1)), Rig(Machine(2))
    for rig in (led, follows):
        rig.append(b"a")
    follows.do(lambda: follows.log.assign_epoch(LeaderEpoch(1)))
    led.do(lambda: led.log.assign_epoch(LeaderEpoch(2)))
    led.append(b"b", epoch=2)
    copied = led.read(1)
    follows.do(lambda: follows.log.append_as_follower(copied))
    assert follows.read(0) == led.read(0)
    assert table(follows) == table(led) == [(0, 0), (2, 1)]
    for rig in (led, follows):
        rig.stop()
        rig.start()
    assert table(follows) == table(led) == [(0, 0), (2, 1)]


def test_a_table_of_an_earlier_release_is_read_without_epochs_that_wrote_nothing() -> None:
    table = LeaderEpochs([EpochEntry(LeaderEpoch(e), Offset(o)) for e, o in ((0, 0), (1, 5), (2, 5), (4, 7))])
    assert [tuple(entry) for entry in table.entries] == [(0, 0), (2, 5), (4, 7)]


def test_records_of_a_restarted_log_are_kept_whatever_the_earlier_table_says(rig: Rig) -> None:
    """After an unclean election a follower copies a log from its start, with records of an older epoch than the one
    that it led itself. It stops before the next checkpoint: the table on disk is that of its earlier log.
    """
    rig.append(b"a")
    rig.append(b"of a history that lost", epoch=9)
    rig.machine.run(rig.directory.checkpoint())
    rig.machine.run(rig.log.restart_at(Offset(200)))
    for offset, epoch in ((200, 5), (201, 5), (202, 10)):
        data = batch([b"%d" % offset], base_offset=offset, epoch=epoch)
        rig.do(partial(rig.log.append_as_follower, data))
    rig.sync()
    for fail in (rig.crash, rig.power_cut, rig.crash):
        fail()
        assert rig.values() == [(200, b"200"), (201, b"201"), (202, b"202")]
        assert [tuple(entry) for entry in rig.log.epochs.entries] == [(5, 200), (10, 202)]
    assert "torn_tail_cut" not in [event for event, _ in rig.events]


def test_unsynced_bytes_are_bounded() -> None:
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, unsynced_bytes_max=1000))
    rig.append(b"x" * 800)
    with pytest.raises(ThrottledError):
        rig.append(b"x" * 800)
    rig.sync()
    rig.append(b"x" * 800)
    rig.machine.close()


def test_idempotent_producer(rig: Rig) -> None:
    """SEMANTICS 6."""
    for i in range(7):
        rig.append(b"%d" % i, producer=(9, 0, i))
    retry = rig.append(b"4", producer=(9, 0, 4))
    assert retry.duplicate
    assert (retry.first_offset, retry.next_offset) == (4, 5)
    with pytest.raises(OutOfOrderSequenceError):
        rig.append(b"gap", producer=(9, 0, 9))
    with pytest.raises(OutOfOrderSequenceError):
        rig.append(b"0", producer=(9, 0, 0))  # older than the five that are kept
    with pytest.raises(OutOfOrderSequenceError):
        rig.append(b"epoch", producer=(9, 1, 3))
    rig.append(b"epoch", producer=(9, 1, 0))
    with pytest.raises(ProducerFencedError):
        rig.append(b"zombie", producer=(9, 0, 7))
    assert len(rig.values()) == 8


def test_sequences_wrap(rig: Rig) -> None:
    rig.append(b"a", b"b", producer=(9, 0, 2**31 - 2))
    rig.append(b"c", producer=(9, 0, 0))
    assert rig.append(b"a", b"b", producer=(9, 0, 2**31 - 2)).duplicate


@pytest.mark.parametrize("how", ["stop", "crash", "cut"])
def test_producers_are_remembered_over_a_restart(rig: Rig, how: str) -> None:
    rig.append(b"a", producer=(9, 0, 0))
    rig.append(b"b", producer=(9, 0, 1))
    rig.sync()
    if how == "stop":
        rig.stop()
        rig.start()
    elif how == "crash":
        rig.crash()
    else:
        rig.machine.run(rig.log.truncate(Offset(1)))
        rig.machine.run(rig.log.restore_producers())
        rig.append(b"b", producer=(9, 0, 1))
    assert rig.append(b"b", producer=(9, 0, 1)).duplicate


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


def test_a_cut_that_a_power_cut_halves_leaves_no_hole() -> None:
    """The newest segments go first: else an older one could be gone and a newer one be taken for the log's start."""
    for changes in range(20):
        rig = Rig(Machine(changes), LogConfig(segment_index_bytes=1024, segment_bytes=150))
        for i in range(6):
            rig.append(b"%d" % i * 50)
        rig.sync()
        rig.machine.cut_after(changes)
        with contextlib.suppress(Killed):
            rig.machine.run(rig.log.restart_at(Offset(3)))
        rig.machine.cut_after(None)
        rig.power_cut()
        found = [offset for offset, _ in rig.values()]
        assert found == list(range(rig.log.log_start_offset, rig.log.log_end_offset))
        rig.machine.close()


def test_a_cut_inside_a_batch_lowers_the_recovery_point_to_where_the_log_ends(rig: Rig) -> None:
    rig.append(b"0", b"1")
    rig.append(b"2", b"3", b"4")
    rig.sync()
    rig.machine.run(rig.directory.checkpoint())
    rig.machine.run(rig.log.truncate(Offset(4)))
    rig.crash()
    assert rig.log.damage is None
    assert rig.log.log_end_offset == 2
