"""Recovery after an unclean stop: torn tails truncated, damage reported (FAULTS: torn tail, bit flips, zeros)."""

from __future__ import annotations

from functools import partial

import pytest

from streamlog.errors import CorruptMessageError, DamagedFileError, StorageError
from streamlog.model import Offset
from streamlog.sim.machine import Machine
from streamlog.storage.files import checkpoints
from streamlog.storage.log_config import LogConfig
from streamlog.storage.segments.segment import Segment
from tests.storage.batches import batch
from tests.storage.rig import PARTITION, Rig

LOG_PATH = "/data/topic-0/00000000000000000000.log"
SMALL = LogConfig(segment_index_bytes=1024, index_interval_bytes=100, segment_bytes=1000, unsynced_bytes_max=700)


def filled(count: int = 10, config: LogConfig | None = None, *, checkpoint: bool = False) -> Rig:
    """A log of `count` records, synced; 69 to 79 bytes a batch."""
    rig = Rig(Machine(1), config)
    for i in range(count):
        rig.append(b"%d" % i, epoch=i // 4)
        rig.sync()
    if checkpoint:
        rig.machine.run(rig.directory.checkpoint())
    return rig


def offset_entries(segment: Segment) -> list[object]:
    return list(segment.offset_index.entries())


def time_entries(segment: Segment) -> list[object]:
    return list(segment.time_index.entries())


def size_of(rig: Rig, path: str) -> int:
    return rig.do(lambda: rig.machine.fs.open_readonly(path).size())


def values(rig: Rig) -> list[bytes | None]:
    return [value for _, value in rig.values()]


def test_a_cut_off_batch_is_a_torn_tail() -> None:
    rig = filled()
    size = size_of(rig, LOG_PATH)
    rig.do(lambda: rig.machine.fs.open(LOG_PATH).truncate(size - 37))
    rig.crash()
    assert values(rig) == [b"%d" % i for i in range(9)]
    assert [event for event, _ in rig.events] == ["torn_tail_cut"]
    (event,) = [fields for _, fields in rig.events]
    assert event["path"] == LOG_PATH
    assert event["position"] == size_of(rig, LOG_PATH)
    rig.append(b"again", epoch=5)
    assert values(rig)[-1] == b"again"


def test_a_log_that_was_cut_is_incomplete_until_it_has_caught_up() -> None:
    """A damaged batch above the recovery point looks like a torn tail: what was cut may have been acknowledged."""
    rig = filled()
    assert not rig.log.incomplete
    rig.machine.disk.damage(LOG_PATH, 69, bytes(20))
    rig.crash()
    assert len(values(rig)) == 1
    assert rig.log.incomplete
    rig.crash()
    assert rig.log.incomplete, "nothing was cut this time"
    rig.power_cut()
    assert rig.log.incomplete
    rig.do(rig.log.note_complete)
    rig.append(b"more", epoch=5)
    rig.sync()
    rig.power_cut()
    assert not rig.log.incomplete


def test_damage_that_was_discarded_leaves_an_incomplete_log() -> None:
    rig = filled(checkpoint=True)
    rig.machine.disk.damage(LOG_PATH, 69, bytes(20))
    rig.crash()
    assert rig.log.damage is not None
    rig.machine.run(rig.log.discard_damage())
    assert rig.log.damage is None
    rig.power_cut()
    assert rig.log.incomplete


def test_a_tail_of_zeros_is_not_taken_for_records() -> None:
    rig = filled()
    size = size_of(rig, LOG_PATH)
    rig.do(lambda: rig.machine.fs.open(LOG_PATH).pwritev([bytes(4096)], size))
    rig.crash()
    assert len(values(rig)) == 10
    assert rig.events[0][1]["cut_bytes"] == 4096
    assert size_of(rig, LOG_PATH) == size


def test_a_torn_batch_may_have_lost_its_offset_alone() -> None:
    """Simulated seed 933 of the cluster: the sector that held it was not written, the next one was, and the offset that
    was read is below the recovery point. The batch is not.
    """
    rig = filled(checkpoint=True)
    rig.append(b"not synced", epoch=2)
    rig.machine.disk.damage(LOG_PATH, 69 * 10, bytes(8))
    rig.crash()
    assert rig.log.damage is None
    assert [event for event, _ in rig.events] == ["torn_tail_cut"]
    assert values(rig) == [b"%d" % i for i in range(10)]


def test_what_a_failed_sync_has_left_in_the_page_cache_is_rewritten() -> None:
    """Simulated seed 421 of groups: the node died of its disk, and came back before the machine did. What it had read
    counted as durable, another sync had said so, and the next power cut took it.
    """
    rig = filled(checkpoint=True)
    rig.append(b"its sync fails", epoch=2)
    rig.machine.disk.faults.sync_errors = 1
    with pytest.raises(StorageError):
        rig.sync()
    rig.crash()
    assert values(rig) == [*(b"%d" % i for i in range(10)), b"its sync fails"]
    assert rig.log.ackable_end == 11
    rig.power_cut()
    assert values(rig) == [*(b"%d" % i for i in range(10)), b"its sync fails"]


def test_it_is_rewritten_before_a_torn_batch_too() -> None:
    rig = filled(checkpoint=True)
    rig.append(b"its sync fails", epoch=2)
    at = size_of(rig, LOG_PATH)
    rig.append(b"and this one has lost its offset", epoch=2)
    rig.machine.disk.faults.sync_errors = 1
    with pytest.raises(StorageError):
        rig.sync()
    rig.machine.disk.damage(LOG_PATH, at, bytes(8))
    rig.crash()
    rig.power_cut()
    assert values(rig) == [*(b"%d" % i for i in range(10)), b"its sync fails"]


@pytest.mark.parametrize("byte", range(0, 69, 4))
def test_a_flipped_bit_below_the_recovery_point_is_damage(byte: int) -> None:
    """Named with file and position; nothing is cut; what is before it is served; appends are refused."""
    rig = filled(checkpoint=True)
    at = rig.do(lambda: rig.machine.fs.open(LOG_PATH).pread(1, 69 * 3 + byte))
    size = size_of(rig, LOG_PATH)
    rig.machine.disk.damage(LOG_PATH, 69 * 3 + byte, bytes([at[0] ^ 0x40]))
    rig.crash()
    assert rig.log.damage is not None
    if 12 <= byte < 16:  # the leader epoch, outside of the CRC: a risen one shows at the next batch only
        assert rig.log.damage.position in (69 * 3, 69 * 4)
        return
    assert (rig.log.damage.path, rig.log.damage.position) == (LOG_PATH, 69 * 3)
    assert size_of(rig, LOG_PATH) == size
    assert values(rig) == [b"0", b"1", b"2"]
    with pytest.raises(DamagedFileError, match="leader"):
        rig.append(b"no", epoch=9)


def test_damage_is_found_again_until_it_is_repaired() -> None:
    rig = filled(checkpoint=True)
    rig.machine.disk.damage(LOG_PATH, 69 * 3 + 65, b"?")
    rig.crash()
    rig.machine.run(rig.directory.checkpoint())
    rig.stop()
    rig.start()
    assert rig.log.damage is not None
    rig.machine.run(rig.log.discard_damage())
    assert rig.log.log_end_offset == 3
    rig.machine.run(rig.log.restore_producers())
    rig.append(b"from the leader", epoch=5)
    rig.sync()
    rig.power_cut()
    assert rig.log.damage is None
    assert values(rig) == [b"0", b"1", b"2", b"from the leader"]


def test_damage_above_the_recovery_point_shows_by_the_sound_batches_far_behind_it() -> None:
    """They are further away than unsynced bytes can reach, so what lies between had been synced."""
    rig = filled(40, SMALL)
    rig.machine.disk.damage(LOG_PATH, 69 * 2 + 65, b"?")
    rig.crash()
    assert rig.log.damage is not None
    assert rig.log.damage.position == 69 * 2
    assert rig.log.torn_unless_synced
    assert len(rig.log.segments) == 1
    rig.machine.run(rig.log.discard_damage())
    rig.sync()
    rig.crash()
    assert values(rig) == [b"0", b"1"]
    names = rig.do(lambda: rig.machine.fs.list("/data/topic-0"))
    assert [name for name in names if name.endswith(".log")] == ["00000000000000000000.log"]


def test_a_shortened_log_is_damage() -> None:
    """A file that ends below the recovery point has lost synced records, however whole its batches are."""
    rig = filled(checkpoint=True)
    rig.do(lambda: rig.machine.fs.open(LOG_PATH).truncate(69 * 4))
    rig.crash()
    assert rig.log.damage is not None
    assert "durable up to 10" in rig.log.damage.reason


def test_only_segments_from_the_recovery_point_on_are_read() -> None:
    rig = filled(60, SMALL, checkpoint=True)
    assert len(rig.log.segments) > 3
    rig.machine.disk.damage(LOG_PATH, 65, b"?")  # bit rot in the first segment: it is not read at a start
    rig.crash()
    assert rig.log.damage is None
    assert rig.log.log_end_offset == 60


def test_indexes_are_rebuilt() -> None:
    rig = filled(60, SMALL)
    assert rig.machine.run(rig.log.offset_for_timestamp(1000)) is not None
    before = [rig.do(partial(offset_entries, s)) for s in rig.log.segments]
    times = [rig.do(partial(time_entries, s)) for s in rig.log.segments]
    for segment in rig.log.segments:
        for kind in (".index", ".timeindex"):
            path = f"/data/topic-0/{segment.base_offset:020d}{kind}"
            rig.machine.disk.damage(path, 0, b"\xff" * 24)
    rig.crash()
    assert [rig.do(partial(offset_entries, s)) for s in rig.log.segments] == before
    assert [rig.do(partial(time_entries, s)) for s in rig.log.segments] == times


def test_a_missing_index_of_a_trusted_segment_is_rebuilt() -> None:
    rig = filled(60, SMALL)
    before = rig.do(lambda: list(rig.log.segments.first.offset_index.entries()))
    assert before
    rig.stop()
    rig.do(lambda: rig.machine.fs.unlink("/data/topic-0/00000000000000000000.index"))
    rig.start()
    assert rig.do(lambda: list(rig.log.segments.first.offset_index.entries())) == before
    assert len(values(rig)) == 60


@pytest.mark.parametrize("entry", [b"\0\0\0\1\0\0\0\7", b"\0\0\0\1\x7f\xff\xff\xff", b"\0\0\0\1\xff\0\0\0"])
def test_an_index_that_leads_astray_costs_a_scan_and_no_records(entry: bytes) -> None:
    rig = filled(60, SMALL)
    rig.stop()
    path = "/data/topic-0/00000000000000000000.index"
    rig.machine.disk.damage(path, 0, entry)
    rig.start()
    assert len(values(rig)) == 60
    assert rig.read(1, 1) == rig.read(0, 200)[69:138]


def test_a_clean_mark_that_lies_is_not_believed() -> None:
    rig = filled()
    rig.stop()
    size = size_of(rig, LOG_PATH)
    rig.do(lambda: rig.machine.fs.open(LOG_PATH).truncate(size - 5))
    rig.start()
    assert "clean_stop_disproved" in [event for event, _ in rig.events]
    assert rig.log.damage is not None


@pytest.mark.parametrize("content", [b"", b"junk\n", b"0\n3\n1 2\n", b"0\n2\n3 4\n1 9\n", b"9\n0\n", b"\xff"])
def test_a_damaged_epoch_file_is_rebuilt_from_the_batches(content: bytes) -> None:
    rig = filled(10, checkpoint=True)
    before = rig.log.epochs.entries
    path = "/data/topic-0/leader-epoch-checkpoint"

    def spoil() -> None:
        file = rig.machine.fs.open(path)
        file.truncate(0)
        file.pwritev([content], 0)

    rig.do(spoil)
    rig.crash()
    assert rig.log.epochs.entries == before


def test_a_rebuilt_table_of_epochs_proves_nothing_of_the_segments_that_are_scanned() -> None:
    """It ended where they begin, so that their epochs seemed to be damaged below the recovery point."""
    rig = filled(16, SMALL)
    rig.append(b"of a later epoch", epoch=9)
    rig.sync()
    rig.machine.run(rig.directory.checkpoint())
    before = rig.log.epochs.entries
    rig.machine.disk.damage("/data/topic-0/leader-epoch-checkpoint", 0, b"???")
    rig.crash()
    assert rig.log.damage is None
    assert rig.log.epochs.entries == before


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("lost", ["snapshots", "epochs"])
def test_damage_where_derived_state_must_be_read_again_is_no_reason_not_to_start(lost: str, clean: bool) -> None:
    rig = filled(60, SMALL, checkpoint=True)
    if clean:
        rig.stop()
    for name in rig.do(lambda: rig.machine.fs.list("/data/topic-0")):
        if name.endswith(".snapshot" if lost == "snapshots" else "leader-epoch-checkpoint"):
            rig.machine.disk.remove(f"/data/topic-0/{name}")
    rig.machine.disk.damage(LOG_PATH, 16, b"?")  # the magic of the first batch
    rig.start() if clean else rig.crash()
    if clean and lost == "snapshots":
        assert rig.log.damage is None
        assert rig.log.derived.producers_stale  # the replica examines the segment, and has it repaired
    else:
        assert "unknown magic" in str(rig.log.damage)
        assert rig.log.log_end_offset == 0


def test_producers_that_were_not_restored_before_a_clean_stop_are_not_after_it() -> None:
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, index_interval_bytes=100))
    for i in range(12):
        rig.append(b"%02d" % i, producer=(5, 0, i))
    rig.sync()
    rig.machine.disk.damage(LOG_PATH, rig.log.segments.active.size_bytes // 12 * 2 + 16, b"?")
    with pytest.raises(CorruptMessageError):
        rig.machine.run(rig.log.truncate(Offset(11)))
    rig.stop()
    rig.start()
    assert rig.log.derived.producers_stale
    assert rig.log.log_end_offset == 11
    # Compaction must not pass a transaction that may be open.
    assert rig.log.last_stable_offset(Offset(11)) == 0
    with pytest.raises(CorruptMessageError):
        rig.machine.run(rig.log.restore_producers())
    assert rig.log.damaged_segments


def test_a_damaged_marker_is_found_where_producers_are_restored() -> None:
    """Its fault lacked the name of the file, so that no segment was examined, and none repaired."""
    rig = Rig(Machine(1), SMALL)
    data = batch([b"value"], producer=(5, 0, 0), attributes=16)
    rig.append_bytes(data)
    position = rig.log.segments.active.size_bytes
    marker = batch([b"\0\0\0\0\0\0"], keys=[b"\0\0\0\1"], producer=(5, 0, -1), attributes=48)
    rig.do(lambda: rig.log.append_as_follower(marker[:7] + b"\1" + marker[8:12] + bytes(4) + marker[16:]))
    rig.append(b"next")
    rig.append(b"of the producer", producer=(6, 0, 0))
    rig.sync()
    rig.machine.disk.damage(LOG_PATH, position + 22, b"\x31")  # compressed, by its attributes
    with pytest.raises(CorruptMessageError, match=f"{LOG_PATH}: position {position}"):
        rig.machine.run(rig.log.truncate(Offset(3)))
    assert rig.log.damaged_segments


def test_a_damaged_recovery_checkpoint_costs_a_scan_and_no_records() -> None:
    rig = filled(60, SMALL, checkpoint=True)
    rig.machine.disk.damage("/data/recovery-point-offset-checkpoint", 0, b"???")
    rig.crash()
    assert "checkpoint_ignored" in [event for event, _ in rig.events]
    assert len(values(rig)) == 60


def test_a_recovery_checkpoint_of_impossible_length_costs_a_scan_and_no_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = filled(60, SMALL, checkpoint=True)
    monkeypatch.setattr(checkpoints, "SIZE_MAX", 10)
    rig.crash()
    assert "checkpoint_ignored" in [event for event, _ in rig.events]
    assert len(values(rig)) == 60


def test_a_damaged_producer_snapshot_is_passed_over() -> None:
    rig = Rig(Machine(1), SMALL)
    for i in range(30):
        rig.append(b"%d" % i, producer=(5, 0, i))
        rig.sync()
    rig.machine.run(rig.directory.checkpoint())
    base = rig.log.segments.active.base_offset
    rig.machine.disk.damage(f"/data/topic-0/{base:020d}.snapshot", 8, b"????")
    rig.crash()
    assert rig.append(b"29", producer=(5, 0, 29)).duplicate


def test_a_snapshot_of_records_that_a_power_cut_took_says_nothing_of_those_that_follow() -> None:
    """Its name had reached the disk, they had not; the log that was cut at its offset knew no producer any more."""
    rig = Rig(Machine(1), SMALL)
    rig.append(b"lost")
    rig.do(rig.log.roll_now)
    rig.do(lambda: rig.machine.fs.open(LOG_PATH).truncate(0))  # what a power cut may leave of both
    rig.crash()
    assert rig.log.log_end_offset == 0
    for i in range(2):
        rig.append(b"%d" % i, producer=(5, 0, i))
        rig.sync()
    rig.machine.run(rig.log.truncate(Offset(1)))
    assert rig.append(b"0", producer=(5, 0, 0)).duplicate
    assert not rig.append(b"1", producer=(5, 0, 1)).duplicate


def test_recovery_leaves_a_snapshot_at_each_segment() -> None:
    """They cover what compaction below them removes."""
    rig = Rig(Machine(1), SMALL)
    for i in range(30):
        rig.append(b"%d" % i, producer=(5, 0, i))
        rig.sync()
    bases = [segment.base_offset for segment in rig.log.segments][1:]
    assert len(bases) > 1
    rig.crash()
    names = rig.do(lambda: rig.machine.fs.list("/data/topic-0"))
    assert [f"{base:020d}.snapshot" for base in bases] == sorted(name for name in names if name.endswith(".snapshot"))


def test_the_snapshots_of_earlier_clean_stops_are_removed() -> None:
    rig = Rig(Machine(1), SMALL)
    for i in range(30):
        rig.append(b"%d" % i, producer=(5, 0, i))
        rig.sync()
        if i % 3 == 0:
            rig.stop()
            rig.start()
    assert rig.append(b"29", producer=(5, 0, 29)).duplicate
    found = {
        name.split(".")[0] for name in rig.do(lambda: rig.machine.fs.list(rig.log.directory)) if "snapshot" in name
    }
    bases = {f"{segment.base_offset:020d}" for segment in rig.log.segments}
    assert len(bases) > 1
    assert found - bases <= {f"{28:020d}", f"{25:020d}"}
    rig.crash()
    assert rig.append(b"29", producer=(5, 0, 29)).duplicate


def test_segments_after_a_gap_are_not_part_of_the_log() -> None:
    """A roll whose names survived the power cut while the records before it did not."""
    rig = filled(8, LogConfig(segment_index_bytes=1024, unsynced_bytes_max=100_000))
    rig.do(rig.log.roll_now)
    rig.append(b"8", epoch=5)
    rig.do(lambda: rig.machine.fs.open(LOG_PATH).truncate(69 * 6))
    rig.crash()
    assert values(rig) == [b"%d" % i for i in range(6)]
    assert rig.log.log_end_offset == 6
    rig.append(b"6", epoch=9)
    assert len(rig.log.segments) == 1


@pytest.mark.parametrize("lost", [False, True])
def test_a_gap_is_believed_only_in_a_compacted_log_whose_recovery_points_are_lost(lost: bool) -> None:
    """So it is in a directory that Kafka wrote: its compaction leaves offsets out between segments."""
    rig = filled(8, LogConfig(segment_index_bytes=1024, cleanup_compact=True))
    rig.do(rig.log.roll_now)
    rig.append(b"8", epoch=5)
    rig.sync()
    rig.do(lambda: rig.machine.fs.open(LOG_PATH).truncate(69 * 6))
    path = "/data/recovery-point-offset-checkpoint"
    if lost:
        rig.do(lambda: rig.machine.fs.unlink(path))
    rig.crash()
    assert rig.log.log_end_offset == (9 if lost else 6)
    assert rig.do(lambda: rig.machine.fs.exists(path))


@pytest.mark.parametrize("delta", [1, 3, 1000, 1 << 33])
def test_a_last_batch_whose_offset_has_moved_is_no_part_of_the_log(delta: int) -> None:
    """The base offset stands before what the CRC covers."""
    rig = filled()
    at = size_of(rig, LOG_PATH) - 69
    rig.do(lambda: rig.machine.fs.open(LOG_PATH).pwritev([(9 + delta).to_bytes(8, "big")], at))
    rig.crash()
    assert values(rig) == [b"%d" % i for i in range(9)]
    assert rig.log.log_end_offset == 9
    (event,) = [fields for name, fields in rig.events if name == "torn_tail_cut"]
    assert str(9 + delta) in str(event["reason"])


def test_a_gap_that_compaction_may_have_made_is_kept_by_later_starts() -> None:
    rig = Rig(Machine(1))
    rig.log.leader_has_gaps = True
    rig.do(lambda: rig.log.append_as_follower(batch([b"a"], base_offset=4, epoch=0)))
    rig.do(lambda: rig.log.append_as_follower(batch([b"b"], base_offset=9, epoch=0)))
    rig.sync()
    rig.power_cut()
    assert rig.values() == [(4, b"a"), (9, b"b")]
    assert rig.log.has_gaps


def test_an_epoch_that_the_table_does_not_know_is_damage_below_the_recovery_point() -> None:
    rig = filled(checkpoint=True)
    at = size_of(rig, LOG_PATH) - 69
    rig.do(lambda: rig.machine.fs.open(LOG_PATH).pwritev([(7).to_bytes(4, "big")], at + 12))
    rig.crash()
    assert rig.log.damage is not None
    assert "table" in str(rig.log.damage)
    assert rig.log.log_end_offset == 9


def test_what_was_half_deleted_or_half_written_is_gone() -> None:
    rig = filled()

    def litter() -> None:
        for name in ("00000000000000000003.log.deleted", "00000000000000000000.log.cleaned", "x.tmp"):
            rig.machine.fs.open(f"/data/topic-0/{name}", create=True)
        rig.machine.fs.open("/data/topic-0/00000000000000000099.index", create=True)

    rig.do(litter)
    rig.crash()
    names = rig.do(lambda: rig.machine.fs.list("/data/topic-0"))
    assert not [name for name in names if name.endswith((".deleted", ".cleaned", ".tmp")) or "99" in name]
    assert len(values(rig)) == 10


def test_recovered_records_survive_a_power_cut_at_once() -> None:
    """kill -9 leaves pages in the cache only; recovery syncs them before it counts them as synced."""
    rig = Rig(Machine(3))
    rig.sync()
    for i in range(10):
        rig.append(b"%d" % i)
    rig.crash()
    assert rig.log.ackable_end == 10
    rig.power_cut()
    assert len(values(rig)) == 10
    assert PARTITION in rig.directory.logs


def test_a_truncation_is_not_mistaken_for_loss_at_the_next_start() -> None:
    """The recovery point on disk is lowered before the cut (a crash may come right after it)."""
    rig = filled(10, checkpoint=True)
    rig.machine.run(rig.log.truncate(Offset(4)))
    rig.crash()
    assert rig.log.damage is None
    assert rig.log.log_end_offset == 4
