"""The defects of PySyncObj 0.3.17 on disk, in durability and in bounds: shown by the library, not by ours.

As test_library_defects.py; T8 to T11 and what has no number.
"""

from __future__ import annotations

import logging
import mmap
import os
import queue
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pysyncobj.pickle
import pysyncobj.syncobj as library
import pytest
from pysyncobj import SyncObjConf
from pysyncobj.journal import FileJournal

from streamlog.errors import DamagedFileError, ThrottledError
from streamlog.model import BrokerId, RaftIndex, RaftTerm
from streamlog.raft.protocol.entries import LogEntry
from streamlog.raft.protocol.messages import VoteReply
from streamlog.raft.storage import journal_format, snapshot_file
from streamlog.raft.storage.journal import Journal
from streamlog.sim import Killed, Machine, SimLoop
from streamlog.sim import run as run_simulation
from streamlog.sim.world import World

from ..instant_disk import InstantFiles, at_once
from ..kit import Cluster
from .both_labs import BOTH
from .lab import Lab
from .our_lab import OurLab, directory
from .plain_lab import LabNode, PlainLab


@pytest.fixture(autouse=True)
def _quiet_library() -> Iterator[None]:
    """It logs the exceptions that it swallows."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


# Files.


def test_t8_a_kill_between_snapshot_and_compaction_drops_the_journals_tail(tmp_path: Path) -> None:
    """Lines 489-495: a journal that begins before the snapshot is cleared."""
    conf = {"journalFile": lambda n: f"{tmp_path}/{n}.j", "fullDumpFile": lambda n: f"{tmp_path}/{n}.d"}
    lab = PlainLab(3, **conf)
    lab.elect(1)
    for number in range(5):
        lab.submit(1, f"s{number}")
    lab.run(4)
    with mock.patch.object(library.SyncObj, "_SyncObj__deleteEntriesTo"):  # killed before it
        lab.compact(1)
        lab.run(2)
        for number in range(20):
            lab.submit(1, f"t{number}")
        lab.run(4)
    for ending in (".j", ".j.meta", ".d"):
        shutil.copy(f"{tmp_path}/1{ending}", f"{tmp_path}/copy{ending}")
    own = SyncObjConf(
        autoTick=False, journalFile=f"{tmp_path}/copy.j", fullDumpFile=f"{tmp_path}/copy.d", useFork=False
    )
    held = len(FileJournal(f"{tmp_path}/copy.j"))
    again = type(lab.nodes[1])(LabNode("1"), [LabNode("2"), LabNode("3")], own, type(lab.transports[1]))
    again.doTick(0)
    assert len(again._SyncObj__raftLog) < held


def test_t8_ours_keeps_the_journals_tail() -> None:
    async def main(loop: SimLoop) -> None:
        world = World(loop, 8)
        cluster = Cluster(world)
        cluster.start()
        for number in range(10):
            await cluster.put(f"s={number}")
        leader = await cluster.wait_for_leader()
        core, store = leader.core, leader.runner._store
        captured = core.snapshots._capture()
        pieces = snapshot_file.encode(captured.head, captured.sessions, leader.machine.encode(captured.picture))
        await cluster.call(leader, store.write(captured.head, pieces))
        for number in range(20):
            await cluster.put(f"t={number}")
        last = core.log.last.index
        cluster.host(leader.node_id).power_cut()  # before the compaction
        cluster.start(leader.node_id)
        back = cluster.member(leader.node_id)
        await back.raft.wait_until_up()
        assert back.core.log.base.index < captured.head.last_index < back.core.log.last.index == last
        assert back.raft.applied_index >= captured.head.last_index
        world.stop()

    run_simulation(main, seed=8)


def test_t9_a_kill_inside_the_libraries_compaction_loses_the_journal(tmp_path: Path) -> None:
    """journal.py 252-256: it is cleared, and then filled again, in place."""
    path = str(tmp_path / "journal")
    journal = FileJournal(path)
    for number in range(1, 51):
        journal.add(b"command %d" % number, number, 1)

    class Kill(BaseException):
        pass

    added = 0
    add = journal.add

    def killed_at_the_third(*entry: Any) -> None:
        nonlocal added
        added += 1
        if added == 3:
            raise Kill
        add(*entry)

    with mock.patch.object(journal, "add", killed_at_the_third), pytest.raises(Kill):
        journal.deleteEntriesTo(10)
    assert len(FileJournal(path)) < 40


@pytest.mark.parametrize("changes", range(1, 12))
def test_t9_ours_is_whole_wherever_the_compaction_is_killed(changes: int) -> None:
    machine = Machine(9)
    machine.fs.mkdir("/q")
    machine.run(machine.fs.sync_dir("/"))
    journal = machine.run(Journal.create(machine.fs, "/q/journal", directory(1)))
    for number in range(2, 51):
        journal.append(LogEntry(b"\0command", RaftIndex(number), RaftTerm(1)))
    machine.run(journal.sync())
    machine.cut_after(changes)
    try:
        machine.run(journal.compact(RaftIndex(40)))
        machine.cut_after(None)
    except Killed:
        pass
    machine.power_cut()
    again = machine.run(Journal.open(machine.fs, "/q/journal", directory(1), remedy=""))
    assert again.last.index == 50
    assert again.base.index in (1, 40)


def library_journal(tmp_path: Path) -> tuple[str, int]:
    """(path, end of the records) of one with twenty entries."""
    path = str(tmp_path / "journal")
    journal = FileJournal(path)
    for number in range(1, 21):
        journal.add(b"\0payload%03d" % number, number, 1)
    journal._destroy()
    return path, int(struct.unpack("<I", Path(path).read_bytes()[36:40])[0])


def our_journal() -> InstantFiles:
    files = InstantFiles()
    journal = at_once(Journal.create(files, "/journal", directory(1)))
    for number in range(2, 21):
        journal.append(LogEntry(b"\0payload%03d" % number, RaftIndex(number), RaftTerm(1)))
    at_once(journal.sync())
    at_once(journal.sync())
    return files


@pytest.mark.parametrize("place", ["first", "last"])
def test_t10_a_flipped_bit_is_loaded(tmp_path: Path, place: str) -> None:
    """journal.py 152-204: no checksums."""
    path, end = library_journal(tmp_path)
    at = 40 + 4 + 16 + 3 if place == "first" else end - 6
    data = bytearray(Path(path).read_bytes())
    data[at] ^= 1
    Path(path).write_bytes(bytes(data))
    assert len(FileJournal(path)) == 20

    files = our_journal()
    records, _ = journal_format.scan(bytes(files.files["/journal"]), "/journal", "")
    record = records[2] if place == "first" else records[-1]
    files.files["/journal"][record.end - 4] ^= 1
    with pytest.raises(DamagedFileError) as caught:
        at_once(Journal.open(files, "/journal", directory(1), remedy="how to go on"))
    assert (caught.value.path, caught.value.position) == ("/journal", record.position)
    assert "how to go on" in str(caught.value)


def test_t10_a_record_that_was_not_written_is_loaded(tmp_path: Path) -> None:
    path, end = library_journal(tmp_path)
    data = bytearray(Path(path).read_bytes())
    data[end - 33 : end] = bytes(33)
    Path(path).write_bytes(bytes(data))
    journal = FileJournal(path)
    assert (0, 0) in [entry[1:] for entry in journal] or len(journal) > 20

    files = our_journal()
    records, _ = journal_format.scan(bytes(files.files["/journal"]), "/journal", "")
    files.files["/journal"][records[-1].position :] = bytes(records[-1].end - records[-1].position)
    ours = at_once(Journal.open(files, "/journal", directory(1), remedy=""))
    assert ours.last.index == 19


def test_t11_a_damaged_snapshot_makes_an_empty_voter(tmp_path: Path) -> None:
    conf = {"journalFile": lambda n: f"{tmp_path}/{n}.j", "fullDumpFile": lambda n: f"{tmp_path}/{n}.d"}
    lab = PlainLab(3, **conf)
    lab.elect(1)
    for number in range(5):
        lab.submit(1, f"s{number}")
    lab.run(4)
    lab.compact(1)
    lab.run(3)
    os.truncate(tmp_path / "1.d", 30)
    own = SyncObjConf(autoTick=False, journalFile=f"{tmp_path}/1.j", fullDumpFile=f"{tmp_path}/1.d", useFork=False)
    again = type(lab.nodes[1])(LabNode("1"), [LabNode("2"), LabNode("3")], own, type(lab.transports[1]))
    again.doTick(0)
    assert again.items == []  # and it votes

    ours = OurLab(3)
    ours.elect(1)
    ours.submit(1, "x")
    ours.run(4)
    ours.compact(1)
    store = ours.nodes[1].store
    del ours.nodes[1].files.files[store.path][30:]
    with pytest.raises(DamagedFileError, match="position"):
        at_once(store.load())


def test_t11_a_damaged_vote_is_no_vote(tmp_path: Path) -> None:
    path, _ = library_journal(tmp_path)
    journal = FileJournal(path)
    journal.setCurrentTerm(7, "2")
    Path(f"{path}.meta").write_bytes(b"")
    assert FileJournal(path).getCurrentTerm() == 0

    files = InstantFiles()
    ours = at_once(Journal.create(files, "/journal", directory(1)))
    ours.set_state(RaftTerm(7), BrokerId(2))
    at_once(ours.sync())
    records, _ = journal_format.scan(bytes(files.files["/journal"]), "/journal", "")
    files.files["/journal"][records[-1].position + journal_format.HEADER_BYTES] ^= 1
    with pytest.raises(DamagedFileError):
        at_once(Journal.open(files, "/journal", directory(1), remedy=""))


# Durability, bounds, pickles.


def test_nothing_is_synced_by_the_library(tmp_path: Path) -> None:
    with (
        mock.patch.object(os, "fsync") as fsync,
        mock.patch.object(os, "fdatasync") as fdatasync,
        mock.patch.object(mmap, "mmap", wraps=mmap.mmap) as maps,
    ):
        lab = PlainLab(3, journalFile=lambda n: f"{tmp_path}/{n}.j")
        lab.elect(1)
        lab.submit(1, "x")
        lab.run(4)
    assert maps.called
    assert lab.succeeded("x")
    assert not fsync.called
    assert not fdatasync.called


def test_ours_acknowledges_what_a_majority_has_synced() -> None:
    lab = OurLab(3)
    lab.elect(1)
    lab.slow_disks = {1, 2, 3}
    lab.submit(1, "x")
    lab.run(4)
    assert not lab.succeeded("x")
    lab.sync_disk(1)  # the leader's own
    lab.run(4)
    assert not lab.succeeded("x")
    lab.sync_disk(2)
    lab.run(4)
    assert lab.succeeded("x")


def test_a_vote_leaves_after_its_sync() -> None:
    lab = OurLab(3)
    lab.slow_disks = {1, 2}
    lab.clock.now += 10
    lab.campaign(1)
    lab.deliver(1, 2)
    lab.deliver(2, 1)  # the pre-vote promises nothing
    assert not lab.queues[1, 2]
    lab.sync_disk(1)
    lab.deliver(1, 2)
    assert not lab.queues[2, 1]
    assert lab.nodes[2].journal.vote == 1
    lab.sync_disk(2)
    assert [type(message) for message in lab.queues[2, 1]] == [VoteReply]


@BOTH
def test_pickles_are_made_and_read(kind: type[Lab], shows: bool) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a pickle")

    names = ("dumps", "loads", "dump", "load")
    patches = [mock.patch.object(pysyncobj.pickle, name, refuse) for name in names]
    for patch in patches:
        patch.start()
    try:
        lab = kind(3)
        lab.elect(1)
        made = False
        try:
            lab.submit(1, "x")
            lab.run(4)
            lab.compact(1)
            lab.run(2)
        except AssertionError:
            made = True
    finally:
        for patch in patches:
            patch.stop()
    assert made is shows


def test_t16_a_full_queue_raises_from_the_library_and_takes_the_command() -> None:
    """pipe_notifier.py: the pipe that wakes the other thread runs full first."""
    lab = PlainLab(1, appendEntriesUseBatch=False)

    def fill() -> None:
        for _ in range(70_000):
            lab.nodes[1].put("x")

    with pytest.raises(BlockingIOError):
        fill()


def test_t16_ours_refuses_by_name() -> None:
    lab = OurLab(3, proposals_max=10)
    lab.elect(1)
    for _ in range(10):
        lab.submit(1, "x")
    with pytest.raises(ThrottledError, match="the limit is 10"):
        lab.submit(1, "x")
    lab.run(4)
    assert len(lab.answers["x"]) == 10
    lab.submit(1, "y")
    lab.run(4)
    assert lab.succeeded("y")


def test_the_library_would_queue_without_this() -> None:
    """`drop_commands` empties the library's own queue: it is the one that this package looks into."""
    lab = OurLab(3)
    lab.elect(1)
    lab.submit(1, "x")
    assert len(lab.core(1).drop_commands()) == 1
    with pytest.raises(queue.Empty):
        lab.core(1)._commands.get_nowait()
