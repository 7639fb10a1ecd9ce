"""Compaction (SEMANTICS 11, FAULTS I18): the latest of each key stays, offsets never change, a crash loses nothing."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from msgspec import structs

from streamlog.model import NO_PRODUCER_ID, LeaderEpoch, Offset, PartitionId, ProducerId, TopicPartition
from streamlog.records import BatchHeader, Codec, decode_batch, encode_batch, read_header, scan_headers, validate
from streamlog.records.batch import BatchFields
from streamlog.sim.machine import Machine
from streamlog.sim.process import Killed
from streamlog.storage.cleaning.cleaner import FREE_BYTES_MIN, Cleaner, CleaningStats
from streamlog.storage.cleaning.compaction import Rules, clean_batch
from streamlog.storage.cleaning.key_map import KeyMap
from streamlog.storage.log.log import Log
from streamlog.storage.log_config import LogConfig
from streamlog.storage.segments.segment import Segment
from tests.storage.batches import batch
from tests.storage.rig import LIMITS, PARTITION, Rig

COMPACT = LogConfig(
    segment_bytes=500,
    segment_index_bytes=1024,
    index_interval_bytes=100,
    cleanup_compact=True,
    cleanup_delete=False,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
    file_delete_delay_ms=0,
)


def committed(log: Log) -> Offset:
    return log.durability.synced_end


def cleaner_of(rig: Rig, **options: int) -> Cleaner:
    machine = rig.machine
    return Cleaner(machine.fs, rig.directory, machine.clock, machine.workers, rig.probe, **options)


def clean(rig: Rig, **options: int) -> CleaningStats | None:
    return clean_with(cleaner_of(rig, **options), rig)


def clean_with(cleaner: Cleaner, rig: Rig) -> CleaningStats | None:
    machine = rig.machine
    machine.run(rig.directory.checkpoint())
    done = machine.run(cleaner.clean_filthiest(committed))
    rig.machine.run(rig.directory.reaper.remove_due())
    return done


def records(rig: Rig) -> dict[int, tuple[bytes | None, bytes | None]]:
    found = {}
    offset: Offset = rig.log.log_start_offset
    while data := rig.read(offset):
        for position, header in scan_headers(data, 0, len(data)):
            for record in decode_batch(data, position):
                found[int(record.offset)] = (record.key, record.value)
            offset = header.next_offset
    return found


def filled(count: int = 60, keys: int = 5) -> Rig:
    rig = Rig(Machine(1), COMPACT)
    fill(rig, count, keys)
    return rig


def fill(rig: Rig, count: int = 60, keys: int = 5) -> None:
    for i in range(count):
        rig.append(b"%d" % i, keys=[b"k%d" % (i % keys)])
    rig.sync()
    rig.machine.run(rig.directory.checkpoint())


def test_a_log_that_is_removed_while_it_is_cleaned_goes_and_takes_nothing_with_it() -> None:
    """A topic deleted, and recreated, during a compaction: neither the disk nor the new log is touched."""
    abandoned = 0
    for step in range(0, 60, 3):
        rig = filled()
        machine = rig.machine
        old = rig.log
        cleaner = Cleaner(machine.fs, rig.directory, machine.clock, machine.workers, rig.probe)

        async def both(cleaner: Cleaner = cleaner, rig: Rig = rig, old: Log = old, step: int = step) -> bool:
            cleaning = asyncio.get_running_loop().create_task(cleaner.clean(old, cleaner.filth(old, committed(old))))
            for _ in range(step):
                await asyncio.sleep(1e-4)
            early = not cleaning.done()
            await rig.directory.remove_log(old.partition)
            await rig.directory.create_log(old.partition, COMPACT)
            assert cleaning.done()
            return early and await cleaning is None

        abandoned += machine.run(both())
        assert rig.directory.failure is None
        assert not [name for name in machine.fs.list(rig.log.directory) if ".cleaned" in name]
        assert records(rig) == {}
        machine.close()
    assert abandoned >= 10


@pytest.mark.parametrize("reads", range(1, 8))
def test_segments_that_are_removed_while_the_log_is_cleaned_are_not_opened_again(reads: int) -> None:
    """Their files would be there again, empty, and the log would pass for a damaged one."""
    rig = Rig(Machine(1), structs.replace(COMPACT, cleanup_delete=True))
    fill(rig, 60, 5)
    rig.machine.run(rig.directory.checkpoint())
    cleaner = cleaner_of(rig)
    read, done = cleaner._read, []

    async def removing(log: Log, segment: Segment, size: int, position: int) -> bytes:
        done.append(segment)
        if len(done) == reads:
            log.advance_log_start(log.segments.at(3).base_offset)
            await rig.directory.save_log_starts({log.partition: log.log_start_offset})
            log.remove_oldest(3)
            await rig.directory.reaper.remove_due()
        return await read(log, segment, size, position)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaner, "_read", removing)
        rig.machine.run(cleaner.clean_filthiest(committed))
    rig.machine.run(rig.directory.reaper.remove_due())
    names = rig.do(lambda: rig.machine.fs.list(rig.log.directory))
    assert len(done) >= reads
    assert [name for name in names if name.endswith(".deleted")] == []
    fill(rig, 30, 5)
    assert clean_with(cleaner, rig) is not None
    rig.machine.close()


@pytest.mark.parametrize("before", ["_clean_group", "_copy"])
def test_a_truncation_during_a_cleaning_ends_it(before: str) -> None:
    """The newer records that the map names are gone: the older ones of their keys are the latest now."""
    rig = Rig(Machine(1), COMPACT)
    fill(rig, 120, 60)
    cleaner, done = cleaner_of(rig), list[str]()
    step = getattr(cleaner, before)

    async def truncated(*args: Any) -> Any:
        if not done:
            done.append(before)
            await rig.log.truncate(Offset(65))
        return await step(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaner, before, truncated)
        assert rig.machine.run(cleaner.clean_filthiest(committed)) is None
    assert done
    assert len(records(rig)) == 65
    assert rig.directory.cleaned_until(rig.log) == 0
    rig.machine.close()


def test_the_latest_of_each_key_stays_and_offsets_do_not_change() -> None:
    rig = filled()
    before, active = records(rig), rig.log.segments.active.base_offset
    done = clean(rig)
    assert done is not None
    assert done.end_offset == active
    assert done.bytes_after < done.bytes_before / 4
    after = records(rig)
    assert after.items() <= before.items()
    assert {offset for offset in before if offset >= active} <= after.keys()
    cleaned = [offset for offset in after if offset < active]
    assert cleaned == list(range(active - 5, active))
    assert rig.log.log_start_offset == 0
    assert rig.log.log_end_offset == 60
    assert clean(rig) is None  # nothing is dirty any more


def test_a_cleaned_log_is_opened_as_it_was() -> None:
    rig = filled()
    clean(rig)
    rig.sync()
    after = records(rig)
    for restart in (rig.crash, rig.power_cut):
        restart()
        assert records(rig) == after
        assert rig.log.damage is None
    rig.stop()
    rig.start()
    assert records(rig) == after
    rig.append(b"more", keys=[b"k1"])


def test_a_cleaned_segment_that_was_idle_is_opened_by_its_new_name() -> None:
    rig = filled()
    clean(rig)
    after = records(rig)
    for _ in range(2):
        rig.do(rig.log.release_idle)
    assert records(rig) == after
    names = rig.do(lambda: rig.machine.fs.list("/data/topic-0"))
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]


def test_reading_from_a_cleaned_offset_goes_on_with_the_next_record() -> None:
    rig = filled()
    clean(rig)
    first = min(records(rig))
    offset = 3
    found: list[Any] = []
    while not found:
        data = rig.read(offset)
        for position, header in scan_headers(data, 0, len(data)):
            found += [r.offset for r in decode_batch(data, position)]
            offset = header.next_offset
    assert found[0] == first


def test_what_compaction_removed_is_no_damage_when_the_policy_is_delete_again() -> None:
    rig = filled()
    clean(rig)
    whole = records(rig)
    assert 0 not in whole
    rig.log.config = structs.replace(COMPACT, cleanup_compact=False, cleanup_delete=True)
    for segment in list(rig.log.segments):
        examined = rig.machine.run(rig.log.examine(segment))
        assert examined is not None
        assert not examined.damages
    assert records(rig) == whole


def test_tombstones_stay_for_delete_retention_ms_after_their_first_cleaning() -> None:
    rig = filled(10, 2)
    rig.append(None, keys=[b"k0"])
    for i in range(30):
        rig.append(b"filler %d" % i, keys=[b"f%d" % (i % 3)])
    rig.sync()
    clean(rig)
    assert records(rig)[10] == (b"k0", None)
    assert all(key != b"k0" for offset, (key, _) in records(rig).items() if offset < 10)
    for round_ in range(2):
        rig.machine.sleep(0.9)
        for i in range(20):
            rig.append(b"more %d" % i, keys=[b"f%d" % (i % 3)])
        rig.sync()
        clean(rig)
        assert (10 in records(rig)) == (round_ == 0)


def test_the_last_batch_of_a_producer_keeps_its_sequence() -> None:
    rig = Rig(Machine(1), COMPACT)
    rig.append(b"a", keys=[b"k"], producer=(7, 0, 0))
    for i in range(30):
        rig.append(b"%d" % i, keys=[b"k"])
    rig.sync()
    clean(rig)
    headers = [h for _, h in scan_headers(rig.read(0), 0, len(rig.read(0)))]
    assert headers[0].producer_id == 7
    assert headers[0].record_count == 0
    rig.crash()
    assert rig.append(b"a", keys=[b"k"], producer=(7, 0, 0)).duplicate


def test_nothing_above_the_recovery_point_is_touched() -> None:
    """A power cut would leave the producers' state to be read from the batches, of which cleaning keeps one each: a
    retry of the one before it was written twice (the cluster's simulation, seed 350).
    """
    rig = Rig(Machine(1), COMPACT)
    for sequence in range(40):
        rig.append(b"%d" % sequence, keys=[b"k"], producer=(7, 0, sequence))
    rig.sync()
    machine = rig.machine
    cleaner = Cleaner(machine.fs, rig.directory, machine.clock, machine.workers, rig.probe)
    assert machine.run(cleaner.clean_filthiest(committed)) is None
    assert clean(rig) is not None
    rig.power_cut()
    producer = rig.log.producers.get(ProducerId(7))
    assert producer is not None
    assert [seen.last_sequence for seen in producer.batches] == [35, 36, 37, 38, 39]


def test_nothing_above_the_bound_is_touched() -> None:
    rig = filled()
    machine = rig.machine
    cleaner = Cleaner(machine.fs, rig.directory, machine.clock, machine.workers, rig.probe)
    before = records(rig)
    machine.run(rig.directory.checkpoint())
    machine.run(cleaner.clean_filthiest(lambda log: Offset(20)))
    after = records(rig)
    assert {o: r for o, r in before.items() if o >= 20} == {o: r for o, r in after.items() if o >= 20}
    assert len(after) < len(before)


def test_a_small_key_map_cleans_in_several_rounds() -> None:
    rig = filled(120, 40)
    rounds = 0
    while clean(rig, dedupe_buffer_bytes=200 * 15) is not None:
        rounds += 1
        assert rounds < 50
    assert rounds > 1
    latest = {}
    for offset, (key, _) in records(rig).items():
        latest[key] = offset
    assert latest == {b"k%d" % (i % 40): i for i in range(80, 120)}


def test_compact_and_delete_together() -> None:
    rig = filled()
    rig.log.config = LogConfig(
        segment_bytes=500,
        segment_index_bytes=1024,
        cleanup_compact=True,
        min_cleanable_dirty_ratio=0.0,
        retention_ms=10,
        file_delete_delay_ms=0,
    )
    assert clean(rig) is not None
    assert rig.retain(10_000, committed(rig.log)) > 0
    assert rig.log.log_start_offset > 0
    assert records(rig) == {}


def test_a_damaged_batch_stops_the_cleaning_of_its_log_only() -> None:
    rig = filled()
    before = rig.read(1, 300)
    rig.machine.disk.damage("/data/topic-0/00000000000000000000.log", 68, b"?")
    rig.crash()  # what this process has written itself it does not read again to check it
    rig.log.segments.first.verified.forget()
    assert clean(rig) is None
    assert rig.read(1, 300) == before
    assert "cleaning_gave_up" in [event for event, _ in rig.events]
    names = rig.do(lambda: rig.machine.fs.list("/data/topic-0"))
    assert not [name for name in names if name.endswith(".cleaned")]


@pytest.mark.parametrize("before", ["clean_filthiest", "_clean_group"])
def test_without_free_space_nothing_is_copied(before: str) -> None:
    rig = filled()
    whole, disk, free = records(rig), rig.machine.disk, rig.machine.disk.free_bytes
    cleaner = cleaner_of(rig)
    step = getattr(cleaner, before)

    async def on_full_disk(*args: Any) -> Any:
        disk.free_bytes = lambda: min(free(), FREE_BYTES_MIN)  # type: ignore[method-assign]  # as good as full
        return await step(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaner, before, on_full_disk)
        assert clean_with(cleaner, rig) is None
    assert records(rig) == whole
    disk.free_bytes = free  # type: ignore[method-assign]
    assert clean_with(cleaner, rig) is not None
    assert records(rig) != whole


def append_values(rig: Rig, log: Log) -> None:
    for _ in range(60):
        data = batch([b"value"], keys=[b"key"])
        found = validate(data, 0, len(data), LIMITS, rig.now_ms)
        rig.do(partial(log.append_as_leader, data, found, LeaderEpoch(0), rig.now_ms))
    rig.sync()


@pytest.mark.parametrize("others", [False, True])
def test_a_cleaning_waits_for_the_space_of_the_segments_it_has_replaced(others: bool) -> None:
    """Some groups of segments fit and the next did not: the same ones were rewritten in each round, for ever. Where
    other logs wait too, it gives up after a minute.
    """
    rig = Rig(Machine(1), structs.replace(COMPACT, segment_bytes=20_000, file_delete_delay_ms=60_000))
    for i in range(30):
        rig.append(b"%04d" % i * 1200, keys=[b"k%d" % i])  # nothing can go
    rig.sync()
    disk, cleaner = rig.machine.disk, cleaner_of(rig)
    if others:
        other = rig.machine.run(rig.directory.create_log(TopicPartition("other", PartitionId(0)), COMPACT))
        append_values(rig, other)
    rig.machine.run(rig.directory.checkpoint())
    disk.faults.capacity_bytes = disk.used_bytes() + FREE_BYTES_MIN + 30_000

    async def round_() -> CleaningStats | None:
        reaping = asyncio.get_running_loop().create_task(rig.directory.reaper.run())
        try:
            return await cleaner.clean_filthiest(committed)
        finally:
            reaping.cancel()

    begin_s = rig.machine.clock.monotonic()
    done = rig.machine.run(round_())
    took_s = rig.machine.clock.monotonic() - begin_s
    if others:
        assert done is None
        assert 60 <= took_s < 70
    else:
        assert done is not None
        assert done.bytes_before > 100_000
        assert took_s > 120


def test_a_log_without_space_for_its_cleaning_does_not_keep_the_others_from_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = filled()
    other = rig.machine.run(rig.directory.create_log(TopicPartition("other", PartitionId(0)), COMPACT))
    append_values(rig, other)
    cleaner = cleaner_of(rig)
    monkeypatch.setattr(cleaner, "_has_space", lambda log, size: log is other or size >= COMPACT.segment_bytes)
    assert clean_with(cleaner, rig) is None
    assert rig.directory.cleaned_until(other) == 0
    assert clean_with(cleaner, rig) is not None
    assert rig.directory.cleaned_until(other) > 0
    assert rig.directory.cleaned_until(rig.log) == 0
    monkeypatch.undo()
    assert clean_with(cleaner, rig) is not None
    assert rig.directory.cleaned_until(rig.log) > 0


def test_a_log_recreated_does_not_inherit_the_damage() -> None:
    rig = filled()
    cleaner = cleaner_of(rig)
    rig.machine.disk.damage("/data/topic-0/00000000000000000000.log", 68, b"?")
    assert clean_with(cleaner, rig) is None
    rig.machine.run(rig.directory.remove_log(PARTITION))
    rig.machine.run(rig.directory.create_log(PARTITION, COMPACT))
    fill(rig)
    assert clean_with(cleaner, rig) is not None


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_keeps_codec_and_range(codec: Codec) -> None:
    fields = BatchFields(base_offset=Offset(100), codec=codec)
    data = encode_batch([b"old", b"new", None], keys=[b"k", b"k", b"gone"], timestamps=[5, 6, 7], fields=fields)
    header = read_header(data, 0)
    key_map = KeyMap(1 << 20, Offset(0))
    for record in decode_batch(data):
        assert record.key is not None
        key_map.put(record.key, record.offset)
    rules = Rules(key_map, 1000, 500, lambda _: False, Offset(-1))
    once = clean_batch(data, header, rules)
    assert once is not None
    cleaned: BatchHeader = read_header(once, 0)
    assert (cleaned.base_offset, cleaned.last_offset, cleaned.codec) == (100, 102, codec)
    assert cleaned.producer_id == NO_PRODUCER_ID
    assert cleaned.has_delete_horizon
    assert cleaned.base_timestamp == 1500
    assert [(r.offset, r.timestamp, r.value) for r in decode_batch(once)] == [(101, 6, b"new"), (102, 7, None)]
    later = clean_batch(once, cleaned, rules._replace(now_ms=1500))
    assert later is not None
    assert [r.value for r in decode_batch(later)] == [b"new"]


class CompactedLives(RuleBasedStateMachine):
    """Random appends, cleanings and crashes: at every moment each key's latest synced record is there."""

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.rig = Rig(Machine(seed), COMPACT)
        self.rig.sync()
        self.ever: dict[int, tuple[bytes, bytes | None]] = {}
        self.end = self.synced = 0

    @rule(keys=st.lists(st.integers(0, 6), min_size=1, max_size=5), tombstone=st.booleans())
    def append(self, keys: list[int], tombstone: bool) -> None:
        values = [None if tombstone and i == 0 else b"v%d" % (self.end + i) for i in range(len(keys))]
        names = [b"k%d" % key for key in keys]
        self.ever = {o: r for o, r in self.ever.items() if o < self.end}
        self.ever.update({self.end + i: (names[i], values[i]) for i in range(len(keys))})
        if self.attempt(lambda: self.rig.append_bytes(batch(values, keys=names))):
            self.end += len(keys)

    @rule()
    def sync(self) -> None:
        if self.attempt(self.rig.sync):
            self.synced = self.end

    @rule()
    def checkpoint(self) -> None:
        self.attempt(lambda: self.rig.machine.run(self.rig.directory.checkpoint()))

    @rule()
    def clean(self) -> None:
        if self.attempt(lambda: clean(self.rig)):
            self.check()

    @rule(changes=st.integers(0, 40))
    def clean_and_die(self, changes: int) -> None:
        self.rig.machine.cut_after(changes)
        if self.attempt(lambda: clean(self.rig)):
            self.die(True)

    @rule(power=st.booleans())
    def die(self, power: bool) -> None:
        (self.rig.power_cut if power else self.rig.crash)()
        assert self.rig.log.damage is None
        assert self.rig.log.log_end_offset >= self.synced
        self.end = self.synced = self.rig.log.log_end_offset
        self.check()

    def attempt(self, step) -> bool:  # type: ignore[no-untyped-def]  # any call without arguments
        try:
            step()
        except Killed:
            self.die(True)
            return False
        return True

    def check(self) -> None:
        found = records(self.rig)
        for offset, record in found.items():
            assert self.ever[offset] == record
        latest: dict[bytes, int] = {}
        for offset in sorted(o for o in self.ever if o < self.end):
            latest[self.ever[offset][0]] = offset
        for key, offset in latest.items():
            gone = self.ever[offset][1] is None  # a tombstone may have been dropped in its time
            assert offset in found or gone, f"the latest record of {key!r} is gone"

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            self.rig.machine.cut_after(None)
            self.die(True)
            self.rig.machine.close()


CompactedLives.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestCompactedLives = CompactedLives.TestCase
