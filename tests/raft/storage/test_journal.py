"""The journal: what was synced is there after any crash; a torn tail is cut, damage is refused."""

from __future__ import annotations

import zlib
from unittest.mock import patch

import pytest

from streamlog.errors import InvariantError, StorageError
from streamlog.model import BrokerId, RaftIndex, RaftTerm
from streamlog.raft.protocol.entries import FIRST_ENTRY, LogEntry

from .journal_kit import contents, create, entry, filled, indexes, make_machine, reopen


def test_golden_bytes() -> None:
    machine = make_machine()
    journal = create(machine)
    journal.set_state(RaftTerm(3), BrokerId(2))
    journal.append(LogEntry(b"\0hi", RaftIndex(2), RaftTerm(3)))
    journal.truncate(RaftIndex(2))
    journal.flush()

    def record(kind: int, position: int, durable: int, payload: bytes) -> bytes:
        fields = (
            bytes([0x5A, kind, 0, 0])
            + len(payload).to_bytes(4, "little")
            + position.to_bytes(8, "little")
            + durable.to_bytes(8, "little")
            + zlib.crc32(payload).to_bytes(4, "little")
        )
        return fields + zlib.crc32(fields).to_bytes(4, "little") + payload + b"\xa5"

    def u64(value: int) -> bytes:
        return value.to_bytes(8, "little", signed=True)

    expected = record(1, 0, 0, b"\x01\x00" + bytes(range(16)))
    expected += record(2, len(expected), 0, u64(1) + u64(0))
    durable = len(expected)
    expected += record(4, len(expected), durable, u64(3) + u64(2))
    expected += record(3, len(expected), durable, u64(2) + u64(3) + b"\0hi")
    expected += record(5, len(expected), durable, u64(2))
    assert contents(machine) == expected


def test_a_new_journal_holds_the_first_entry_alone() -> None:
    machine = make_machine()
    journal = create(machine)
    assert journal.is_unused
    assert journal.base == journal.last == FIRST_ENTRY
    assert (journal.term, journal.vote) == (0, None)
    machine.power_cut()
    assert reopen(machine).is_unused


def test_what_was_synced_survives_a_power_cut() -> None:
    machine = make_machine()
    journal = create(machine)
    journal.set_state(RaftTerm(4), BrokerId(3))
    for index in range(2, 10):
        journal.append(entry(index, term=4))
    machine.run(journal.sync())
    assert journal.durable == journal.written
    machine.power_cut()
    again = reopen(machine)
    assert (again.term, again.vote) == (4, 3)
    assert again.between(0, 99) == journal.between(0, 99)


def test_durable_index_follows_syncs_not_writes() -> None:
    machine = make_machine()
    journal = filled(machine, last=5)
    journal.append(entry(6))
    journal.flush()
    assert journal.durable_index == 5
    machine.run(journal.sync())
    assert journal.durable_index == 6


def test_a_sync_does_not_vouch_for_what_replaced_what_it_synced() -> None:
    """A cut and new entries of the same indexes while a sync runs: the sync says nothing of them."""
    machine = make_machine()
    journal = filled(machine, last=5)
    journal.append(entry(6, term=1))

    async def replace_during_sync() -> None:
        import asyncio

        sync = asyncio.create_task(journal.sync())
        await asyncio.sleep(0)
        journal.truncate(RaftIndex(5))
        journal.append(entry(5, term=2))
        journal.append(entry(6, term=2))
        journal.flush()
        await sync

    machine.run(replace_during_sync())
    assert journal.durable_index == 4
    machine.run(journal.sync())
    assert journal.durable_index == 6


def test_truncate_and_reset_are_replayed() -> None:
    machine = make_machine()
    journal = filled(machine, last=8)
    journal.truncate(RaftIndex(6))
    journal.append(entry(6, term=2))
    machine.run(journal.sync())
    machine.crash()
    again = reopen(machine)
    assert [(e.index, e.term) for e in again.between(4, 99)] == [(5, 1), (6, 2)]
    again.reset(RaftIndex(100), RaftTerm(7))
    again.append(entry(101, term=7))
    machine.run(again.sync())
    machine.power_cut()
    last = reopen(machine)
    assert indexes(last) == [100, 101]
    assert last.term_at(100) == 7


def test_entries_must_be_consecutive_and_terms_must_not_fall() -> None:
    journal = filled(make_machine(), last=3)
    with pytest.raises(InvariantError):
        journal.append(entry(5))
    with pytest.raises(InvariantError):
        journal.append(entry(4, term=0))
    with pytest.raises(InvariantError):
        journal.truncate(RaftIndex(1))
    with pytest.raises(InvariantError):
        journal.truncate(RaftIndex(4))


def test_batches_are_bounded_in_bytes_but_never_empty() -> None:
    machine = make_machine()
    journal = create(machine)
    for index in range(2, 12):
        journal.append(entry(index, data=b"\0" + bytes(99)))
    assert [e.index for e in journal.batch(2, 350)] == [2, 3, 4]
    assert [e.index for e in journal.batch(5, 1)] == [5]
    assert [e.index for e in journal.batch(10, 10**9)] == [10, 11]
    assert journal.bytes_between(2, 12) == 1000
    assert journal.bytes_between(5, 5) == 0
    assert journal.term_at(12) is None
    assert journal.term_at(0) is None


def test_compaction_keeps_the_rest_and_the_vote() -> None:
    machine = make_machine()
    journal = filled(machine, last=20)
    journal.set_state(RaftTerm(2), BrokerId(1))
    before = journal.size_bytes
    machine.run(journal.compact(RaftIndex(15)))
    assert journal.size_bytes < before
    assert indexes(journal) == [15, 16, 17, 18, 19, 20]
    journal.append(entry(21, term=2))
    machine.run(journal.sync())
    machine.power_cut()
    again = reopen(machine)
    assert indexes(again) == [15, 16, 17, 18, 19, 20, 21]
    assert (again.term, again.vote) == (2, 1)


def test_what_changes_during_a_compaction_is_in_the_new_file() -> None:
    machine = make_machine()
    journal = filled(machine, last=20)

    async def change_meanwhile() -> None:
        import asyncio

        compaction = asyncio.create_task(journal.compact(RaftIndex(10)))
        await asyncio.sleep(0)
        journal.truncate(RaftIndex(19))
        journal.append(entry(19, term=5))
        journal.set_state(RaftTerm(5), BrokerId(9))
        journal.flush()
        await compaction

    machine.run(change_meanwhile())
    assert journal.durable_index == 18
    machine.run(journal.sync())
    machine.power_cut()
    again = reopen(machine)
    assert indexes(again) == list(range(10, 20))
    assert again.last.term == 5
    assert again.vote == 9


def test_a_base_above_what_is_synced_is_durable_and_nothing_behind_it() -> None:
    """A follower's snapshot may cover entries that its journal has not synced: the base is in the snapshot."""
    machine = make_machine()
    journal = filled(machine, last=10)
    for index in range(11, 21):
        journal.append(entry(index))
    assert journal.durable_index == 10
    during: list[int] = []
    sync_dir = journal._fs.sync_dir

    async def observed(path: str) -> None:
        during.append(journal.durable_index)
        await sync_dir(path)

    with patch.object(journal._fs, "sync_dir", observed):
        machine.run(journal.compact(RaftIndex(15)))
    assert during == [15]
    assert journal.number_at(15) == 0
    assert journal.durable_index == 20


def test_a_failed_sync_is_final() -> None:
    machine = make_machine()
    journal = filled(machine)
    journal.append(entry(21))
    machine.disk.faults.sync_errors = 1
    with pytest.raises(StorageError, match="sync failed"):
        machine.run(journal.sync())
    assert journal.durable_index == 20


def test_a_full_disk_is_reported() -> None:
    machine = make_machine()
    journal = create(machine)
    machine.disk.faults.capacity_bytes = machine.disk.used_bytes()
    journal.append(entry(2, data=b"\0" + bytes(20_000)))
    with pytest.raises(StorageError, match="write failed"):
        journal.flush()
