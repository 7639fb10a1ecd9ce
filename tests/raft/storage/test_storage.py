"""What a node finds when it starts: each row of storage.py's table, and each part of the files damaged."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from streamlog.errors import (
    DamagedFileError,
    InconsistentClusterError,
    LogDirectoryLockedError,
    StorageError,
    StreamlogError,
    UnsupportedVersionError,
)
from streamlog.model import BrokerId, RaftIndex, RaftTerm
from streamlog.raft.open_storage import Owner, Storage, open_storage
from streamlog.raft.port import Applied
from streamlog.raft.protocol.entries import VOTERS, LogEntry
from streamlog.raft.protocol.stored import Session, SnapshotHead
from streamlog.raft.protocol.wire import encode_voters
from streamlog.raft.storage import framed_file, snapshot_file
from streamlog.sim import Killed, Machine

from ..kit import voters

DIRECTORY = "/data/quorum"
OWNER = Owner(cluster_id="c", node_id=BrokerId(2), voters=voters(1, 2, 3))


def start(machine: Machine, owner: Owner = OWNER) -> Storage:
    return machine.run(open_storage(machine.fs, machine.workers, machine.random, DIRECTORY, owner))


def head_at(index: int, term: int = 1) -> SnapshotHead:
    return SnapshotHead(
        last_index=RaftIndex(index), last_term=RaftTerm(term), voters_index=RaftIndex(0), voters=voters(1, 2, 3)
    )


def used(last: int = 30, *, snapshot: int | None = None, base: int | None = None) -> Machine:
    """A machine on which the node has lived: entries of term 1 up to `last`."""
    machine = Machine()
    storage = start(machine)
    for index in range(2, last + 1):
        storage.journal.append(LogEntry(b"\0x", RaftIndex(index), RaftTerm(1)))
    storage.journal.set_state(RaftTerm(1), BrokerId(1))
    machine.run(storage.journal.sync())
    if snapshot is not None:
        machine.run(storage.store.write(head_at(snapshot), snapshot_file.encode(head_at(snapshot), [], [b"state"])))
    if base is not None:
        machine.run(storage.journal.compact(RaftIndex(base)))
    machine.power_cut()
    return machine


def damage(machine: Machine, name: str, change: Any) -> None:
    """Rewrite a file as `change` says, durably."""
    file = machine.fs.open(f"{DIRECTORY}/{name}")
    data = bytearray(file.pread(file.size(), 0))
    change(data)
    file.truncate(0)
    file.pwritev((data,), 0)
    machine.run(file.sync())


def refusal(machine: Machine) -> DamagedFileError:
    with pytest.raises(DamagedFileError) as caught:
        start(machine)
    assert "Restore it from the other voters: remove voter 2" in str(caught.value)
    assert DIRECTORY in str(caught.value)
    return caught.value


# The table, row by row.


def test_a_first_start() -> None:
    machine = Machine()
    storage = start(machine)
    assert storage.journal.is_unused
    assert storage.snapshot is None
    assert storage.identity.bootstrap == OWNER.voters
    assert storage.voter_sets().voters == OWNER.voters
    machine.power_cut()
    again = start(machine)
    assert again.identity == storage.identity


@pytest.mark.parametrize("changes", range(1, 30))
def test_a_first_start_that_is_cut_short(changes: int) -> None:
    """At each change of the disk: the next start starts again, or goes on, and never refuses."""
    machine = Machine(changes)
    machine.cut_after(changes)
    try:
        start(machine)
    except Killed:
        pass
    (machine.power_cut if changes % 2 else machine.crash)()
    machine.cut_after(None)
    storage = start(machine)
    assert storage.journal.is_unused
    machine.power_cut()
    assert start(machine).identity == storage.identity


def test_a_journal_without_an_identity() -> None:
    machine = used()
    machine.fs.unlink(f"{DIRECTORY}/identity")
    assert refusal(machine).path == f"{DIRECTORY}/identity"


def test_an_identity_without_a_journal() -> None:
    machine = used()
    machine.fs.unlink(f"{DIRECTORY}/journal")
    error = refusal(machine)
    assert (error.path, error.position) == (f"{DIRECTORY}/journal", 0)


def test_as_it_was_left() -> None:
    storage = start(used(30))
    assert (storage.journal.last.index, storage.journal.vote) == (30, 1)


def test_a_snapshot_inside_the_journal() -> None:
    storage = start(used(30, snapshot=20, base=10))
    assert storage.snapshot is not None
    assert (storage.journal.base.index, storage.journal.last.index) == (10, 30)


def test_a_snapshot_beyond_the_journal_was_installed_last() -> None:
    machine = used(30, snapshot=50)
    storage = start(machine)
    assert (storage.journal.base.index, storage.journal.last.index) == (50, 50)
    assert storage.journal.vote == 1
    machine.power_cut()
    assert start(machine).journal.base.index == 50


def test_a_snapshot_that_the_journal_does_not_agree_with_was_installed_last() -> None:
    machine = used(30)
    storage = start(machine)
    head = head_at(20, term=2)
    machine.run(storage.store.write(head, snapshot_file.encode(head, [], [])))
    machine.power_cut()
    again = start(machine)
    assert (again.journal.base.index, again.journal.base.term, len(again.journal)) == (20, 2, 1)


def test_a_lost_snapshot() -> None:
    machine = used(30, snapshot=20, base=10)
    machine.fs.unlink(f"{DIRECTORY}/snapshot")
    error = refusal(machine)
    assert error.path == f"{DIRECTORY}/snapshot"
    assert "the journal begins at entry 10" in str(error)


def test_a_snapshot_older_than_the_journal() -> None:
    machine = used(30, snapshot=20, base=15)
    storage = start(machine)
    machine.run(storage.store.write(head_at(8), snapshot_file.encode(head_at(8), [], [])))
    storage.close()
    assert "ends at entry 8, but the journal begins at 15" in str(refusal(machine))


def test_what_was_being_written_is_removed() -> None:
    machine = used()
    for name in ("snapshot.new", "snapshot.part"):
        machine.fs.open(f"{DIRECTORY}/{name}", create=True)
    start(machine)
    assert machine.fs.list(DIRECTORY) == [".lock", "identity", "journal"]


# Whose it is.


@pytest.mark.parametrize(
    "other",
    [
        Owner(cluster_id="other", node_id=BrokerId(2), voters=voters(1, 2, 3)),
        Owner(cluster_id="c", node_id=BrokerId(3), voters=voters(1, 2, 3)),
    ],
)
def test_another_node_or_cluster_is_refused(other: Owner) -> None:
    machine = used()
    with pytest.raises(InconsistentClusterError, match="belongs to"):
        start(machine, other)


def test_the_journal_of_another_directory_is_refused() -> None:
    machine, other = used(), Machine("another")
    file = machine.fs.open(f"{DIRECTORY}/journal")
    data = file.pread(file.size(), 0)
    start(other).close()
    damage(other, "journal", lambda own: own.__setitem__(slice(None), data))
    assert "belongs to directory" in str(refusal(other))


def test_a_directory_in_use_is_refused() -> None:
    machine = Machine()
    storage = start(machine)
    with pytest.raises(LogDirectoryLockedError, match=DIRECTORY):
        start(machine)
    storage.close()
    start(machine)


def test_voters_of_the_settings_are_for_the_first_start() -> None:
    machine = used()
    changed = Owner(cluster_id="c", node_id=BrokerId(2), voters=voters(2, 4, 5))
    assert start(machine, changed).voter_sets().voters == voters(1, 2, 3)


def test_voters_of_the_journal_are_in_effect() -> None:
    machine = used(10)
    storage = start(machine)
    storage.journal.append(LogEntry(VOTERS + encode_voters(voters(1, 2)), RaftIndex(11), RaftTerm(1)))
    machine.run(storage.journal.sync())
    machine.power_cut()
    voter_sets = start(machine).voter_sets()
    assert (voter_sets.voters, voter_sets.index) == (voters(1, 2), 11)
    voter_sets.truncated(RaftIndex(11))
    assert (voter_sets.voters, voter_sets.index) == (voters(1, 2, 3), 0)


# Damage.


def test_every_flipped_byte_of_the_identity_is_noticed() -> None:
    machine = used()
    file = machine.fs.open_readonly(f"{DIRECTORY}/identity")
    for position in range(file.size()):
        damage(machine, "identity", lambda data, at=position: data.__setitem__(at, data[at] ^ 0x40))
        with pytest.raises((DamagedFileError, UnsupportedVersionError), match="identity"):
            start(machine)
        damage(machine, "identity", lambda data, at=position: data.__setitem__(at, data[at] ^ 0x40))
    start(machine)


@pytest.mark.parametrize("keep", [0, 3, 13, 20])
def test_an_identity_that_is_cut_off_is_noticed(keep: int) -> None:
    machine = used()
    damage(machine, "identity", lambda data: data.__delitem__(slice(keep, None)))
    assert refusal(machine).path.endswith("identity")


def test_a_damaged_journal_names_its_position() -> None:
    machine = used()
    damage(machine, "journal", lambda data: data.__setitem__(200, data[200] ^ 1))
    error = refusal(machine)
    assert error.path == f"{DIRECTORY}/journal"
    assert 0 < error.position <= 200


def test_a_damaged_snapshot_names_its_position() -> None:
    machine = used(30, snapshot=20, base=10)
    damage(machine, "snapshot", lambda data: data.__setitem__(-20, data[-20] ^ 1))
    error = refusal(machine)
    assert error.path == f"{DIRECTORY}/snapshot"
    assert error.position > 6


def test_a_disk_that_cannot_be_read_is_reported() -> None:
    machine = used()
    machine.disk.faults.read_errors = 1
    with pytest.raises(StorageError, match="/data/quorum"):
        start(machine)


# The snapshot's bytes.

SESSIONS = [Session(client_id="c", forgotten_end=2, answers=((4, Applied(index=RaftIndex(7), result=b"r")),))]


def snapshot_bytes(*pieces: bytes) -> bytes:
    return b"".join(snapshot_file.encode(head_at(9), SESSIONS, pieces))


def test_snapshots_there_and_back() -> None:
    content = snapshot_file.decode(snapshot_bytes(b"one", b"two"), "/s", "")
    assert (content.head, content.sessions, b"".join(content.machine)) == (head_at(9), SESSIONS, b"onetwo")


def test_golden_snapshot() -> None:
    head = SnapshotHead(last_index=RaftIndex(9), last_term=RaftTerm(2), voters_index=RaftIndex(0), voters=voters(1))

    def block(kind: int, data: bytes) -> bytes:
        fields = bytes([kind]) + len(data).to_bytes(4, "little")
        return fields + zlib.crc32(fields + data).to_bytes(4, "little") + data

    golden_head = bytes.fromhex("08091002220d0a0b080112076e313a39303932")
    assert b"".join(snapshot_file.encode(head, [], [b"sta", b"te"])) == (
        b"SLQS\x01\0" + block(1, golden_head) + block(3, b"state") + block(4, b"\x02\0\0\0")
    )


def test_the_bytes_do_not_depend_on_how_the_machine_cuts_them() -> None:
    whole = b"x" * (3 << 20)
    assert snapshot_bytes(whole) == snapshot_bytes(*(whole[i : i + 777_777] for i in range(0, len(whole), 777_777)))
    assert max(map(len, snapshot_file.encode(head_at(9), [], [whole]))) < (1 << 20) + 20


def test_every_flipped_bit_of_a_snapshot_is_noticed() -> None:
    sound = snapshot_bytes(b"some state", b"and more")
    for position in range(len(sound)):
        data = bytearray(sound)
        data[position] ^= 4
        with pytest.raises(StreamlogError) as caught:
            snapshot_file.decode(bytes(data), "/s", "what to do")
        assert isinstance(caught.value, (DamagedFileError, UnsupportedVersionError))


def test_every_cut_of_a_snapshot_is_noticed() -> None:
    sound = snapshot_bytes(b"some state")
    for size in range(len(sound)):
        with pytest.raises(DamagedFileError):
            snapshot_file.decode(sound[:size], "/s", "")
    with pytest.raises(DamagedFileError, match="behind its END"):
        snapshot_file.decode(sound + b"x", "/s", "")


def test_blocks_that_are_missing_are_noticed() -> None:
    pieces = snapshot_file.encode(head_at(9), SESSIONS, [b"state"])
    for left_out in range(1, len(pieces)):
        data = b"".join(piece for place, piece in enumerate(pieces) if place != left_out)
        with pytest.raises(DamagedFileError):
            snapshot_file.decode(data, "/s", "")


def test_a_framed_file_of_a_newer_version_is_reported() -> None:
    machine = Machine()
    file = machine.fs.open("/f", create=True)
    data = bytearray(framed_file.frame(b"TEST", b"payload"))
    data[4] = 9
    file.pwritev((data,), 0)
    with pytest.raises(UnsupportedVersionError, match="format version 9"):
        framed_file.read_framed(machine.fs, "/f", b"TEST", remedy="")
