"""A journal on a simulated machine."""

from __future__ import annotations

from streamlog.model import RaftIndex, RaftTerm
from streamlog.raft.protocol.entries import LogEntry
from streamlog.raft.storage import journal_format as fmt
from streamlog.raft.storage.journal import Journal
from streamlog.raft.voters import DirectoryId
from streamlog.sim import Machine

PATH = "/q/journal"


DIRECTORY = DirectoryId(bytes(range(16)))


REMEDY = "bring it back from the others"


def entry(index: int, term: int = 1, data: bytes | None = None) -> LogEntry:
    return LogEntry(data if data is not None else b"\0command-%d" % index, RaftIndex(index), RaftTerm(term))


def make_machine(seed: int | str = 0) -> Machine:
    machine = Machine(seed)
    machine.fs.mkdir("/q")
    machine.run(machine.fs.sync_dir("/"))
    return machine


def create(machine: Machine) -> Journal:
    return machine.run(Journal.create(machine.fs, PATH, DIRECTORY))


def reopen(machine: Machine) -> Journal:
    return machine.run(Journal.open(machine.fs, PATH, DIRECTORY, remedy=REMEDY))


def filled(machine: Machine, last: int = 20) -> Journal:
    journal = create(machine)
    for index in range(2, last + 1):
        journal.append(entry(index))
    machine.run(journal.sync())
    return journal


def indexes(journal: Journal) -> list[int]:
    return [e.index for e in journal.between(0, len(journal))]


def contents(machine: Machine) -> bytes:
    file = machine.fs.open(PATH)
    return file.pread(file.size(), 0)


def overwrite(machine: Machine, data: bytes) -> None:
    """Make `data` the journal's bytes, durable."""
    file = machine.fs.open(PATH)
    file.truncate(0)
    file.pwritev((data,), 0)
    machine.run(file.sync())


def record_positions(machine: Machine) -> list[int]:
    records, _ = fmt.scan(contents(machine), PATH, REMEDY)
    return [record.position for record in records]
