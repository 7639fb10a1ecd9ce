"""The journal after a crash: a torn tail is cut, damage is refused, what was synced is there."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.errors import DamagedFileError, StorageError
from streamlog.model import BrokerId, RaftIndex, RaftTerm
from streamlog.raft.protocol.entries import FIRST_ENTRY, LogEntry
from streamlog.raft.storage import journal_format as fmt
from streamlog.raft.storage.journal import Journal
from streamlog.raft.voters import DirectoryId
from streamlog.sim import Killed, Machine

from .journal_kit import (
    PATH,
    REMEDY,
    contents,
    create,
    entry,
    filled,
    indexes,
    make_machine,
    overwrite,
    record_positions,
    reopen,
)

# Torn tails and damage.


@pytest.mark.parametrize("cut", [1, 5, 20, 37, 45])
def test_a_tail_that_was_cut_off_is_a_torn_tail(cut: int) -> None:
    machine = make_machine()
    filled(machine)
    overwrite(machine, contents(machine)[:-cut])
    assert indexes(reopen(machine)) == list(range(1, 20))


def test_zeros_behind_the_end_are_a_torn_tail() -> None:
    machine = make_machine()
    filled(machine)
    overwrite(machine, contents(machine) + bytes(4096))
    journal = reopen(machine)
    assert journal.last.index == 20
    journal.append(entry(21))
    machine.run(journal.sync())
    machine.crash()
    assert reopen(machine).last.index == 21


def test_a_sector_that_did_not_make_it_is_a_torn_tail() -> None:
    """Two records of one unsynced write; the first one's middle sector is missing, the second is whole."""
    machine = make_machine()
    journal = create(machine)
    journal.append(entry(2, data=b"\0" + b"x" * 2000))
    journal.append(entry(3, data=b"\0" + b"y" * 50))
    journal.flush()
    data = bytearray(contents(machine))
    data[1024:1536] = bytes(512)
    overwrite(machine, bytes(data))
    assert indexes(reopen(machine)) == [1]


def test_every_flipped_bit_of_a_synced_record_is_damage() -> None:
    """Also of the last one: a flipped bit leaves no hole, so it is no torn tail."""
    machine = make_machine()
    filled(machine, last=4)
    sound, last = contents(machine), record_positions(machine)[-1]
    for position in range(last, len(sound)):
        data = bytearray(sound)
        data[position] ^= 0x10
        with pytest.raises(DamagedFileError) as caught:
            fmt.scan(bytes(data), PATH, REMEDY)
        assert caught.value.position == last
        assert str(caught.value).startswith(f"{PATH}: position {last}: ")
        assert str(caught.value).endswith(REMEDY)


def test_a_zeroed_record_in_the_middle_is_damage() -> None:
    """It looks torn, but a later record says that it had been synced."""
    machine = make_machine()
    journal = filled(machine, last=4)
    journal.append(entry(5))
    machine.run(journal.sync())
    begin, end = record_positions(machine)[-2:]
    data = bytearray(contents(machine))
    data[begin:end] = bytes(end - begin)
    overwrite(machine, bytes(data))
    with pytest.raises(DamagedFileError, match=f"position {begin}: .* it was synced"):
        reopen(machine)


@pytest.mark.parametrize("compacted", [False, True])
def test_a_seal_makes_damage_of_the_last_entry_provable(compacted: bool) -> None:
    """A compaction writes a file without a seal: it took the place of a sealed one, and was not sealed again."""
    machine = make_machine()
    journal = filled(machine, last=4)
    assert journal.seal()
    if compacted:
        machine.run(journal.sync())
        machine.run(journal.compact(RaftIndex(3)))
        assert not journal.is_sealed
        assert journal.seal()
    assert not journal.seal()
    machine.run(journal.sync())
    begin, end = record_positions(machine)[-2:]
    data = bytearray(contents(machine))
    data[begin:end] = bytes(end - begin)
    overwrite(machine, bytes(data))
    with pytest.raises(DamagedFileError):
        reopen(machine)


def test_a_seal_waits_until_all_is_durable() -> None:
    machine = make_machine()
    journal = filled(machine, last=4)
    journal.append(entry(5))
    assert not journal.seal()


def test_rubbish_behind_the_end_is_damage() -> None:
    machine = make_machine()
    filled(machine)
    overwrite(machine, contents(machine) + b"junk")
    with pytest.raises(DamagedFileError):
        reopen(machine)


def test_a_record_that_checks_but_cannot_follow_is_damage() -> None:
    machine = make_machine()
    filled(machine, last=4)
    data = contents(machine)
    stray = fmt.encode(fmt.RecordKind.ENTRY, len(data), 0, fmt.ENTRY_PAYLOAD.pack(9, 1) + b"\0")
    overwrite(machine, data + stray)
    with pytest.raises(DamagedFileError, match="entry 9 of term 1 cannot follow 4"):
        reopen(machine)


def test_another_directorys_journal_is_refused() -> None:
    machine = make_machine()
    filled(machine)
    with pytest.raises(DamagedFileError, match="belongs to directory"):
        machine.run(Journal.open(machine.fs, PATH, DirectoryId(bytes(16)), remedy=REMEDY))


def test_a_missing_beginning_is_damage() -> None:
    machine = make_machine()
    filled(machine)
    overwrite(machine, b"")
    with pytest.raises(DamagedFileError, match="does not begin"):
        reopen(machine)


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=300))
def test_no_bytes_make_the_scan_fail_otherwise(data: bytes) -> None:
    try:
        records, end = fmt.scan(data, PATH, REMEDY)
    except DamagedFileError:
        return
    again = [fmt.encode(fmt.RecordKind(r.kind), r.position, r.durable, r.payload) for r in records]
    assert b"".join(again) == data[:end]


class Model:
    """What a reader must find: the state of the latest sync, or any later one."""

    def __init__(self) -> None:
        self.entries = [FIRST_ENTRY]
        self.state: tuple[int, int | None] = (0, None)
        self.history: list[tuple[list[LogEntry], tuple[int, int | None]]] = []  # after each change since the last sync

    def note(self) -> None:
        self.history.append((list(self.entries), self.state))

    def synced(self) -> None:
        del self.history[:-1]


def drive(journal: Journal, model: Model, rng: random.Random, machine: Machine) -> None:
    """One random change, or a sync, or a compaction."""
    last, term = model.entries[-1], model.state[0]
    match rng.choice(["append"] * 6 + ["truncate", "state", "sync", "sync", "compact", "reset", "seal", "flush"]):
        case "append":
            new = entry(last.index + 1, max(last.term, 1), b"\0" + rng.randbytes(rng.choice([3, 40, 700, 3000])))
            model.entries.append(new)
            model.note()
            journal.append(new)
        case "truncate" if len(model.entries) > 1:
            place = rng.randrange(1, len(model.entries))
            first = model.entries[place].index
            del model.entries[place:]
            model.note()
            journal.truncate(first)
        case "state":
            model.state = (term + 1, rng.choice([None, 1, 2]))
            model.note()
            journal.set_state(RaftTerm(model.state[0]), None if model.state[1] is None else BrokerId(model.state[1]))
        case "reset":
            index, base_term = RaftIndex(last.index + 5), RaftTerm(last.term + 1)
            model.entries = [LogEntry(FIRST_ENTRY.data, index, base_term)]
            model.note()
            journal.reset(index, base_term)
        case "compact" if len(model.entries) > 2:
            base = model.entries[len(model.entries) // 2]
            machine.run(journal.sync())
            model.synced()
            machine.run(journal.compact(base.index))
            model.entries = [
                LogEntry(FIRST_ENTRY.data, base.index, base.term),
                *model.entries[len(model.entries) // 2 + 1 :],
            ]
            model.note()
            model.synced()
        case "seal":
            machine.run(journal.sync())
            model.synced()
            journal.seal()
        case "flush":
            journal.flush()
        case _:
            machine.run(journal.sync())
            model.synced()


def suffix(entries: list[LogEntry], base: int) -> list[tuple[int, int, bytes]]:
    """Entries behind `base`, and the base by index and term."""
    return [(e.index, e.term, b"" if e.index == base else e.data) for e in entries if e.index >= base]


@pytest.mark.parametrize("seed", range(800))
def test_random_changes_with_crashes_at_any_write(seed: int) -> None:
    """After a power cut the journal is that of the last sync or of a later change, whole; never anything else."""
    rng = random.Random(f"journal/{seed}")
    machine = make_machine(seed)
    journal, model = create(machine), Model()
    model.note()
    for _ in range(4):
        machine.cut_after(rng.randrange(1, 30))
        fails_at = rng.randrange(40)
        try:
            for step in range(40):
                if step == fails_at:
                    machine.disk.faults.sync_errors = 1
                drive(journal, model, rng, machine)
        except (Killed, StorageError):
            pass
        machine.disk.faults.sync_errors = 0
        (machine.power_cut if rng.random() < 0.7 else machine.crash)()
        journal = reopen(machine)
        found = (suffix(journal.between(0, len(journal)), journal.base.index), (journal.term, journal.vote))
        allowed = [(suffix(entries, journal.base.index), state) for entries, state in model.history]
        assert found in allowed
        model.entries = journal.between(0, len(journal))
        model.state = (journal.term, journal.vote)
        model.history.clear()
        model.note()
    machine.close()


def test_a_journal_left_by_a_failed_sync_is_written_again() -> None:
    """The cache shows what the disk lost, and the next sync of that file would say OK."""
    machine = make_machine()
    journal = filled(machine, last=5)
    journal.append(entry(6))
    machine.disk.faults.sync_errors = 1
    with pytest.raises(StorageError):
        machine.run(journal.sync())
    machine.crash()
    assert reopen(machine).durable_index == 6
    machine.power_cut()
    assert reopen(machine).last.index == 6


def test_a_seal_whose_sync_failed_is_written_again() -> None:
    """Seed 3569 of the transactions: what came behind it said that the seal was durable, and the next power cut made
    damage of a journal that was sound.
    """
    machine = make_machine()
    journal = filled(machine, last=5)
    assert journal.seal()
    machine.disk.faults.sync_errors = 1
    with pytest.raises(StorageError):
        machine.run(journal.sync())
    machine.crash()
    journal = reopen(machine)
    journal.append(entry(6))
    machine.run(journal.sync())
    machine.power_cut()
    assert reopen(machine).last.index == 6
