"""The invariants that are checked as it happens, not by what comes of it in the end (FAULTS: I9, I10, I11, I23).

    I9   the high watermark of a replica does not fall in one life of its node, no reader is given a record beyond it,
         and nothing beyond it is deleted
    I10  one life of one node leads in a (partition, leader epoch), and appends in it; the epochs that a node leads in
         never fall; a topic that is deleted and created again is another one, known by its id
    I11  what a node has synced is there when it comes back; what is acknowledged is synced on as many disks as
         min.insync.replicas asks for
    I23  a leader that takes over has what an acknowledged deletion has removed no more

A *life* is one process of one host. A local promise is noted at the moment of death and looked up at the next opening
of the same log: an end-to-end check would need the lie and the election that shows it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from msgspec import Struct, field

from streamlog.model import LeaderEpoch, Offset, TopicId, TopicPartition
from streamlog.records import scan_headers
from streamlog.sim.files.disk import SimDisk
from streamlog.sim.process import Process
from streamlog.storage.directories.directory import LogDirectory
from streamlog.storage.log.log import Log

from .checks import SHOWN_MAX, Violation
from .replicas import log_bytes


class Promise(Struct, frozen=True):
    """What one log had on stable storage when its node died: [log start, end), and the batches in it."""

    directory: str  # the log directory
    end: Offset
    batches: dict[Offset, tuple[int, LeaderEpoch]]  # base offset -> (CRC, leader epoch)


class Committed(Struct, frozen=True):
    """The high watermark rose to `end`, as `holders` nodes had synced what is below."""

    end: Offset
    holders: int


EITHER: Final = ""
"""Instead of a directory's path: the log may be found in another one."""


class Term(Struct, frozen=True):
    """A leadership: of a topic that may have been deleted since, with another of the same name in its place."""

    topic_id: TopicId
    partition: TopicPartition
    epoch: LeaderEpoch


class Life(Struct):
    """What one process of a node has done so far."""

    process: Process
    directories: list[LogDirectory] = field(default_factory=list)  # those whose logs are open
    high_watermarks: dict[TopicPartition, Offset] = field(default_factory=dict)
    led: dict[TopicPartition, Term] = field(default_factory=dict)  # the latest

    def logs(self) -> Iterator[Log]:
        for directory in self.directories:
            yield from directory.logs.values()

    def swapping(self) -> Iterator[Log]:
        """Those that are between two log directories."""
        used = {log.partition for log in self.logs()}
        for directory in self.directories:
            yield from (log for log in directory.moving.frozen.values() if log.partition not in used)


class Watch:
    """Called by the eyes (`eyes`), by the nemesis and by the clients. Everything that is wrong goes to `violations`."""

    def __init__(self, *, compacted: frozenset[str] = frozenset()) -> None:
        self.violations: list[Violation] = []
        self._compacted = compacted
        self._lives: dict[str, Life] = {}  # host -> its latest life
        self._leaders: dict[Term, Process] = {}
        self._appenders: dict[Term, Process] = {}
        self._promises: dict[tuple[str, TopicPartition], Promise] = {}  # by host, while the log is not open
        self._lost: dict[tuple[str, TopicPartition], Promise] = {}  # of disks that are lost, and of damaged logs
        self._damaged: set[tuple[str, TopicPartition]] = set()  # by host, ever
        self._high_watermarks: dict[TopicPartition, Offset] = {}  # the highest that any node has had
        self._committed: dict[TopicPartition, list[Committed]] = {}  # each rise of the highest one
        self._deleted: dict[TopicPartition, Offset] = {}  # below was deleted, as acknowledged

    def wrong(self, invariant: str, what: str) -> None:
        if sum(violation.invariant == invariant for violation in self.violations) < SHOWN_MAX:
            self.violations.append(Violation(invariant, what))

    def _life(self, process: Process) -> Life:
        life = self._lives.get(process.name)
        if life is None or life.process is not process:
            life = self._lives[process.name] = Life(process)
        return life

    def replicas(self, process: Process) -> Iterator[tuple[Log, Offset]]:
        """Its open logs, each with the high watermark as it was last reported."""
        life = self._lives.get(process.name)
        if life is not None and life.process is process:
            for log in life.logs():
                yield log, life.high_watermarks.get(log.partition, Offset(0))

    # I9.

    def high_watermark(self, process: Process, partition: TopicPartition, high_watermark: Offset) -> None:
        """As the node has it now."""
        marks = self._life(process).high_watermarks
        before = marks.get(partition, Offset(0))
        # What damage has left of a log may end earlier than what it took for committed: it is cut, and copied again.
        if high_watermark < before and (process.name, partition) not in self._damaged:
            self.wrong("I9", f"the high watermark of {partition} at {process} falls from {before} to {high_watermark}")
        marks[partition] = high_watermark
        if high_watermark > self._high_watermarks.get(partition, Offset(-1)):
            self._high_watermarks[partition] = high_watermark
            holders = self._holders(partition, Offset(high_watermark - 1))
            self._committed.setdefault(partition, []).append(Committed(high_watermark, len(holders)))

    def differs(self, process: Process, partition: TopicPartition) -> None:
        """Its log is damaged, and is cut below what it took for committed: it begins again, as after a start."""
        self._life(process).high_watermarks.pop(partition, None)

    def log_starts(self, process: Process, partition: TopicPartition, log_start: Offset) -> None:
        """Records below `log_start` have been deleted."""
        if log_start > self._high_watermarks.get(partition, Offset(0)):
            self.wrong("I18", f"{process} deletes {partition} up to {log_start}, beyond the high watermark")

    def given(self, client: str, partition: TopicPartition, offset: Offset) -> None:
        """A consumer was given this record."""
        if offset >= self._high_watermarks.get(partition, Offset(0)):
            self.wrong("I9", f"{client} was given {partition} at {offset}, beyond every high watermark")

    def committed_end(self, partition: TopicPartition) -> Offset:
        return self._high_watermarks.get(partition, Offset(0))

    # I23.

    def acknowledged_deletion(self, partition: TopicPartition, log_start: Offset) -> None:
        """It was acknowledged that the records below are deleted (SEMANTICS 11.2)."""
        self._deleted[partition] = max(log_start, self._deleted.get(partition, Offset(0)))

    # I10.

    def leads(self, process: Process, term: Term, log_start: Offset) -> None:
        deleted = self._deleted.get(term.partition, Offset(0))
        is_newest = all(term.epoch >= led.epoch for led in self._leaders if led.partition == term.partition)
        if log_start < deleted and is_newest:  # one that learns late what it was: another has led, and deleted, since
            self.wrong(
                "I23", f"{process} leads {term.partition} from {log_start}, its start was acknowledged: {deleted}"
            )
        led = self._life(process).led
        last = led.get(term.partition, term)
        if last.topic_id == term.topic_id and term.epoch < last.epoch:
            self.wrong("I10", f"{process} leads {term.partition} in epoch {term.epoch} after {last.epoch}")
        led[term.partition] = term
        first = self._leaders.setdefault(term, process)
        if first is not process:
            self.wrong("I10", f"{first} and {process} lead {term.partition} in epoch {term.epoch}")

    def appended(self, process: Process, partition: TopicPartition, epoch: LeaderEpoch) -> None:
        """It has appended as a leader, in its latest term."""
        term = Term(self._life(process).led[partition].topic_id, partition, epoch)
        first = self._appenders.setdefault(term, process)
        if first is not process:
            self.wrong("I10", f"{first} and {process} append to {partition} in epoch {epoch}")

    # I11.

    def dies(self, process: Process, disk: SimDisk) -> None:
        """It is about to: note what it has promised. What it has not opened since its last death is promised still."""
        life = self._lives.get(process.name)
        if life is None or life.process is not process:
            return
        with undisturbed(disk):
            for directory in life.directories:
                for log in directory.logs.values():
                    if (process.name, log.partition) in self._damaged:  # it has left what it has promised behind
                        self._lost[process.name, log.partition] = Promise(directory.path, log.durability.synced_end, {})
                    else:
                        self._promises[process.name, log.partition] = promise_of(log, directory.path)
            for log in life.swapping():
                self._promises[process.name, log.partition] = Promise(EITHER, log.durability.synced_end, {})
        life.directories.clear()

    def disk_lost(self, name: str) -> None:
        """All that it has promised is gone with its disk. It still counts for acknowledgements that are on their way to
        their clients: they were right when they were sent.
        """
        self._lost |= {key: promise for key, promise in self._promises.items() if key[0] == name}
        self._promises = {key: promise for key, promise in self._promises.items() if key[0] != name}

    def damaged(self, name: str, partition: TopicPartition) -> None:
        """Bytes of its log have changed on the disk: what it has promised of it may be gone. As with a lost disk,
        what was acknowledged before was right.
        """
        self._damaged.add((name, partition))
        promise = self._promises.pop((name, partition), None)
        if promise is not None:
            self._lost[name, partition] = promise

    def opened(self, process: Process, directory: LogDirectory) -> None:
        """Its logs are open, and nothing has been done to them yet."""
        self._life(process).directories.append(directory)
        for log in directory.logs.values():
            promise = self._promises.pop((process.name, log.partition), None)
            if promise is not None:
                self._check_kept(process, log, promise)
        for host, partition in list(self._promises):
            if host == process.name and self._promises[host, partition].directory == directory.path:
                self.wrong("I11", f"{process} has no log of {partition} any more")
                del self._promises[host, partition]

    def removed(self, process: Process, partition: TopicPartition) -> None:
        """The partition is not this node's any more; should it come back, its log starts from the beginning."""
        self._life(process).high_watermarks.pop(partition, None)

    def _check_kept(self, process: Process, log: Log, promise: Promise) -> None:
        if log.log_end_offset < promise.end:
            self.wrong(
                "I11", f"{log.partition} was synced up to {promise.end}, {process} has it up to {log.log_end_offset}"
            )
        elif log.partition.topic not in self._compacted:
            now = batches_of(log, promise.end)
            for base, batch in promise.batches.items():
                if base >= log.log_start_offset and now.get(base) != batch:
                    self.wrong("I11", f"{log.partition} at {base} was {batch}, at {process} it is {now.get(base)}")
                    break

    def acknowledged(self, client: str, partition: TopicPartition, offset: Offset, min_insync: int) -> None:
        """The record was acknowledged with acks=all. The acknowledgement may have been on its way for long: it was
        right if enough nodes held the record when it was committed, though a disk was lost since.
        """
        holders = self._holders(partition, offset)
        if max(len(holders), self._holders_when_committed(partition, offset)) < min_insync:
            self.wrong("I11", f"{client} was acknowledged {partition} at {offset}, which only {holders} have synced")

    def _holders(self, partition: TopicPartition, offset: Offset) -> list[str]:
        return [name for name in sorted(self._lives) if self._holds(name, partition, offset)]

    def _holders_when_committed(self, partition: TopicPartition, offset: Offset) -> int:
        rises = self._committed.get(partition, [])
        index = bisect_right(rises, offset, key=lambda rise: rise.end)
        return rises[index].holders if index < len(rises) else 0

    def _holds(self, name: str, partition: TopicPartition, offset: Offset) -> bool:
        """What is lost counts until the node follows again, since until then the leader cannot know: it counts what the
        replica has reported. Damage shows only later.
        """
        life, key = self._lives[name], (name, partition)
        logs = [log for log in (*life.logs(), *life.swapping()) if log.partition == partition]
        if any(log.durability.synced_end > offset for log in logs):
            return True
        lost = self._lost.get(key) if not logs or key in self._damaged else None
        promise = self._promises.get(key) or lost
        return promise is not None and promise.end > offset


def promise_of(log: Log, directory: str) -> Promise:
    end = log.durability.synced_end
    return Promise(directory, end, batches_of(log, end))


def batches_of(log: Log, end: Offset) -> dict[Offset, tuple[int, LeaderEpoch]]:
    data = log_bytes(log)
    headers = (header for _, header in scan_headers(data, 0, len(data)))
    return {h.base_offset: (h.crc, h.leader_epoch) for h in headers if h.next_offset <= end}


@contextmanager
def undisturbed(disk: SimDisk) -> Iterator[None]:
    """Looking is no reading: it must not meet a fault that waits for the node."""
    waiting, disk.faults.read_errors = disk.faults.read_errors, 0
    try:
        yield
    finally:
        disk.faults.read_errors = waiting
