"""The checker is checked: a good history passes, and each violation that is planted into it is found by its name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from streamlog.model import BrokerId, LeaderEpoch, Offset, PartitionId, TopicPartition
from streamlog.sim.history import OperationHistory, Outcome

from .checks import POLL, PRODUCE, PRODUCE_WEAK, Deletion, Evidence, key_of, value_of, violations
from .replicas import Replica, Stored, StoredBatch

PARTITION = TopicPartition("plain", PartitionId(0))
KEYED = TopicPartition("keyed", PartitionId(0))
NODES = [BrokerId(1), BrokerId(2), BrokerId(3)]


class Story(Struct):
    """A history and what three replicas have of it, made to be spoilt."""

    history: OperationHistory = field(default_factory=lambda: OperationHistory(lambda: 1.0))
    replicas: list[Replica] = field(default_factory=list)
    deletions: list[Deletion] | None = None

    def send(self, process: str, sequence: int, offset: int | None, partition: TopicPartition = PARTITION) -> bytes:
        key = b"k%d" % (sequence % 2) if partition is KEYED else None
        value = value_of(process, sequence, key)
        row = self.history.invoke(process, PRODUCE, partition=partition, sequence=sequence, value=value)
        if offset is not None:
            self.history.ok(row, offset=Offset(offset), epoch=LeaderEpoch(0))
        return value

    def poll(self, process: str, offset: int, value: bytes, partition: TopicPartition = PARTITION) -> None:
        self.history.ok(self.history.invoke(process, POLL, partition=partition, value=value), offset=Offset(offset))

    def evidence(self) -> Evidence:
        return Evidence(
            history=self.history,
            replicas=self.replicas,
            final_readers=frozenset({"reader"}),
            compacted=frozenset({"keyed"}),
            deletions=self.deletions,
        )

    def found(self) -> set[str]:
        return {violation.invariant for violation in violations(self.evidence())}

    # What can be done to it.

    def on_one_replica(self, change: Callable[[Replica], Replica], *, which: int = 1) -> None:
        self.replicas[which] = change(self.replicas[which])

    def on_all(self, change: Callable[[Replica], Replica]) -> None:
        self.replicas = [change(r) if r.partition is PARTITION else r for r in self.replicas]


def stored_as(replica: Replica, offset: int, value: bytes | None) -> Replica:
    """With another value at `offset`, in a batch that differs."""
    records = tuple(Stored(r.offset, r.key, value) if r.offset == offset else r for r in replica.records)
    batches = tuple(replace_crc(b) if b.base_offset == offset else b for b in replica.batches)
    return replace(replica, records=records, batches=batches)


def replace_crc(batch: StoredBatch) -> StoredBatch:
    return batch._replace(crc=batch.crc + 1)


def without(replica: Replica, offset: int) -> Replica:
    return replace(replica, records=tuple(r for r in replica.records if r.offset != offset))


def good() -> Story:
    """Two producers, five records each, one of them of unknown outcome and one lost; a consumer; a last reader."""
    story = Story()
    log: list[bytes] = []
    for sequence in range(5):
        for process in ("p0", "p1"):
            lost, unknown = (process, sequence) == ("p0", 4), (process, sequence) == ("p1", 3)
            value = story.send(process, sequence, None if lost or unknown else len(log))
            if not lost:
                log.append(value)
    batches = tuple(
        StoredBatch(Offset(i), Offset(i + 1), LeaderEpoch(i // 4), i, LeaderEpoch(i // 4)) for i in range(9)
    )
    records = tuple(Stored(Offset(i), None, value) for i, value in enumerate(log))
    for offset in range(2, 6):
        story.poll("c0", offset, log[offset])
    for offset, value in enumerate(log):
        story.poll("reader", offset, value)
    for node in NODES:
        story.replicas.append(
            Replica(
                broker=node,
                partition=PARTITION,
                log_start=Offset(0),
                high_watermark=Offset(9),
                log_end=Offset(9),
                batches=batches,
                records=records,
            )
        )
    _add_keyed(story)
    return story


def _add_keyed(story: Story) -> None:
    """Four records under two keys; one replica has been compacted, the others not yet."""
    values = [story.send("p2", sequence, sequence, KEYED) for sequence in range(4)]
    records = [Stored(Offset(i), key_of(value), value) for i, value in enumerate(values)]
    for node in NODES:
        story.replicas.append(
            Replica(
                broker=node,
                partition=KEYED,
                log_start=Offset(0),
                high_watermark=Offset(4),
                log_end=Offset(4),
                records=tuple(records[2:] if node == 2 else records),
            )
        )


def test_a_good_history_passes() -> None:
    assert violations(good().evidence()) == []


def lose_an_acknowledged_record(story: Story) -> None:
    story.on_all(lambda replica: without(replica, 3))


def lose_it_on_one_replica(story: Story) -> None:
    story.on_one_replica(lambda replica: without(replica, 3))


def acknowledge_what_is_not_committed(story: Story) -> None:
    story.on_all(lambda replica: replace(replica, high_watermark=Offset(8)))


def store_what_nobody_sent(story: Story) -> None:
    story.on_all(lambda replica: stored_as(replica, 7, b"unknown/0//"))


def deliver_what_nobody_sent(story: Story) -> None:
    story.poll("c1", 0, b"unknown/0//")


def store_what_was_refused(story: Story) -> None:
    row = story.history.invoke("p3", PRODUCE_WEAK, partition=PARTITION, sequence=0, value=value_of("p3", 0))
    story.history.fail(row, "MESSAGE_TOO_LARGE")
    story.on_all(lambda replica: stored_as(replica, 6, row.value))


def two_values_at_an_offset(story: Story) -> None:
    story.on_one_replica(lambda replica: stored_as(replica, 6, value_of("p1", 3)))


def a_poll_of_another_value(story: Story) -> None:
    story.poll("c1", 2, value_of("p0", 2))


def acknowledge_two_at_an_offset(story: Story) -> None:
    value = value_of("p3", 0)
    row = story.history.invoke("p3", PRODUCE, partition=PARTITION, sequence=0, value=value)
    story.history.ok(row, offset=Offset(0))


def store_one_twice(story: Story) -> None:
    story.on_all(lambda replica: stored_as(replica, 7, value_of("p0", 3)))


def swap_two_of_a_producer(story: Story) -> None:
    for row in story.history.rows:
        if row.value in (value_of("p1", 1), value_of("p1", 2)):
            row.sequence = 3 - (row.sequence or 0)


def skip_one(story: Story) -> None:
    story.history.rows = [r for r in story.history.rows if not (r.process == "c0" and r.offset == 4)]


def step_back(story: Story) -> None:
    story.poll("c0", 5, value_of("p1", 2))


def leave_one_unread(story: Story) -> None:
    story.history.rows = [r for r in story.history.rows if not (r.process == "reader" and r.offset == 8)]


def other_bytes_on_one_replica(story: Story) -> None:
    story.on_one_replica(lambda r: replace(r, batches=(*r.batches[:3], replace_crc(r.batches[3]), *r.batches[4:])))


def a_missing_tail(story: Story) -> None:
    story.on_one_replica(lambda r: replace(r, batches=r.batches[:8]))


def another_epoch_in_the_table(story: Story) -> None:
    wrong = LeaderEpoch(7)
    story.on_one_replica(lambda r: replace(r, batches=(*r.batches[:-1], r.batches[-1]._replace(table_epoch=wrong))))


def another_high_watermark(story: Story) -> None:
    story.on_one_replica(lambda replica: replace(replica, high_watermark=Offset(8)))


def compact_the_latest_of_a_key(story: Story) -> None:
    story.on_one_replica(lambda replica: without(replica, 3), which=4)


def a_hole(story: Story) -> None:
    """In front of the last batch, whose base offset is in no CRC."""

    def moved(replica: Replica) -> Replica:
        last = replica.batches[-1]
        there = last._replace(base_offset=Offset(last.base_offset + 1), next_offset=Offset(last.next_offset + 1))
        return replace(replica, batches=(*replica.batches[:-1], there), log_end=there.next_offset)

    story.on_one_replica(moved)


def starting_at(log_start: int, replica: Replica) -> Replica:
    return replace(replica, log_start=Offset(log_start))


def delete_more_than_asked(story: Story) -> None:
    story.deletions = [Deletion(PARTITION, Offset(2), 1.0, Offset(2))]
    story.on_all(partial(starting_at, 3))


def delete_without_being_asked(story: Story) -> None:
    story.deletions = []
    story.on_all(partial(starting_at, 1))


def bring_deleted_records_back_on_one_replica(story: Story) -> None:
    story.deletions = [Deletion(PARTITION, Offset(2), 1.0, Offset(2))]
    story.on_all(partial(starting_at, 2))
    story.on_one_replica(partial(starting_at, 0))


def give_deleted_records_away(story: Story) -> None:
    """The last reader of the good history has everything."""
    story.deletions = [Deletion(PARTITION, None, 1.0, Offset(2))]
    story.on_all(partial(starting_at, 2))


PLANTED: list[tuple[str, Callable[[Story], None]]] = [
    ("I1", lose_an_acknowledged_record),
    ("I1", lose_it_on_one_replica),
    ("I1", acknowledge_what_is_not_committed),
    ("I2", store_what_nobody_sent),
    ("I2", deliver_what_nobody_sent),
    ("I2", store_what_was_refused),
    ("I3", two_values_at_an_offset),
    ("I3", a_poll_of_another_value),
    ("I3", acknowledge_two_at_an_offset),
    ("I4", store_one_twice),
    ("I5", swap_two_of_a_producer),
    ("I6", skip_one),
    ("I6", step_back),
    ("I7", leave_one_unread),
    ("I8", other_bytes_on_one_replica),
    ("I8", a_missing_tail),
    ("I8", another_epoch_in_the_table),
    ("I8", another_high_watermark),
    ("I18", compact_the_latest_of_a_key),
    ("I20", a_hole),
    ("I20", a_missing_tail),
    ("I23", delete_more_than_asked),
    ("I23", delete_without_being_asked),
    ("I23", bring_deleted_records_back_on_one_replica),
    ("I23", give_deleted_records_away),
]


@pytest.mark.parametrize(("invariant", "plant"), PLANTED, ids=[plant.__name__ for _, plant in PLANTED])
def test_a_planted_violation_is_found(invariant: str, plant: Callable[[Story], None]) -> None:
    story = good()
    plant(story)
    assert invariant in story.found()


def test_what_is_allowed_is_not_blamed() -> None:
    story = good()
    unknown = story.history.invoke("p4", PRODUCE, partition=PARTITION, sequence=0, value=value_of("p4", 0))
    story.history.info(unknown, "DELIVERY_TIMEOUT")
    weak = story.history.invoke("p5", PRODUCE_WEAK, partition=PARTITION, sequence=0, value=value_of("p5", 0))
    story.history.ok(weak, offset=Offset(2))  # acknowledged by a leader that was replaced
    assert weak.outcome is Outcome.OK
    story.on_all(lambda replica: replace(replica, log_start=Offset(1)))  # deleted up to there
    assert violations(story.evidence()) == []


@pytest.mark.parametrize("before", [3, None], ids=["an offset", "all"])
def test_a_deletion_that_failed_may_have_been_made_or_not(before: int | None) -> None:
    for log_start in (0, 3):
        story = good()
        story.deletions = [Deletion(PARTITION, None if before is None else Offset(before))]
        story.on_all(partial(starting_at, log_start))
        assert violations(story.evidence()) == []
