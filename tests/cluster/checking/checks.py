"""The invariants that a whole history must keep, with what every replica holds after all is healed (FAULTS: I1 to I8,
I18 to I20, I23).

What is checked while it happens stands in `watch`. Each check is a function of the evidence; `violations` runs all.

Values are unique and say what they are (`workload.value_of`), so a record that is found anywhere leads to the one row
that sent it. Only what was sent with acks=all promises anything: rows of `PRODUCE`. What was sent with acks=1 may be
lost, and its offset given to another; it must still be no phantom.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Final

from msgspec import Struct

from streamlog.model import Offset, TopicPartition
from streamlog.sim.history import OperationHistory, Outcome, Row

from .replicas import Replica, Stored

PRODUCE: Final = "produce"
"""Operation of a row: one record, acks=all, by an idempotent producer. `sequence` rises by process and partition."""
PRODUCE_WEAK: Final = "produce acks=1"
POLL: Final = "poll"
"""Operation of a row: one record that a consumer was given. One process is one assignment: it never seeks."""

SHOWN_MAX: Final = 3
"""Violations of one invariant that are reported; more seldom help."""


class Violation(Struct, frozen=True, order=True):
    invariant: str
    what: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"


class Deletion(Struct):
    """Of the records of a partition before an offset, or of all committed ones."""

    at: TopicPartition
    before: Offset | None
    completed: float | None = None  # it was acknowledged
    log_start: Offset | None = None  # as acknowledged

    @property
    def most(self) -> Offset | None:
        """It may have deleted what is below. None: anything that was committed."""
        return self.log_start if self.before is None else self.before


class Evidence(Struct, frozen=True, kw_only=True, dict=True):
    history: OperationHistory
    replicas: Sequence[Replica]  # all of them, when all is quiet
    final_readers: frozenset[str] = frozenset()  # processes that polled everything from the beginning, at the end
    compacted: frozenset[str] = frozenset()  # topics
    deletions: Sequence[Deletion] | None = None  # None: records may have been deleted by others, too

    @cached_property
    def sent(self) -> dict[bytes, Row]:
        return {
            row.value: row
            for row in self.history.rows
            if row.operation in (PRODUCE, PRODUCE_WEAK) and row.value is not None
        }

    @cached_property
    def acknowledged(self) -> list[Row]:
        return list(self.history.select(PRODUCE, Outcome.OK))

    @cached_property
    def polls(self) -> list[Row]:
        return list(self.history.select(POLL, Outcome.OK))

    @cached_property
    def committed(self) -> dict[TopicPartition, list[tuple[Replica, dict[Offset, Stored]]]]:
        found: dict[TopicPartition, list[tuple[Replica, dict[Offset, Stored]]]] = {}
        for replica in self.replicas:
            found.setdefault(replica.partition, []).append((replica, replica.committed()))
        return found


def no_lost_write(evidence: Evidence) -> Iterator[str]:
    """I1. In a compacted topic a later value of the key may have taken its place: I18."""
    for row in evidence.acknowledged:
        assert row.partition is not None
        assert row.offset is not None
        if row.partition.topic in evidence.compacted:
            continue
        for replica, records in evidence.committed.get(row.partition, []):
            stored = records.get(row.offset)
            if row.offset >= replica.log_start and (stored is None or stored.value != row.value):
                yield f"{_row(row)} acknowledged at t={row.completed:.3f}, on node {replica.broker} is {_seen(stored)}"
                break


def no_phantom(evidence: Evidence) -> Iterator[str]:
    """I2."""
    seen = itertools.chain(
        (
            (f"node {replica.broker}", stored.offset, stored.value)
            for replicas in evidence.committed.values()
            for replica, records in replicas
            for stored in records.values()
        ),
        ((row.process, row.offset, row.value) for row in evidence.polls),
    )
    for where, offset, value in seen:
        row = evidence.sent.get(value or b"")
        if row is None:
            yield f"{where} has {value!r} at {offset}, which no client sent"
        elif row.outcome is Outcome.FAIL:
            yield f"{where} has {value!r} at {offset}, which was refused with {row.error}"


def one_value_an_offset(evidence: Evidence) -> Iterator[str]:
    """I3."""
    at: dict[tuple[TopicPartition, int], tuple[bytes | None, str]] = {}

    def put(partition: TopicPartition, offset: int, value: bytes | None, where: str) -> Iterator[str]:
        first, place = at.setdefault((partition, offset), (value, where))
        if first != value:
            yield f"{partition} at {offset}: {first!r} by {place}, {value!r} by {where}"

    for partition, replicas in evidence.committed.items():
        for replica, records in replicas:
            for stored in records.values():
                yield from put(partition, stored.offset, stored.value, f"node {replica.broker}")
    for row in itertools.chain(evidence.acknowledged, evidence.polls):
        assert row.partition is not None
        assert row.offset is not None
        yield from put(row.partition, row.offset, row.value, row.process)


def no_duplicates(evidence: Evidence) -> Iterator[str]:
    """I4, of what was sent with idempotence."""
    for partition, replicas in evidence.committed.items():
        for replica, records in replicas:
            first: dict[bytes | None, Offset] = {}
            for offset, stored in sorted(records.items()):
                row = evidence.sent.get(stored.value or b"")
                if row is not None and row.operation == PRODUCE and first.setdefault(stored.value, offset) != offset:
                    yield (
                        f"{partition} on node {replica.broker}: {stored.value!r} at {first[stored.value]} and {offset}"
                    )


def send_order(evidence: Evidence) -> Iterator[str]:
    """I5: in the log, whether acknowledged or not, the records of a process stand in the order of their sending."""
    for partition, replicas in evidence.committed.items():
        for replica, records in replicas:
            latest: dict[str, Row] = {}
            for offset, stored in sorted(records.items()):
                row = evidence.sent.get(stored.value or b"")
                if row is None or row.operation != PRODUCE:
                    continue
                before = latest.get(row.process)
                if before is not None and (before.sequence or 0) > (row.sequence or 0):
                    yield f"{partition} on node {replica.broker}: {row.value!r} at {offset} follows {before.value!r}"
                latest[row.process] = row


def poll_order(evidence: Evidence) -> Iterator[str]:
    """I6: no step back, and no skip of what is there in the end."""
    streams: dict[tuple[str, TopicPartition], list[Row]] = {}
    for row in evidence.polls:
        assert row.partition is not None
        streams.setdefault((row.process, row.partition), []).append(row)
    for (process, partition), rows in streams.items():
        offsets = [row.offset or 0 for row in rows]
        for one, other in itertools.pairwise(offsets):
            if other <= one:
                yield f"{process} was given {partition} at {other} after {one}"
        if partition.topic not in evidence.compacted:
            missed = sorted(_offsets_between(evidence, partition, offsets[0], offsets[-1]) - set(offsets))
            if missed:
                yield f"{process} was never given {partition} at {missed[0]} ({len(missed)} missed)"


def _offsets_between(evidence: Evidence, partition: TopicPartition, first: int, last: int) -> set[int]:
    return {o for _, records in evidence.committed.get(partition, []) for o in records if first <= o <= last}


def nothing_unseen(evidence: Evidence) -> Iterator[str]:
    """I7: who reads everything at the end finds all that was acknowledged and is still kept."""
    for reader in sorted(evidence.final_readers):
        given = {(row.partition, row.offset) for row in evidence.polls if row.process == reader}
        for row in evidence.acknowledged:
            assert row.partition is not None
            assert row.offset is not None
            starts = [replica.log_start for replica, _ in evidence.committed.get(row.partition, [])]
            kept = row.partition.topic not in evidence.compacted and row.offset >= max(starts, default=Offset(0))
            if kept and (row.partition, row.offset) not in given:
                yield f"{reader} did not find {_row(row)}"


def replicas_are_identical(evidence: Evidence) -> Iterator[str]:
    """I8: batch by batch below the high watermark, and each one's epoch is what the replica's table says.

    Replicas of a compacted topic are cleaned each in its own time: of these I3 compares what both still have.
    """
    for partition, replicas in evidence.committed.items():
        for replica, _ in replicas:
            for batch in replica.batches:
                covered = batch.next_offset > replica.log_start and batch.base_offset < replica.high_watermark
                if covered and batch.table_epoch != batch.epoch:
                    yield (
                        f"{partition} on node {replica.broker}: the table gives {batch.base_offset} epoch "
                        f"{batch.table_epoch}, its batch is of {batch.epoch}"
                    )
        marks = {replica.broker: replica.high_watermark for replica, _ in replicas}
        if len(set(marks.values())) > 1:
            yield f"{partition}: high watermarks {marks}"
        if partition.topic not in evidence.compacted:
            yield from _differences(partition, [replica for replica, _ in replicas])


def _differences(partition: TopicPartition, replicas: list[Replica]) -> Iterator[str]:
    start = max(replica.log_start for replica in replicas)
    end = min(replica.high_watermark for replica in replicas)
    heads = [[b for b in r.batches if b.next_offset > start and b.base_offset < end] for r in replicas]
    for replica, head in zip(replicas[1:], heads[1:], strict=True):
        if head != heads[0]:
            pairs = itertools.zip_longest(heads[0], head)
            one, other = next(pair for pair in pairs if pair[0] != pair[1])
            yield f"{partition}: node {replicas[0].broker} has {one}, node {replica.broker} has {other}"


def latest_of_each_key(evidence: Evidence) -> Iterator[str]:
    """I18: a compacted topic still has, of each key, the latest value that was acknowledged, or a later one."""
    latest: dict[tuple[TopicPartition, bytes], Row] = {}
    for row in evidence.acknowledged:
        assert row.partition is not None
        if row.partition.topic in evidence.compacted:
            place = (row.partition, key_of(row.value or b""))
            if place not in latest or (latest[place].offset or 0) < (row.offset or 0):
                latest[place] = row
    for (partition, key), row in latest.items():
        for replica, records in evidence.committed.get(partition, []):
            if not any(stored.key == key and stored.offset >= (row.offset or 0) for stored in records.values()):
                yield f"{partition} on node {replica.broker}: key {key!r} is missing, {_row(row)} was its latest"


def offsets_join(evidence: Evidence) -> Iterator[str]:
    """I20: each batch begins where the one before ended, but for gaps that compaction made; on every replica, up to its
    end, header bytes outside of the CRC included.
    """
    for replica in evidence.replicas:
        compacted = replica.partition.topic in evidence.compacted
        end: Offset | None = None
        for batch in replica.batches:
            if end is not None and batch.base_offset != end and not (compacted and batch.base_offset > end):
                yield f"{replica.partition} on node {replica.broker}: a batch at {batch.base_offset} behind {end}"
                break
            end = batch.next_offset
        if end is not None and end != replica.log_end:
            yield f"{replica.partition} on node {replica.broker}: batches end at {end}, the log at {replica.log_end}"


def deletions_are_kept(evidence: Evidence) -> Iterator[str]:
    """I23: what an acknowledged deletion has removed is on no replica and no reader gets it; nothing else is gone.

    That no leader brings it back meanwhile is checked as it happens (`watch`).
    """
    if evidence.deletions is None:
        return
    for partition, replicas in evidence.committed.items():
        if partition.topic in evidence.compacted:
            continue
        made = [one for one in evidence.deletions if one.at == partition]
        least = max((one.log_start for one in made if one.log_start is not None), default=Offset(0))
        asked = [one.most for one in made]
        most = None if None in asked else max((offset for offset in asked if offset is not None), default=Offset(0))
        for replica, _ in replicas:
            if replica.log_start < least:
                yield f"{partition} on node {replica.broker} starts at {replica.log_start}, {least} was acknowledged"
            if most is not None and replica.log_start > most:
                yield f"{partition} on node {replica.broker} starts at {replica.log_start}, {most} was asked for"
        for row in evidence.polls:
            if row.process in evidence.final_readers and row.partition == partition and (row.offset or 0) < least:
                yield f"{row.process} was given {_row(row)}, that it starts at {least} was acknowledged"


def value_of(process: str, sequence: int, key: bytes | None = None, *, size_bytes: int = 0) -> bytes:
    """A value that no other row of the run has, and that names its row: `process/sequence/key/....`."""
    head = b"%s/%d/%s/" % (process.encode(), sequence, key or b"")
    return head + b"." * max(0, size_bytes - len(head))


def key_of(value: bytes) -> bytes:
    """The key that `value_of` put into it."""
    return value.split(b"/")[2]


def _row(row: Row) -> str:
    return f"{(row.value or b'').rstrip(b'.')!r} at {row.partition}@{row.offset}"


def _seen(stored: Stored | None) -> str:
    return "nothing" if stored is None else repr((stored.value or b"").rstrip(b"."))


CHECKS: Final[dict[str, Callable[[Evidence], Iterator[str]]]] = {
    "I1": no_lost_write,
    "I2": no_phantom,
    "I3": one_value_an_offset,
    "I4": no_duplicates,
    "I5": send_order,
    "I6": poll_order,
    "I7": nothing_unseen,
    "I8": replicas_are_identical,
    "I18": latest_of_each_key,
    "I20": offsets_join,
    "I23": deletions_are_kept,
}


def violations(evidence: Evidence) -> list[Violation]:
    return [
        Violation(invariant, what)
        for invariant, check in CHECKS.items()
        for what in itertools.islice(check(evidence), SHOWN_MAX)
    ]
